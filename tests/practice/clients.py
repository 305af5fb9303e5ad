"""One short question to each vendor's client."""

from __future__ import annotations

from typing import Any

USER = [{"role": "user", "content": "Grüße 👋"}]


def complete(client: Any, **more: Any) -> Any:
    """Ask OpenAI's client for a chat completion."""
    return client.chat.completions.create(**{"model": "any", "messages": USER, **more})


def answer_of(client: Any, **more: Any) -> str:
    """Return the text of a chat completion."""
    return complete(client, **more).choices[0].message.content


def converse(client: Any, **more: Any) -> Any:
    """Ask Anthropic's client for a message."""
    return client.messages.create(**{"model": "any", "max_tokens": 9, "messages": USER, **more})
