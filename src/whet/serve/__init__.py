"""Whet as a server: an OpenAI-compatible API, sessions with their events, and the dashboard."""
