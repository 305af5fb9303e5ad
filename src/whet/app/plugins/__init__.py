"""Plugins in the running program: their parts, their hooks on sessions, their memories and notices."""
