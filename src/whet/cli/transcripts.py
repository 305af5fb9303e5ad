"""A conversation as a file: Markdown for people, JSON lines for programs.

Secrets are masked. It takes what is given and does not know where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from whet.contract.messages import Message, to_dict
from whet.log import mask
from whet.store.sessions import SessionRow

_SPEAKERS = {"user": "You", "assistant": "Whet"}


def as_jsonl(row: SessionRow, messages: Sequence[Message]) -> str:
    """Write the session's row, then each message as an OpenAI chat dict, one JSON object a line."""
    head = {"type": "session", **msgspec.to_builtins(row)}
    lines = [head, *({"type": "message", **to_dict(message)} for message in messages)]
    return mask("".join(msgspec.json.encode(line).decode() + "\n" for line in lines))


def as_markdown(row: SessionRow, messages: Sequence[Message]) -> str:
    """Write the conversation for a person: who said what, each call with its result."""
    parts = [f"# {row.title or 'Untitled session'}\n\n{row.model} · {row.started} · session {row.id}\n"]
    for message in messages:
        if message.role == "tool":
            failed = " (failed)" if message.is_error else ""
            parts.append(f"**{message.tool_name}**{failed}:\n\n{_fence(message.text)}\n")
            continue
        if message.text:
            parts.append(f"## {_SPEAKERS[message.role]}\n\n{message.text}\n")
        parts += [f"`{call.name}` {_fence(call.arguments)}\n" for call in message.tool_calls]
    return mask("\n".join(parts))


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"\n{fence}\n{text.rstrip()}\n{fence}"
