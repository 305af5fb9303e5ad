"""A depot's records as files: a small world whose conventions a newcomer gets wrong and then learns.

The paths of week counts, article prices and day logs are drawn from the seed, so that lessons from one
depot are useless in another. Without `pitfalls`, every record is at the path that a newcomer tries first.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet_lab.practice.ask import CompletedCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse

WEEKS, ARTICLES, DAYS = 40, 40, 60
_NOTES = 12


class RecordKind(msgspec.Struct, frozen=True):
    """One kind of record.

    `title` is its name in a question, `pattern` that of its path; `count` is the number of records.
    """

    name: str
    title: str
    pattern: str
    count: int

    def path(self, number: int) -> str:
        """Return the path of a record."""
        return self.pattern.format(n=number)


GUESSES: dict[str, str] = {
    "count": "counts/week-{n}.txt",
    "price": "prices/{n}.csv",
    "lost": "logs/day-{n}.log",
}
_TITLES = {
    "count": ("shelf count of week {n}", WEEKS),
    "price": ("price of article {n}", ARTICLES),
    "lost": ("parcels lost on day {n}", DAYS),
}
_PATTERNS: dict[str, tuple[str, ...]] = {
    "count": ("stock/{y}/w{{n:02d}}.{e}", "{e}/counts_{y}_{{n:02d}}.{e}", "{y}/shelves/kw{{n:03d}}.{e}"),
    "price": ("lists/{y}/price_{{n:03d}}.{e}", "{e}/a{{n:04d}}_{y}.{e}", "articles/{y}-{{n:02d}}/net.{e}"),
    "lost": ("journal/{y}/d{{n:03d}}.{e}", "{y}/{e}/day_{{n:02d}}.{e}", "gates/{y}/{{n:03d}}/losses.{e}"),
}
_ENDINGS = {"count": ("cnt", "tally", "dat"), "price": ("tsv", "net", "eur"), "lost": ("jnl", "rec", "trk")}


def draw_kinds(seed: int, *, pitfalls: bool = True) -> tuple[RecordKind, ...]:
    """Return the kinds of records with their paths in the depot of this seed."""
    rng = random.Random(f"depot {seed}")
    record_kinds: list[RecordKind] = []
    for name, (title, count) in _TITLES.items():
        pattern = rng.choice(_PATTERNS[name]).format(y=rng.randint(2019, 2026), e=rng.choice(_ENDINGS[name]))
        record_kinds.append(RecordKind(name, title, pattern if pitfalls else GUESSES[name], count))
    return tuple(record_kinds)


def make_depot(folder: Path, seed: int, *, pitfalls: bool = True) -> None:
    """Write the depot of this seed into `folder`."""
    rng = random.Random(f"records {seed}")
    for kind in draw_kinds(seed, pitfalls=pitfalls):
        for number in range(1, kind.count + 1):
            path = folder / kind.path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_record(kind, number, rng), "utf-8")
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    for number in range(1, _NOTES + 1):
        (notes / f"note{number}.md").write_text(
            f"# Note {number}\n\nThe {number}. gate was painted.\n", "utf-8"
        )


def _record(kind: RecordKind, number: int, rng: random.Random) -> str:
    title = kind.title.format(n=number)
    if kind.name == "lost":
        lines = [
            f"{hour:02d}:10 parcel {rng.randint(1000, 9999)} {rng.choice(('SENT', 'LOST'))}"
            for hour in range(6)
        ]
        return "\n".join([f"journal: {title}", *lines]) + "\n"
    return f"record: {title}\nvalue: {rng.randint(10, 990)}\n"


def build_question(numbers: dict[str, int], notes: tuple[int, ...] = ()) -> str:
    """Return a message that asks for these records and notes, in the form that the practice model reads."""
    items = [_TITLES[name][0].format(n=number) for name, number in numbers.items()]
    items += [f"note {number}" for number in notes]
    return f"Depot: tell me the {'; the '.join(items)}."


MATCH = re.compile(r"^Depot:", re.M)
_ASKED = re.compile(r"(shelf count of week|price of article|parcels lost on day|note) (\d+)")
_KINDS = {"shelf count of week": "count", "price of article": "price", "parcels lost on day": "lost"}
# Each earlier call makes it a little more likely that a learned path is overlooked.
_DISTRACTION = 0.02


def proceed(request: PracticeRequest, start: int) -> ScriptedReply:
    """Choose the reply to the questions in message `start`."""
    calls = [call for call in request.completed_calls if call.index > start]
    answers: list[str] = []
    for title, number in _ASKED.findall(request.messages[start].text):
        step = (
            _read_note(request, calls, number)
            if title == "note"
            else _look_up_record(request, start, title, int(number))
        )
        if isinstance(step, ScriptedReply):
            return step
        answers.append(f"{title} {number}: {step}")
    return ScriptedReply("; ".join(answers) + "." if answers else "Nothing was asked.")


def _read_note(request: PracticeRequest, calls: Sequence[CompletedCall], number: str) -> ScriptedReply | str:
    path = f"notes/note{number}.md"
    is_read = any(call.arguments.get("path") == path for call in calls)
    return "read" if is_read else ToolUse(request).use("read_file", path=path)


def _look_up_record(request: PracticeRequest, start: int, title: str, number: int) -> ScriptedReply | str:
    """Return the next call for one record, or its value."""
    calls = [call for call in request.completed_calls if call.index > start]
    line = re.compile(rf": {title} {number}$", re.M)
    record_call = next(
        (call for call in calls if call.name != "search_files" and line.search(call.result)), None
    )
    if record_call is not None:
        return _value(record_call)
    kind, pattern = _KINDS[title], f"{title} {number}$"
    tried = {_path_of(call) for call in calls}
    guess = _learned_path(request, start, title, number) or GUESSES[kind].format(n=number)
    if guess not in tried:
        return _open_record(request, kind, guess)
    search_call = next((call for call in calls if call.arguments.get("pattern") == pattern), None)
    if search_call is None:
        return ToolUse(request).use("search_files", "It is not there. I search for it.", pattern=pattern)
    path = next(
        (row for row in search_call.result.splitlines() if row and row[0] != "[" and "|" not in row), ""
    )
    return _open_record(request, kind, path) if path and path not in tried else "not found"


def _open_record(request: PracticeRequest, kind: str, path: str) -> ScriptedReply:
    if kind == "lost":
        return ToolUse(request).shell(f"grep -e journal -e LOST {path}")
    return ToolUse(request).use("read_file", path=path)


def _learned_path(request: PracticeRequest, start: int, title: str, number: int) -> str:
    """Return the path of a record as learned from an earlier call in the request.

    Returns an empty string if there was no such call or the model overlooks it.
    """
    pattern = re.compile(rf": {title} (\d+)$", re.M)
    earlier = [call for call in request.completed_calls if call.index < start]
    for call in reversed(request.completed_calls):
        match = pattern.search(call.result) if call.name != "search_files" else None
        match = match or _match_corrected_guess(request, call, _KINDS[title])
        path = _with_number(_path_of(call), int(match[1]), number) if match else ""
        if match and _path_of(call) == GUESSES[_KINDS[title]].format(n=int(match[1])):
            path = ""  # a newcomer tries this path anyway
        if path and (call.index > start or not _is_overlooked(title, number, len(earlier))):
            return path
    return ""


def _match_corrected_guess(request: PracticeRequest, call: CompletedCall, kind: str) -> re.Match[str] | None:
    """Return the match of the number in a newcomer's guess, if a past example says this call replaced it."""
    guess = re.escape(GUESSES[kind]).replace(re.escape("{n}"), r"(\d+)")
    texts = [
        message.text
        for message in request.messages[call.index : call.index + 2]
        if message.role == "assistant"
    ]
    return next((re.search(guess, text) for text in texts if " had failed (" in text), None)


def _is_overlooked(title: str, number: int, others: int) -> bool:
    draw = zlib.crc32(f"{title} {number} among {others}".encode()) / 0x1_0000_0000
    return draw >= 1 / (1 + _DISTRACTION * others)


def _with_number(path: str, old_number: int, number: int) -> str:
    """Replace a number in a path, keeping its width. Returns "" if the path lacks the old number."""
    matches = [match for match in re.finditer(r"\d+", path) if int(match[0]) == old_number]
    if not matches:
        return ""
    last = matches[-1]
    return f"{path[: last.start()]}{number:0{len(last[0])}d}{path[last.end() :]}"


def _path_of(call: CompletedCall) -> str:
    if call.command.startswith("grep "):
        return call.command.split()[-1]
    return str(call.arguments.get("path", ""))


def _value(record_call: CompletedCall) -> str:
    match = re.search(r"value: (\d+)", record_call.result)
    return match[1] if match else str(record_call.result.count("LOST"))
