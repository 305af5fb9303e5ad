"""Queued turns of a team, which any of its workers may run: the queue and the worker."""
