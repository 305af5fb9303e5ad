"""Warm sessions: judge from evidence which calls worked, mine them as examples, show them to new sessions,
and measure the effect."""
