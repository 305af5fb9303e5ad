"""The `recall` tool: bring back messages that a conversation no longer shows, by words, by number, or from
the trail.

All messages of a session stay in the store; summaries refer to them as #12 or #12-40. Reads only the
calling session. Which messages are left out is the context engine's choice.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import apsw

from whet.contract.errors import BadInput
from whet.contract.messages import ImagePart, Message
from whet.contract.texts import short
from whet.contract.tools import ToolOutput
from whet.store import query as words
from whet.store.database import StateDatabase
from whet.store.search import Hit, find, find_call, read_span
from whet.store.trail import Kind, read_trail

PAGE_CHARS = 8_000
_ROWS_MAX = 200
_FIRST_HIT_CHARS, _HIT_CHARS = 1_600, 500
_ARGUMENT_CHARS = 400
_RESERVE = 120
_REF = re.compile(r"\[?#?(\d+)(?:\+(\d+))?(?:\s*[-–]\s*#?(\d+))?\]?\Z")
_TRAIL = re.compile(r"(files|commands|urls)(?:\s+before\s+#?(\d+))?\Z")
_KINDS: dict[str, tuple[Kind, ...]] = {
    "files": ("changed", "read"),
    "commands": ("command",),
    "urls": ("url",),
}


class _Ref(NamedTuple):
    """Messages `first` to `last`, the first one from a character on."""

    first: int
    skip_chars: int
    last: int


async def bring_back(database: StateDatabase, session_id: str, ref: str) -> ToolOutput:
    """Return the messages that a reference names, or a page of the trail. Raises BadInput."""
    ref = ref.strip().lower()
    listing = _TRAIL.match(ref)
    if listing is None:
        reference = _parse_ref(ref)
        return await database.read(lambda db: _page(db, session_id, reference))
    kinds, before = _KINDS[listing[1]], int(listing[2] or 0)
    return await database.read(lambda db: _trail_page(db, session_id, listing[1], kinds, before))


async def find_words(database: StateDatabase, session_id: str, query: str, limit: int) -> ToolOutput:
    """Return the session's messages that match words. Raises BadInput."""
    if not words.parse_terms(query):
        raise BadInput("give query (words to find) or ref (such as #12-40)")
    count = min(max(limit, 1), 30)
    hits = await find(database, query, count * 3, session_id=session_id, asking=session_id)
    return await database.read(lambda db: _format_hits(db, session_id, query, hits, count))


def _parse_ref(text: str) -> _Ref:
    match = _REF.match(text)
    if match is None:
        raise BadInput(f"ref {text!r} is not a reference", hint="write it like #12, #12-40 or files")
    first = int(match[1])
    last = int(match[3] or first)
    if last < first:
        raise BadInput(f"ref {text!r} ends before it begins", hint="write the smaller number first")
    return _Ref(first, int(match[2] or 0), last)


def _page(connection: apsw.Connection, session_id: str, ref: _Ref) -> ToolOutput:
    """Format messages from a reference until the page is full, and add how to continue."""
    rows = read_span(connection, session_id, ref.first, ref.last, _ROWS_MAX)
    if not rows:
        return ToolOutput(f"There are no messages #{ref.first}-{ref.last} in this conversation.")
    lines: list[str] = []
    images: list[ImagePart] = []
    chars_left = PAGE_CHARS - _RESERVE
    go_on = ""
    for seq, message in rows:
        skip = ref.skip_chars if seq == ref.first else 0
        head, body = _parts(connection, session_id, seq, message)
        body = body[skip:]
        if len(head) + len(body) > chars_left and lines:
            go_on = f"#{seq}-{ref.last}"
            break
        room = max(chars_left - len(head), 200)
        lines.append(f"{head}{body[:room]}")
        chars_left -= len(lines[-1]) + 1
        if ref.first == ref.last and not isinstance(message.content, str):
            images += [part for part in message.content if isinstance(part, ImagePart)]
        if len(body) > room:
            go_on = f"#{seq}+{skip + room}-{ref.last}"
            break
    else:
        go_on = f"#{rows[-1][0] + 1}-{ref.last}" if len(rows) == _ROWS_MAX and rows[-1][0] < ref.last else ""
    if go_on:
        lines.append(f"[more: recall ref={go_on}]")
    return ToolOutput("\n".join(lines), images=tuple(images))


def _parts(connection: apsw.Connection, session_id: str, seq: int, message: Message) -> tuple[str, str]:
    """Return a message's heading, with the call that a tool result answers, and its text."""
    if message.role == "tool":
        call_row = find_call(connection, session_id, seq)
        call = (
            f" {short(call_row[1].arguments, _ARGUMENT_CHARS)} (called in #{call_row[0]})" if call_row else ""
        )
        failed = ", failed" if message.is_error else ""
        return f"[#{seq} result of {message.tool_name}{call}{failed}]\n", message.text
    calls = "".join(f"\n  calls {call.name} {call.arguments}" for call in message.tool_calls)
    return f"[#{seq} {message.role}] ", f"{message.text}{calls}"


def _format_hits(
    connection: apsw.Connection, session_id: str, query: str, hits: list[Hit], limit: int
) -> ToolOutput:
    """Format the hits; the best ones get most of the page. Earlier uses of this tool are skipped."""
    pieces = words.split_pieces(query)
    texts: list[str] = []
    chars_left = PAGE_CHARS - _RESERVE
    for hit in hits:
        rows = read_span(connection, session_id, hit.seq, hit.seq, 1)
        if not rows or _is_own(rows[0][1]) or chars_left < _HIT_CHARS:
            continue
        head, body = _parts(connection, session_id, hit.seq, rows[0][1])
        room = _FIRST_HIT_CHARS if len(texts) < 3 else _HIT_CHARS
        text = f"{head}{cut_around(body, pieces, room)}"[:chars_left]
        texts.append(text)
        chars_left -= len(text) + 1
        if len(texts) >= limit:
            break
    if not texts:
        return ToolOutput(f"Nothing found for {query!r} in this conversation. Try fewer or other words.")
    return ToolOutput("\n".join((*texts, "[to read one whole: recall ref=#number]")))


def _is_own(message: Message) -> bool:
    if message.role == "tool":
        return message.tool_name == "recall"
    return bool(message.tool_calls) and all(call.name == "recall" for call in message.tool_calls)


def cut_around(text: str, pieces: list[str], room: int) -> str:
    """Return the part of a text around the first match."""
    if len(text) <= room:
        return text
    spot = words.find_match(text, pieces)
    begin = min(max(spot[0] - room // 3, 0), len(text) - room) if spot else 0
    end = begin + room
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


def _trail_page(
    connection: apsw.Connection, session_id: str, name: str, kinds: tuple[Kind, ...], before: int
) -> ToolOutput:
    steps, next_seq = read_trail(connection, session_id, kinds, before, PAGE_CHARS // 40)
    lines: list[str] = []
    chars_left = PAGE_CHARS - _RESERVE
    for step in steps:
        code = "" if step.exit_code is None else f" → exit {step.exit_code}"
        text = f"- {step.item.kind} {short(step.item.value, _ARGUMENT_CHARS)}{code} [#{step.seq}]"
        if len(text) >= chars_left:
            # The message is shown again on the next page, unless it alone fills this one.
            next_seq = step.seq + (step.seq != steps[0].seq)
            break
        lines.append(text)
        chars_left -= len(text) + 1
    if not lines:
        return ToolOutput(f"No {name} in this conversation{' before that' if before else ''}.")
    if next_seq > 1:
        lines.append(f"[more: recall ref={name} before #{next_seq}]")
    return ToolOutput("\n".join(lines))
