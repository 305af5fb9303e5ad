"""A stored conversation as text for a person: messages in full, tool calls in one line each.

It receives the messages from its caller, which also decides whether a pager shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.contract.messages import ImagePart, Message, ToolCall
from whet.contract.texts import plural, unwrap_pastes
from whet.store.sessions import SessionRow
from whet.terminal import output
from whet.terminal.output import style_text
from whet.terminal.wording import clip, count, printable, subject


def render(row: SessionRow, messages: Sequence[Message], *, full: bool = False) -> str:
    """Return the whole text. `full` shows arguments and results of tool calls unabridged."""
    return "\n".join([*_head(row), *_body(messages, full)])


def _head(row: SessionRow) -> Iterator[str]:
    yield style_text(printable(row.title) or "(untitled)", "bold")
    facts = [row.id, row.started[:16].replace("T", " "), row.model or row.provider, row.workspace]
    facts += [
        plural(row.turns, "turn"),
        f"{count(row.usage.total_tokens)} tokens",
        output.usage_cost(row.usage),
    ]
    if row.private:
        facts.append("private")
    yield output.wrap_text(" · ".join(printable(fact) for fact in facts if fact))


def _body(messages: Sequence[Message], full: bool) -> Iterator[str]:
    results = {message.tool_call_id: message for message in messages if message.role == "tool"}
    for message in messages:
        if message.role == "user":
            yield ""
            yield style_text("you", "bold")
            yield from _message_lines(message)
        elif message.role == "assistant":
            yield ""
            yield style_text("whet", "bold")
            yield from _message_lines(message)
            for call in message.tool_calls:
                yield from _call(call, results.get(call.id), full)
    if not messages:
        yield ""
        yield "Nothing was said yet."


def _message_lines(message: Message) -> Iterator[str]:
    shown = unwrap_pastes(message.text) if message.role == "user" else message.text
    if text := printable(shown).strip():
        yield text
    if not isinstance(message.content, str):
        for part in message.content:
            if isinstance(part, ImagePart):
                yield f"[image {part.media_type}, {output.size(len(part.data_base64) * 3 // 4)}]"


def _call(call: ToolCall, result: Message | None, full: bool) -> Iterator[str]:
    mark = (
        style_text("…", "dim")
        if result is None
        else style_text("✗", "red")
        if result.is_error
        else style_text("✓", "green")
    )
    name = printable(call.name)
    room = output.terminal_width() - len(name) - 6
    yield f"  {mark} {name}  {clip(call.arguments if full else subject(call.arguments), max(room, 10))}"
    if full:
        yield from (f"    {line}" for line in printable(call.arguments).splitlines())
    if result is None:
        return
    text = printable(result.text).strip()
    if full:
        yield from (style_text(f"    | {line}", "dim") for line in text.splitlines())
    elif text:
        lines = text.splitlines()
        remaining = len(lines) - 1
        more = f" … {remaining} more line{'' if remaining == 1 else 's'}" if remaining else ""
        first = clip(lines[0], max(output.terminal_width() - 6 - len(more), 10))
        yield style_text(f"    | {first}{more}", "dim")
