"""The one message that replaces compacted messages: its frame, its parts, and reading it back.

Code writes the frame, the latest request, the trail and the list of parts; only sections 2 to 13 come from
a model. Everything is text in a user message, so it is stored with the transcript. This module asks no
model and chooses no rows.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from whet.context import artifacts
from whet.context import rows as chat
from whet.contract.context_engine import ChatRow, ChatRows
from whet.contract.tools import clip, tags_of
from whet.log import mask

OPEN = "[SUMMARY OF EARLIER MESSAGES"
CLOSE = "[END OF THE SUMMARY]"
ACK = "(I have read the summary. The conversation goes on below.)"
BRIDGE = "(The conversation goes on; nothing is asked here.)"
_FRAME = (
    "This is background, not a request: don't answer it and don't start anything because of it. The latest"
    " message of the person wins over all of it. What it says was done is done. Your tools stay active: go"
    " on calling them."
)
_RECALL = (
    " Whatever is missing here is not lost: recall(query) finds it, recall(ref) reads messages by number."
)
_ASK_TITLE, _PARTS_TITLE, _LIST_TITLE = "## 1. Latest request", "## Parts", "## To-do list, as it stands"
_HEADER = re.compile(re.escape(OPEN) + r"(?: #(\d+)(?:-(\d+))?)?, reference only\]")
_PLACE = re.compile(r"\[#(\d+)\]")
_ITEM = re.compile(r"^\[[ >x-]\] ", re.MULTILINE)
_HEADING = re.compile(r"^## \d+\. .*$", re.MULTILINE)
_NUMBER = re.compile(r"## (\d+)\. ")
_LASTING = frozenset({2, 3, 4, 8, 13})  # goal, constraints, completed actions, decisions, critical values
_SHORT_ASK = 40
_PART_CHARS = 100


class Summary(msgspec.Struct):
    """A summary message in its parts.

    `first`, `last`: the numbers of the messages it replaces. `ask`: the latest request, as lines. `body`:
    sections 2 to 13. `todo`: the to-do tool's last list. `parts`: one line per compaction, oldest first.
    """

    first: int
    last: int
    ask: str = ""
    body: str = ""
    todo: str = ""
    trail: list[artifacts.TrailEntry] = []
    parts: list[str] = []


def is_synthetic(row: ChatRow) -> bool:
    """Return whether an earlier compaction made the row: a summary, or a filler line that keeps roles
    alternating."""
    return is_summary(row) or ("_seq" not in row and row.get("content") in (ACK, BRIDGE))


def is_summary(row: ChatRow) -> bool:
    """Return whether a row is a summary. A stored message never is, whatever its text."""
    return row.get("role") == "user" and "_seq" not in row and chat.text_of(row).startswith(OPEN)


def parse(row: ChatRow) -> Summary:
    """Read a summary message back into its parts."""
    text = chat.text_of(row)
    match = _HEADER.match(text)
    first = int(match[1] or 0) if match else 0
    last = int(match[2] or first) if match else 0
    text, _, _ = text.partition(CLOSE)
    text, _, parts = text.partition(f"\n{_PARTS_TITLE}\n")
    text, _, trail = text.partition(f"\n{artifacts.TITLE}\n")
    text, _, todo = text.partition(f"\n{_LIST_TITLE}\n")
    _, _, text = text.partition(f"\n{_ASK_TITLE}\n")
    heading = _HEADING.search(text)
    ask, body = (text[: heading.start()], text[heading.start() :]) if heading else (text, "")
    parts_lines = parts.strip().splitlines()
    return Summary(first, last, ask.strip(), body.strip(), todo.strip(), artifacts.parse(trail), parts_lines)


def write(summary: Summary, *, trail_tokens: int, can_recall: bool) -> ChatRow:
    """Return the summary as a message. Secrets in any part are masked once more here."""
    reference = f" {chat.ref(summary.first, summary.last)}" if summary.first else ""
    blocks = [f"{OPEN}{reference}, reference only]\n{_FRAME}{_RECALL if can_recall else ''}"]
    blocks.append(f"{_ASK_TITLE}\n{summary.ask or '(none)'}")
    if summary.body:
        blocks.append(summary.body)
    if summary.todo:
        blocks.append(f"{_LIST_TITLE}\n{summary.todo}")
    trail = artifacts.render(summary.trail, trail_tokens)
    if trail:
        blocks.append(trail)
    if summary.parts:
        blocks.append("\n".join((_PARTS_TITLE, *summary.parts)))
    return {"role": "user", "content": mask("\n\n".join((*blocks, CLOSE)))}


def clean_body(text: str) -> str:
    """Return a model's sections 2 to 13, without a section 1 of its own, our frame, or text before them."""
    for fixed in (OPEN, CLOSE, artifacts.TITLE, _PARTS_TITLE, _LIST_TITLE):
        text = text.replace(fixed, "")
    pieces = sections(text)
    if len(pieces) > 1:
        pieces = [piece for piece in pieces[1:] if not re.match(r"## 1\. ", piece)]
    body = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
    return mask(body if body.startswith("## ") else f"## 2. Goal\n{body}")


def restore_parts(body: str, previous: str) -> str:
    """Return a model's sections plus the lasting ones of the earlier summary that it left out."""
    pieces = {int(match[1]): piece for piece in sections(body) if (match := _NUMBER.match(piece))}
    former = {int(match[1]): piece for piece in sections(previous) if (match := _NUMBER.match(piece))}
    missing = [number for number in former if number in _LASTING and number not in pieces]
    if not missing:
        return body
    pieces |= {number: former[number] for number in missing}
    return "\n\n".join(pieces[number].strip() for number in sorted(pieces))


def sections(text: str) -> list[str]:
    """Split a text before each numbered heading. The first piece is the text before all of them."""
    starts = [match.start() for match in _HEADING.finditer(text)]
    edges = [0, *starts, len(text)]
    return [text[begin:end] for begin, end in pairwise(edges)]


def fit_body(body: str, budget_tokens: int) -> str:
    """Shorten sections until they fit. The longest one loses lines first; completed actions lose the oldest
    lines."""
    pieces = [piece.rstrip().split("\n") for piece in sections(body) if piece.strip()]
    sizes = [[chat.text_tokens(line) + 1 for line in piece] for piece in pieces]
    total = sum(map(sum, sizes))
    while total > budget_tokens:
        longest = max(range(len(pieces)), key=lambda index: (len(pieces[index]) > 2, sum(sizes[index])))
        if len(pieces[longest]) <= 2:
            break
        at = 1 if pieces[longest][0].startswith("## 4.") else len(pieces[longest]) - 1
        total -= sizes[longest].pop(at)
        pieces[longest].pop(at)
    text = "\n\n".join("\n".join(piece) for piece in pieces)
    tokens = chat.text_tokens(text)
    return clip(text, len(text) * budget_tokens // tokens - 40) if tokens > budget_tokens else text


def find_latest_request(rows: ChatRows, previous: Summary | None, cap_chars: int) -> str:
    """Return the newest request of the person, word for word, and if it is short the request that it
    continues.

    `rows`: the whole list, without earlier summaries.
    """
    asks = [(chat.seq_of(row), chat.user_text(row)) for row in rows if row.get("role") == "user"]
    asks = [(seq, text) for seq, text in asks if text]
    if not asks:
        return previous.ask if previous else ""
    lines = [_quote(*asks[-1], cap_chars)]
    if _is_answered(rows):
        lines[0] += "\nIt was answered; nothing is open from it."
    if len(asks[-1][1]) < _SHORT_ASK:
        governing = _governing(previous.ask) if previous else ""
        match = _PLACE.match(governing)
        first_seq = int(match[1]) if match else 0
        newer = [ask for ask in asks[:-1] if len(ask[1]) >= _SHORT_ASK and ask[0] >= first_seq]
        if newer:
            lines.append(f"It goes on with: {_quote(*newer[-1], cap_chars)}")
        elif governing:
            lines.append(f"It goes on with: {governing}")
    return "\n".join(lines)


def find_open_list(middle: ChatRows, tail: ChatRows, previous: Summary | None, cap_chars: int) -> str:
    """Return the to-do list as its tool last wrote it.

    Returns an empty string if the tail still shows it or there is no list.
    """
    if _find_written_list(tail) is not None:
        return ""
    newest = _find_written_list(middle)
    return (newest if newest is not None else previous.todo if previous else "")[:cap_chars]


def _keeps_tasks(row: ChatRow) -> bool:
    return any("tasks" in tags_of(str(row.get(key))) for key in ("tool_name", "name"))


def _find_written_list(rows: ChatRows) -> str | None:
    """Return the newest list, an empty string if it was empty, or None if no list was written."""
    for row in reversed(rows):
        if row.get("role") == "tool" and _keeps_tasks(row):
            text = chat.text_of(row).strip()
            if _ITEM.search(text) or text == "The list is empty.":
                return mask(text) if _ITEM.search(text) else ""
    return None


def write_part_line(rows: ChatRows, day: str) -> str:
    """Return the line of one compaction: its messages, the day, and the topic."""
    span = chat.ref(*chat.span_of(rows))
    ask = next((chat.user_text(row) for row in rows if row.get("role") == "user" and chat.user_text(row)), "")
    topic = chat.line(mask(ask), _PART_CHARS) or "work on the request"
    return f"- {span or 'earlier'} (until {day}): {topic}"


def _governing(ask: str) -> str:
    return ask.rpartition("It goes on with: ")[2].replace("\nIt was answered; nothing is open from it.", "")


def _quote(seq: int, text: str, cap_chars: int) -> str:
    reference = f"[{chat.ref(seq)}] " if seq else ""
    text = mask(text)
    if len(text) <= cap_chars:
        return f'{reference}"{text}"'
    return f'{reference}"{text[:cap_chars]}..." (goes on for {len(text) - cap_chars:,} characters)'


def _is_answered(rows: ChatRows) -> bool:
    last = next((row for row in reversed(rows) if row.get("role") != "tool"), None)
    return last is not None and chat.is_reply(last)
