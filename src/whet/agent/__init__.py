"""The turn: session, loop, calls."""
