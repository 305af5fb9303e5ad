"""Write a conversation as one text for another model: the person's messages are kept longest, everything else
is cut to fit.

Text stays verbatim between the cuts, so that it can be quoted as evidence. This module does not know who
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.contract.messages import Message
from whet.contract.tools import clip

_CHARS_PER_TOKEN = 4
_CAPS = (4_000, 2_000, 1_000, 500, 240, 120)


def digest(messages: Sequence[Message], budget_tokens: int) -> str:
    """Write `messages` as a text of at most `budget_tokens`: long parts are cut first, then the middle.

    The speaker is on a line of its own, so that every other line can be quoted verbatim. A last answer is
    left out: it proves nothing, and nobody replied to it.
    """
    if messages and messages[-1].role == "assistant" and not messages[-1].tool_calls:
        messages = messages[:-1]
    budget = budget_tokens * _CHARS_PER_TOKEN
    text = ""
    for cap in _CAPS:
        text = "\n\n".join(_row(message, cap) for message in messages)
        if len(text) <= budget:
            break
    else:
        text = _drop_old_work(messages, budget)
    return f"<conversation>\n{clip(text, budget)}\n</conversation>"


def is_complete(text: str, messages: Sequence[Message]) -> bool:
    """Return whether a digest was not too short for a part of each message."""
    return len(text) >= sum(len(_row(message, _CAPS[-1])) for message in messages[:-1])


def _drop_old_work(messages: Sequence[Message], budget_chars: int) -> str:
    """Write what the person typed, shortly, and of the rest the newest that fits."""
    rows = [_row(message, _CAPS[-1]) for message in messages]
    left = budget_chars - sum(
        len(row) + 2 for row, item in zip(rows, messages, strict=True) if item.role == "user"
    )
    for at in reversed(range(len(rows))):
        if messages[at].role != "user":
            left -= len(rows[at]) + 2
            rows[at] = rows[at] if left >= 0 else ""
    return "\n\n".join(filter(None, rows))


def _row(message: Message, cap: int) -> str:
    text = message.text
    if message.role == "user":
        return f"PERSON:\n{clip(text, 4 * cap)}"
    if message.role == "tool":
        kind = "FAILED RESULT" if message.is_error else "RESULT"
        return f"{kind} of {message.tool_name}:\n{clip(text, cap)}"
    calls = [f"CALL {call.name} {clip(call.arguments, cap)}" for call in message.tool_calls]
    parts = [f"AGENT:\n{clip(text, cap)}"] if text else []
    return "\n".join([*parts, *calls])
