"""Turns that any of a team's workers may take: the queue, and the worker that runs them."""
