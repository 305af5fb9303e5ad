"""The same conversation, n steps of one trivial tool, run by each harness; each prints one JSON line."""
