"""Format events and numbers as plain lines of a known width, and make foreign text safe to print.

Text of a model, a tool or a page can't move the cursor, retitle the window or hide characters. The one-shot
uses this module, too, so it imports neither rich nor prompt_toolkit.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from whet.clock import local_minute
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
from whet.contract.texts import plural
from whet.late import late_pattern

_ESCAPES = late_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[@-Z\\-_])", re.DOTALL)
_STYLE = late_pattern(r"(\x1b\[[\d;:]*[mK])")
# Control characters, and those that reorder or hide text: bidi overrides, zero-width spaces, tags.
_CONTROLS = late_pattern(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u180e\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_ERROR_WORDS = late_pattern(
    r"error|fail|fatal|exception|not found|no such|denied|cannot|can't", re.IGNORECASE
)
_SHORT_CHARS = 100  # a shorter text has no run of blanks that would be marked
_STATUS = late_pattern(r"\[exit -?\d+[^\]]*\]")
_EXCEPTION = late_pattern(r"^[\w.]+(?:Error|Exception|Warning)\b.*\S")
_ABOUT_COLUMNS = 120
OWN_COMMAND = "!"
"""The tool name in events of a command that the person runs themselves."""


def printable(text: str) -> str:
    """Return `text` without escape sequences, control characters and characters that reorder or hide text.
    Tabs, newlines and the joiners and direction marks that scripts need stay."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


def printable_styled(text: str) -> str:
    """Return `text` as `printable` does, but keep its colours and attributes (SGR) and erasures of line
    ends."""
    if "\x1b" not in text:
        return printable(text)
    parts = _STYLE.split(text)
    return "".join(part if index % 2 else printable(part) for index, part in enumerate(parts))


def exact(text: str) -> str:
    """Return `text` with look-alikes marked, and with control and invisible characters escaped. Tabs and
    newlines stay."""
    if text.isascii() and text.isprintable() and len(text) < _SHORT_CHARS:
        return text
    from whet.visible import escape_characters  # noqa: PLC0415 - 10 ms of tables

    return escape_characters(text, keeps="\n\t")


def count_columns(text: str) -> int:
    """Count the terminal columns that one line of printable text occupies."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Return `text` as one line of at most `width` columns, with runs of whitespace folded and … if it was
    cut."""
    line = " ".join(printable(text[: width * 4]).split())
    return cut(line + "…" if len(text) > width * 4 else line, width)


def cut(line: str, width: int) -> str:
    """Return a line of printable text cut to `width` columns, with … if it was cut."""
    if count_columns(line) <= width:
        return line
    characters: list[str] = []
    room = width - 1
    for character in line:
        room -= _columns_of(character)
        if room < 0:
            break
        characters.append(character)
    return "".join(characters).rstrip() + "…" if width > 0 else ""


def cut_middle(line: str, width: int) -> str:
    """Return a line of printable text cut to `width` columns, with … in its middle if it was cut."""
    if count_columns(line) <= width:
        return line
    end = cut(line[::-1], width // 2 + 1)[::-1].removeprefix("…").lstrip()
    return cut(line, width - count_columns(end)) + end


def duration(seconds: float) -> str:
    """Format a duration: 0.2 s, 12 s, 2 m 05 s, 1 h 02 m."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    total_s = round(seconds)
    if total_s < 60:
        return f"{total_s} s"
    if total_s < 3600:
        return f"{total_s // 60} m {total_s % 60:02d} s"
    return f"{total_s // 3600} h {total_s % 3600 // 60:02d} m"


def count(number: int) -> str:
    """Format a count in at most five characters: 812, 3.4k, 120k, 1.5M."""
    if number < 1_000:
        return str(number)
    for unit, size in (("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        if number < size * 999.5:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    return f"{number:.1e}"


def call_line(name: str, subject: str, width: int, *, mark: str, tail: str) -> str:
    """Lay out a call in one line of at most `width` columns: mark, name, subject, tail."""
    head = f"{mark} {printable(name)}"
    room = width - count_columns(head) - count_columns(tail) - 4
    middle = clip(subject, room) if room >= 4 else ""
    return "  ".join(piece for piece in (head, middle, tail) if piece)


NOT_RUN, STOPPED = "cancelled", "interrupted"
"""The error kinds of calls that had not begun, and that were running, when their turn ended."""


def outcome(event: ToolFinished) -> str:
    """Describe the end of a call: its error, if any, changed lines and duration."""
    if event.error_kind == NOT_RUN:
        return "not run"
    tail = duration(event.duration_s)
    if event.edits:
        added, removed = sum(edit.added for edit in event.edits), sum(edit.removed for edit in event.edits)
        tail = f"+{added:,} −{removed:,}  {tail}"
    if event.ok:
        return tail
    problem = f"exit {event.exit_code}" if event.exit_code else event.error_kind.replace("_", " ")
    return f"{problem}  {tail}"


def failure(event: ToolFinished) -> str:
    """Return the most informative line of a failed call's output, or an empty string on success."""
    if event.ok or event.error_kind == NOT_RUN:
        return ""
    lines = [line.strip() for line in printable(event.preview).splitlines() if line.strip()]
    lines = [line for line in lines if not _STATUS.fullmatch(line)]
    if event.error_kind != "exit":
        return lines[0] if lines else ""
    for pattern in (_EXCEPTION, _ERROR_WORDS):
        for line in lines:
            if pattern.search(line):
                return line
    return lines[-1] if lines else ""


def command_output(result: str) -> str:
    """Return a command's output from its result, without the status lines at the end."""
    lines = result.split("\n")
    while lines and _STATUS.fullmatch(lines[-1]):
        del lines[-1]
    return "\n".join(lines)


def unanswered(subjects: Collection[str]) -> str:
    """Return a line about calls that were denied because there was no person to ask."""
    calls = plural(len(subjects), "call")
    names = clip(printable("; ".join(subjects)), 200)
    return f"{calls} denied, because nobody could answer: {names} (--yes allows what is not dangerous)"


def _compaction_line(event: Compaction) -> str:
    verb = "made smaller" if event.tokens_after < event.tokens_before else "rewritten"
    before, after = count(event.tokens_before), count(event.tokens_after)
    if before == after:  # the rounded numbers hide the difference
        before, after = f"{event.tokens_before:,}", f"{event.tokens_after:,}"
    messages = f"{event.messages_before} to {plural(event.messages_after, 'message')}"
    return f"context {verb} by {event.engine}: {before} to {after} tokens, {messages}"


def aside(event: Event) -> str:
    """Return a line about an event that is neither text nor a call, or an empty string."""
    match event:
        case Retry():
            return _retry_line(event)
        case StreamRestarted():
            return printable(f"the stream broke ({event.reason}); the answer starts over")
        case Compaction():
            return _compaction_line(event)
        case Notice():
            return printable(event.text)
        case ConfirmationAsked():
            return _confirmation_lines(event)
        case ApprovalDecided(verdict="allow", decided_by="service"):
            return printable(event.reason)
        case ReviewQueued():
            return f"learning from this turn ({', '.join(event.kinds)}); /learned shows what came of it"
        case ReviewFinished():
            return review_line(event)
        case _:
            return ""


def _retry_line(event: Retry) -> str:
    """Describe a retry. Returns an empty string for most retries of a long outage, for which the live area
    shows a countdown."""
    if event.left_s and event.attempt > 3 and event.attempt % 10:
        return ""
    wait = f" in {duration(event.wait_s)}" if event.wait_s else ""
    deadline = f"; gives up in {duration(event.left_s)}" if event.left_s and event.attempt > 1 else ""
    hint = f" ({event.hint})" if event.hint and event.attempt == 2 else ""
    return printable(f"retry {event.attempt}{wait}: {event.reason}{hint}{deadline}")


def review_line(finished: ReviewFinished) -> str:
    """Describe the result of a review in one line."""
    note = printable(" ".join(finished.note.split()))
    match finished.state:
        case "saved":
            return printable(finished.summary) + (f" ({note})" if note else "")
        case "nothing":
            text = printable(finished.summary) or "Self-improvement review: nothing to save"
            return text + (f" ({note})" if note else "")
        case "failed":
            return f"the review of {finished.session_id or 'a session'} failed: {note}"
        case "waiting":
            until = local_minute(finished.until)
            return f"the review of {finished.session_id} is tried again at {until}: {note}"


def _confirmation_lines(event: ConfirmationAsked) -> str:
    """Describe a pending confirmation request and, on a line of its own, where to decide it."""
    subject = clip(event.subject, _ABOUT_COLUMNS)
    statement = (
        f"{event.action} waits for a human's decision, {duration(event.expires_in_s)} at most: {subject}"
    )
    where = event.page_url or f"decide with: whet confirm approve {event.request_id}"
    return printable(f"{statement}\n{where}")


def receipt(receipt: TurnReceipt, width: int = 0) -> str:
    """Describe the effects of a turn in lines of at most `width` columns, broken between the parts."""
    first, *others = receipt.parts or ("?",)
    return _join_parts([f"did: {first}", *others], width)


def footer(end: TurnEnd, width: int = 0) -> str:
    """Summarise a turn: steps, tokens, cached share, cost if it is known, duration.

    If `width` is not 0, lines have at most `width` columns and are broken only between parts.
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
    return _join_parts(parts, width)


def _join_parts(parts: list[str], width: int) -> str:
    parts = [cut(printable(part), width) if width else printable(part) for part in parts]
    lines = parts[:1]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if width and count_columns(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def ending(end: TurnEnd) -> str:
    """Return the reason for the end of a turn, or an empty string if it ended with an answer."""
    match end.reason:
        case "answered":
            return ""
        case "budget":
            return "stopped: the budget of this turn is used up; say “go on” to continue"
        case "cancelled":
            return "cancelled"
        case _:
            return printable(end.error) or f"the turn {end.reason}"
