"""What a learned text must not hold: hidden characters, secrets, orders to the model, ways to leak."""

from __future__ import annotations

from whet.log import mask


def scan(text: str) -> str:
    """Say what is wrong with a text; empty where nothing is."""
    return "it holds a secret" if mask(text) != text else ""
