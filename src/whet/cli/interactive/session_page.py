"""A conversation as one self-contained HTML page: no script, no other file, no address.

Secrets are masked and all foreign text is escaped. Of Markdown, only the elements that
`serve/board/prose.py` recognises become HTML, and links do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import apsw
import msgspec

from whet.cli.interactive.learning_commands import typed_text
from whet.contract.messages import ImagePart, Message, ToolCall
from whet.contract.texts import NOT_JSON, unwrap_pastes
from whet.log import mask
from whet.serve.board.prose import ProseBlock, TextRun, split_blocks
from whet.store import sessions
from whet.store.export import as_jsonl, as_markdown, iter_messages
from whet.terminal.wording import clip, printable, subject

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --line: #8886; --sunk: #8881; --blue: light-dark(#2058c0, #8fb0ff) }}
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem; line-height: 1.3; margin: 0; overflow-wrap: anywhere }} .about {{ opacity: .75 }}
h2 {{ font-size: .95rem; margin: 1.8rem 0 .3rem }} h3 {{ font-size: 1.05rem; margin: 1rem 0 .3rem }}
p, ul, pre, blockquote, table {{ margin: .5rem 0 }} p, li, td, summary {{ overflow-wrap: anywhere }}
p {{ white-space: pre-wrap }} code, pre {{ font: 14px/1.45 ui-monospace, monospace }}
code {{ background: var(--sunk); border-radius: 4px; padding: .1em .3em }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
pre.code {{ background: var(--sunk); border-radius: 8px; padding: .7rem .9rem }}
.user {{ border-left: 4px solid var(--blue); padding-left: .9rem }} .user p {{ margin: 0 }}
blockquote {{ border-left: 3px solid var(--line); padding-left: .8rem; margin-left: 0 }}
table {{ border-collapse: collapse }} td {{ border: 1px solid var(--line); padding: .25rem .6rem }}
tr:first-child td {{ font-weight: 600 }} img {{ max-width: 100%; border-radius: 6px }}
details {{ margin: .4rem 0; border: 1px solid var(--line); border-radius: 8px; padding: .35rem .8rem }}
summary {{ cursor: pointer }} summary b {{ margin-right: .4rem }} .name {{ opacity: .75; margin-top: .6rem }}
.failed summary {{ color: light-dark(#a8160c, #ff9d94) }}
</style></head><body><h1>{title}</h1><p class="about">{about}</p>
{body}
</body></html>
"""
_ELEMENTS = {"heading": "h3", "quote": "blockquote", "text": "p"}


def as_html(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    """Yield the conversation as a page, with each call folded. Raises NotFound."""
    row, transcript = sessions.get(connection, session_id), list(iter_messages(connection, session_id))
    results = {message.tool_call_id: message for message in transcript if message.role == "tool"}
    parts: list[str] = []
    for message in transcript:
        if message.role == "user":
            parts.append(f'<h2>You</h2><div class="user">{"".join(_user_parts(message))}</div>')
        elif message.role == "assistant":
            parts.append(f"<h2>Whet</h2>{_prose(message.text)}" if message.text else "")
            parts += [_call(call, results.get(call.id)) for call in message.tool_calls]
    details = f"{row.model} · {row.started[:16].replace('T', ' ')} UTC · session {row.id}"
    body = "\n".join(part for part in parts if part)
    yield _PAGE.format(title=_safe(row.title or "Untitled session"), about=_safe(details), body=body)


def _lines(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    return (line + "\n" for line in as_jsonl(connection, session_id))


FORMATS: dict[str, Callable[[apsw.Connection, str], Iterator[str]]] = {
    "md": as_markdown,
    "html": as_html,
    "jsonl": _lines,
}
"""The export formats of a session."""


def _safe(text: str) -> str:
    return escape(mask(printable(text)))


def _user_parts(message: Message) -> Iterator[str]:
    text = typed_text(message.text)
    yield f"<p>{_safe(unwrap_pastes(text))}</p>"
    if attached := message.text[len(text) :].strip():
        yield f"<details><summary>Sent with it</summary><pre>{_safe(attached)}</pre></details>"
    for part in message.content if not isinstance(message.content, str) else ():
        if isinstance(part, ImagePart):
            source = escape(f"data:{part.media_type};base64,{part.data_base64}")
            yield f'<p><img alt="An image that was sent" src="{source}"></p>'


def _call(call: ToolCall, result: Message | None) -> str:
    is_failed = result is not None and result.is_error
    head = f"{'✗' if is_failed else '✓' if result is not None else '…'} <b>{_safe(call.name)}</b>"
    parts = [
        f'<div class="name">{_safe(name)}</div><pre>{_safe(text)}</pre>'
        for name, text in _argument_texts(call)
    ]
    if result is not None:
        parts.append(f'<div class="name">result</div><pre>{_safe(result.text)}</pre>')
    kind = ' class="failed"' if is_failed else ""
    subject_text = _safe(clip(subject(call.arguments), 120))
    return f"<details{kind}><summary>{head} {subject_text}</summary>{''.join(parts)}</details>"


def _argument_texts(call: ToolCall) -> list[tuple[str, str]]:
    """Return a call's arguments by name, each as text for a person."""
    try:
        values: Any = msgspec.json.decode(call.arguments or "{}")
    except NOT_JSON:
        return [("arguments", call.arguments)]
    if not isinstance(values, Mapping):
        return [("arguments", call.arguments)]
    arguments: dict[str, object] = dict(values)  # pyright: ignore[reportUnknownArgumentType] JSON from a model
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in arguments.items()
    ]


def _prose(text: str) -> str:
    parts: list[str] = []
    items: list[str] = []
    for block in [*split_blocks(text), ProseBlock("rule")]:
        if block.kind == "item":
            items.append(f"<li>{_runs(block.runs)}</li>")
            continue
        if items:
            parts.append(f"<ul>{''.join(items)}</ul>")
            items = []
        parts.append(_block(block))
    return "".join(parts[:-1])


def _block(block: ProseBlock) -> str:
    if block.kind == "code":
        return f'<pre class="code">{_safe(block.text)}</pre>'
    if block.kind == "rule":
        return "<hr>"
    if block.kind == "table":
        rows = ("".join(f"<td>{_runs(cell)}</td>" for cell in row) for row in block.rows)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    return f"<{_ELEMENTS[block.kind]}>{_runs(block.runs)}</{_ELEMENTS[block.kind]}>"


def _runs(runs: Sequence[TextRun]) -> str:
    return "".join(
        f"<{run.kind}>{_safe(run.text)}</{run.kind}>" if run.kind else _safe(run.text) for run in runs
    )
