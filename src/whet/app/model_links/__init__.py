"""Connections to models: found, logged in to, paid for."""
