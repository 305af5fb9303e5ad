"""Whet: an agent that gets better at its owner's work by doing it."""

from __future__ import annotations

__version__ = "0.1.0"
