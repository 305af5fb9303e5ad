"""A conversation as a file: Markdown or a page of its own for people, JSON lines for programs.

Secrets are masked. It takes what is given and does not know where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import msgspec

from whet.cli.wording import clip, subject
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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
pre {{ font: 14px/1.45 ui-monospace, monospace; margin: .5rem 0 }}
.said {{ white-space: pre-wrap; overflow-wrap: anywhere }}
.user {{ border-left: 4px solid #2f6fde; padding-left: .8rem }}
details {{ margin: .4rem 0; border: 1px solid #8886; border-radius: 6px; padding: .3rem .7rem }}
summary {{ cursor: pointer; overflow-wrap: anywhere }}
h2 {{ font-size: 1rem; margin: 1.4rem 0 .3rem }}
</style></head><body><h1>{title}</h1><p>{about}</p>
{body}
</body></html>
"""


def as_html(row: SessionRow, messages: Sequence[Message]) -> str:
    """Write the conversation as one page that needs nothing else: what was said, each call folded."""
    results = {message.tool_call_id: message for message in messages if message.role == "tool"}
    parts: list[str] = []
    for message in messages:
        if message.role == "tool":
            continue
        if message.text:
            said = escape(mask(message.text))
            parts.append(f"<h2>{_SPEAKERS[message.role]}</h2><div class='said {message.role}'>{said}</div>")
        for call in message.tool_calls:
            result = results.get(call.id)
            failed = " (failed)" if result is not None and result.is_error else ""
            head = escape(mask(f"{call.name}{failed}  {clip(subject(call.arguments), 120)}"))
            shown = escape(mask(f"{call.arguments}\n\n{result.text if result is not None else ''}".rstrip()))
            parts.append(f"<details><summary>{head}</summary><pre>{shown}</pre></details>")
    title = escape(mask(row.title or "Untitled session"))
    about = escape(mask(f"{row.model} · {row.started[:16].replace('T', ' ')} · session {row.id}"))
    return _PAGE.format(title=title, about=about, body="\n".join(parts))


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"\n{fence}\n{text.rstrip()}\n{fence}"
