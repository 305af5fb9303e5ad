"""Helpers: sessions that do a task for another session, and the working trees that they change."""
