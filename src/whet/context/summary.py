"""The user message that replaces compacted messages: write it and parse it.

A model writes only sections 2 to 13; code writes the frame, the latest request, the trail and the list of
parts. All of it is the text of one message, so it is stored with the transcript.
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
_REFERENCE = re.compile(r"\[#(\d+)\]")
_ITEM = re.compile(r"^\[[ >x-]\] ", re.MULTILINE)
_HEADING = re.compile(r"^## \d+\. .*$", re.MULTILINE)
_NUMBER = re.compile(r"## (\d+)\. ")
_LASTING = frozenset({2, 3, 4, 8, 13})  # goal, constraints, completed actions, decisions, critical values
_SHORT_ASK = 40
_PART_CHARS = 100


class Summary(msgspec.Struct):
    """The parts of a summary message.

    `first` and `last` are the numbers of the messages that it replaces, `ask` is the latest request, `body`
    sections 2 to 13, `todo` the last to-do list, and `parts` one line per compaction, oldest first.
    """

    first: int
    last: int
    ask: str = ""
    body: str = ""
    todo: str = ""
    trail: list[artifacts.TrailEntry] = []
    parts: list[str] = []


def is_synthetic(row: ChatRow) -> bool:
    """Return whether a row was written by an earlier compaction: a summary, or a filler row between two of
    the same role."""
    return is_summary(row) or ("_seq" not in row and row.get("content") in (ACK, BRIDGE))


def is_summary(row: ChatRow) -> bool:
    """Return whether a row is a summary. A stored message is none, whatever its text."""
    return row.get("role") == "user" and "_seq" not in row and chat.text_of(row).startswith(OPEN)


def parse(row: ChatRow) -> Summary:
    """Return the parts of a summary message."""
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
    """Return the summary as a message, with secrets masked in all parts."""
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
    """Return a model's sections 2 to 13, without text before them, a section 1 or our own headings."""
    for heading in (OPEN, CLOSE, artifacts.TITLE, _PARTS_TITLE, _LIST_TITLE):
        text = text.replace(heading, "")
    sections = split_sections(text)
    if len(sections) > 1:
        sections = [section for section in sections[1:] if not re.match(r"## 1\. ", section)]
    body = "\n\n".join(section.strip() for section in sections if section.strip())
    return mask(body if body.startswith("## ") else f"## 2. Goal\n{body}")


def restore_parts(body: str, previous: str) -> str:
    """Return a model's sections plus the lasting ones of the earlier summary that it left out."""
    sections, previous_sections = _number_sections(body), _number_sections(previous)
    missing = (previous_sections.keys() & _LASTING) - sections.keys()
    if not missing:
        return body
    sections |= {number: previous_sections[number] for number in missing}
    return "\n\n".join(sections[number].strip() for number in sorted(sections))


def _number_sections(text: str) -> dict[int, str]:
    return {int(match[1]): section for section in split_sections(text) if (match := _NUMBER.match(section))}


def split_sections(text: str) -> list[str]:
    """Split a text before each numbered heading. The first piece is the text before all of them."""
    starts = [match.start() for match in _HEADING.finditer(text)]
    edges = [0, *starts, len(text)]
    return [text[begin:end] for begin, end in pairwise(edges)]


def fit_body(body: str, budget_tokens: int) -> str:
    """Return the sections with lines removed until they fit, each time from the longest section: its last
    line, or the oldest one of completed actions."""
    sections = [section.rstrip().split("\n") for section in split_sections(body) if section.strip()]
    sizes = [[chat.text_tokens(line) + 1 for line in lines] for lines in sections]
    total = sum(map(sum, sizes))
    while total > budget_tokens:
        longest = max(range(len(sections)), key=lambda index: (len(sections[index]) > 2, sum(sizes[index])))
        lines = sections[longest]
        if len(lines) <= 2:
            break
        line_index = 1 if lines[0].startswith("## 4.") else len(lines) - 1
        total -= sizes[longest].pop(line_index)
        lines.pop(line_index)
    text = "\n\n".join("\n".join(lines) for lines in sections)
    tokens = chat.text_tokens(text)
    return clip(text, len(text) * budget_tokens // tokens - 40) if tokens > budget_tokens else text


def find_latest_request(rows: ChatRows, previous: Summary | None, cap_chars: int) -> str:
    """Return the person's latest request, word for word. If it is short, add the request that it continues.

    `rows` is the whole list, without earlier summaries.
    """
    asks = [(chat.seq_of(row), chat.user_text(row)) for row in rows if row.get("role") == "user"]
    asks = [(seq, text) for seq, text in asks if text]
    if not asks:
        return previous.ask if previous else ""
    lines = [_quote(*asks[-1], cap_chars)]
    if _is_answered(rows):
        lines[0] += "\nIt was answered; nothing is open from it."
    if len(asks[-1][1]) < _SHORT_ASK:
        continued = _read_continued(previous.ask) if previous else ""
        match = _REFERENCE.match(continued)
        first_seq = int(match[1]) if match else 0
        newer = [ask for ask in asks[:-1] if len(ask[1]) >= _SHORT_ASK and ask[0] >= first_seq]
        if newer:
            continued = _quote(*newer[-1], cap_chars)
        if continued:
            lines.append(f"It goes on with: {continued}")
    return "\n".join(lines)


def find_open_list(middle: ChatRows, tail: ChatRows, previous: Summary | None, cap_chars: int) -> str:
    """Return the to-do list as its tool last wrote it, or an empty string if there is none or the tail shows
    it."""
    if _find_written_list(tail) is not None:
        return ""
    newest = _find_written_list(middle)
    if newest is None:
        newest = previous.todo if previous else ""
    return newest[:cap_chars]


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
    """Return the line about one compaction: its messages, the day, and the topic."""
    span = chat.ref(*chat.span_of(rows))
    ask = next((chat.user_text(row) for row in rows if row.get("role") == "user" and chat.user_text(row)), "")
    topic = chat.line(mask(ask), _PART_CHARS) or "work on the request"
    return f"- {span or 'earlier'} (until {day}): {topic}"


def _read_continued(ask: str) -> str:
    """Return the request that an earlier summary's latest request continues, or that request itself."""
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
