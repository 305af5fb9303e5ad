"""How events and numbers read as plain lines of a known width.

Used by the one-shot and by the terminal alike, so it imports neither rich nor prompt_toolkit. It also
makes foreign text safe to show: what a model, a tool or a page wrote can't move the cursor, retitle the
window or hide characters. It does not know where a line goes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from whet.contract.events import (
    ApprovalDecided,
    Compaction,
    ConfirmationAsked,
    Event,
    Notice,
    Retry,
    ReviewFinished,
    ReviewQueued,
    StreamRestarted,
    ToolFinished,
    TurnEnd,
)
from whet.contract.receipts import TurnReceipt
from whet.contract.texts import NOT_JSON, plural, subject_of

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[@-Z\\-_])", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TELLING = re.compile(r"error|fail|fatal|exception|not found|no such|denied|cannot|can't", re.IGNORECASE)
_STATUS = re.compile(r"\[exit -?\d+[^\]]*\]")
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Warning)\b.*\S")
_ABOUT_COLUMNS = 120
OWN_COMMAND = "!"
"""What stands for the tool where the person runs a command themselves."""


def printable(text: str) -> str:
    """Give `text` without escape sequences and control characters; tabs and newlines stay."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


def exact(text: str) -> str:
    """Give `text` with all that a terminal would hide or act on spelled out and look-alikes marked, as every
    other interface shows it; tabs and newlines stay."""
    from whet.visible import spelled  # noqa: PLC0415 - 10 ms of tables, for what is rarely shown

    return spelled(text, keeps="\n\t")


def columns(text: str) -> int:
    """Count the terminal columns that one line of printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Give `text` as one line of at most `width` columns, blanks folded, with … where it was cut."""
    line = " ".join(printable(text[: width * 4]).split())
    return cut(line + "…" if len(text) > width * 4 else line, width)


def cut(line: str, width: int) -> str:
    """Give a line of printable text cut to `width` columns, with … where it was cut."""
    if columns(line) <= width:
        return line
    kept: list[str] = []
    room = width - 1
    for character in line:
        room -= _columns_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def duration(seconds: float) -> str:
    """Write a duration: 0.2 s, 12 s, 2 m 05 s, 1 h 02 m."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"


def count(number: int) -> str:
    """Write a count in at most five characters: 812, 3.4k, 120k, 1.5M."""
    if number < 1_000:
        return str(number)
    for unit, size in (("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        if number < size * 999.5:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    return f"{number:.1e}"


def subject(arguments: str) -> str:
    """Say in one line what a call is about, from its JSON arguments; unreadable ones as they are."""
    try:
        parsed: Any = msgspec.json.decode(arguments or "{}")
    except NOT_JSON:
        return arguments
    if not isinstance(parsed, Mapping):
        return arguments
    values: dict[str, object] = dict(parsed)  # pyright: ignore[reportUnknownArgumentType]  JSON from a model
    return subject_of(values) or next((value for value in values.values() if isinstance(value, str)), "")


def call_line(name: str, about: str, width: int, *, mark: str, tail: str) -> str:
    """Lay out a call in one line of at most `width` columns: mark, name, what it is about, tail."""
    head = f"{mark} {printable(name)}"
    room = width - columns(head) - columns(tail) - 4
    middle = clip(about, room) if room >= 4 else ""
    return "  ".join(piece for piece in (head, middle, tail) if piece)


def outcome(event: ToolFinished) -> str:
    """Say how a call ended: what it changed, its duration, and what went wrong."""
    took = duration(event.duration_s)
    if event.edits:
        added, removed = (sum(getattr(e, name) for e in event.edits) for name in ("added", "removed"))
        took = f"+{added:,} −{removed:,}  {took}"
    if event.ok:
        return took
    what = f"exit {event.exit_code}" if event.exit_code else event.error_kind.replace("_", " ")
    return f"{what}  {took}"


def failure(event: ToolFinished) -> str:
    """Give the line of a failed call's output that tells most about the failure, "" on success."""
    if event.ok:
        return ""
    lines = [line.strip() for line in printable(event.preview).splitlines() if line.strip()]
    lines = [line for line in lines if not _STATUS.fullmatch(line)]
    if event.error_kind != "exit":
        return lines[0] if lines else ""
    telling = next((line for line in lines if _EXCEPTION.match(line)), "")
    telling = telling or next((line for line in lines if _TELLING.search(line)), "")
    return telling or (lines[-1] if lines else "")


def aside(event: Event) -> str:
    """Give the line for an event that is neither text nor a call, "" where there is nothing to say."""
    match event:
        case Retry():
            return _retrying(event)
        case StreamRestarted():
            return printable(f"the stream broke ({event.reason}); the answer starts over")
        case Compaction():
            return (
                f"context made smaller by {event.engine}: {count(event.tokens_before)} to "
                f"{count(event.tokens_after)} tokens, {event.messages_before} to "
                f"{plural(event.messages_after, 'message')}"
            )
        case Notice():
            return printable(event.text)
        case ConfirmationAsked():
            return _asked(event)
        case ApprovalDecided(verdict="allow", decided_by="service"):
            return printable(event.reason)
        case ReviewQueued():
            return f"review queued: {', '.join(event.kinds)}"
        case ReviewFinished():
            return review_line(event)
        case _:
            return ""


def _retrying(event: Retry) -> str:
    """Say why a call is tried again; of a long outage only now and then, its countdown runs elsewhere."""
    if event.left_s and event.attempt > 3 and event.attempt % 10:
        return ""
    wait = f" in {duration(event.wait_s)}" if event.wait_s else ""
    rest = f"; gives up in {duration(event.left_s)}" if event.left_s and event.attempt > 1 else ""
    hint = f" ({event.hint})" if event.hint and event.attempt == 2 else ""
    return printable(f"retry {event.attempt}{wait}: {event.reason}{hint}{rest}")


def review_line(finished: ReviewFinished) -> str:
    """Say in a line what came of a review."""
    note = printable(" ".join(finished.note.split()))
    match finished.state:
        case "saved":
            return printable(finished.summary) + (f" ({note})" if note else "")
        case "nothing":
            said = printable(finished.summary) or "Self-improvement review: nothing to save"
            return said + (f" ({note})" if note else "")
        case "failed":
            return f"the review of {finished.session_id or 'a session'} failed: {note}"
        case "waiting":
            return f"the review of {finished.session_id} is tried again at {finished.until[:16]}Z: {note}"


def _asked(event: ConfirmationAsked) -> str:
    """Say what waits, and below it, on a line of its own, where to decide."""
    about = clip(event.subject, _ABOUT_COLUMNS)
    what = f"{event.action} waits for a human's decision, {duration(event.expires_in_s)} at most: {about}"
    where = event.page_url or f"decide with: whet confirm approve {event.request_id}"
    return printable(f"{what}\n{where}")


def receipt(receipt: TurnReceipt, width: int = 0) -> str:
    """Say what a turn really did in lines of at most `width` columns, broken between the parts."""
    return _joined(["did: " + receipt.parts[0], *receipt.parts[1:]] if receipt.parts else ["did: ?"], width)


def footer(end: TurnEnd, width: int = 0) -> str:
    """Sum a turn up: steps, tokens, cached share, cost where it is known, duration.

    In lines of at most `width` columns where that is given, broken between the parts and never in one.
    """
    usage = end.usage
    parts = [plural(end.steps, "step"), f"{count(usage.total_tokens)} tokens"]
    if usage.cache_read_tokens:
        parts.append(f"{usage.cache_hit_ratio:.0%} cached")
    if usage.cost_usd:
        mark = "~" if usage.estimated_tokens else ""
        parts.append(
            f"{mark}${usage.cost_usd:.4f}" if usage.cost_usd < 0.1 else f"{mark}${usage.cost_usd:.2f}"
        )
    parts.append(duration(end.duration_s))
    return _joined(parts, width)


def _joined(parts: list[str], width: int) -> str:
    parts = [cut(printable(part), width) if width else printable(part) for part in parts]
    lines = parts[:1]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if width and columns(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def ending(end: TurnEnd) -> str:
    """Say why a turn ended where it was not with an answer, "" where it was."""
    match end.reason:
        case "answered":
            return ""
        case "budget":
            return "stopped: the budget of this turn is used up; say “go on” to continue"
        case "cancelled":
            return "cancelled"
        case _:
            return printable(end.error) or f"the turn {end.reason}"
