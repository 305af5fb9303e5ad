"""Whet as a server: an OpenAI-compatible API and sessions with their events."""
