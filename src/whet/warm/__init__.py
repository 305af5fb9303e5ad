"""Warm sessions: calls that worked are judged from evidence, mined, given to new sessions, and measured."""
