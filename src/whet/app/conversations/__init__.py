"""Conversations of the running program: open sessions, what they are built from, and their slash commands."""
