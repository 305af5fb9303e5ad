"""How the stand-in answers questions on a depot's records: by what its request shows, else by a guess.

Where a call in the request has read a record of the same kind, it takes that path with the new number; among
many other calls it overlooks that now and then. Without one it looks where a newcomer would, fails, searches
for the record, and goes on from there. A scripted stand-in, not a language model.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from whet.practice.ask import DoneCall, PracticeRequest
from whet.practice.depot import GUESSES
from whet.practice.hands import Hands
from whet.practice.script import ScriptedReply

MATCH = re.compile(r"^Depot:", re.M)
_ASKED = re.compile(r"(shelf count of week|price of article|parcels lost on day|note) (\d+)")
_KINDS = {"shelf count of week": "count", "price of article": "price", "parcels lost on day": "lost"}
_DISTRACTION = 0.02


def proceed(ask: PracticeRequest, start: int) -> ScriptedReply:
    """Take the next step of the questions in message `start`."""
    done = [one for one in ask.done if one.at > start]
    answers: list[str] = []
    for title, number in _ASKED.findall(ask.heard[start].text):
        step = _note(ask, done, number) if title == "note" else _record(ask, start, title, int(number))
        if isinstance(step, ScriptedReply):
            return step
        answers.append(f"{title} {number}: {step}")
    return ScriptedReply("; ".join(answers) + "." if answers else "Nothing was asked.")


def _note(ask: PracticeRequest, done: Sequence[DoneCall], number: str) -> ScriptedReply | str:
    path = f"notes/note{number}.md"
    is_read = any(one.arguments.get("path") == path for one in done)
    return "read" if is_read else Hands(ask).use("read_file", path=path)


def _record(ask: PracticeRequest, start: int, title: str, number: int) -> ScriptedReply | str:
    """Give the next call for one record, or what it says."""
    done = [one for one in ask.done if one.at > start]
    line = re.compile(rf": {title} {number}$", re.M)
    read = next((one for one in done if one.name != "search_files" and line.search(one.result)), None)
    if read is not None:
        return _value(read)
    kind, pattern = _KINDS[title], f"{title} {number}$"
    tried = {_path_of(one) for one in done}
    guess = _known(ask, start, title, number) or GUESSES[kind].format(n=number)
    if guess not in tried:
        return _open(ask, kind, guess)
    look = next((one for one in done if one.arguments.get("pattern") == pattern), None)
    if look is None:
        return Hands(ask).use("search_files", "It is not there. I search for it.", pattern=pattern)
    found = next((row for row in look.result.splitlines() if row and row[0] != "[" and "|" not in row), "")
    return _open(ask, kind, found) if found and found not in tried else "not found"


def _open(ask: PracticeRequest, kind: str, path: str) -> ScriptedReply:
    if kind == "lost":
        return Hands(ask).shell(f"grep -e journal -e LOST {path}")
    return Hands(ask).use("read_file", path=path)


def _known(ask: PracticeRequest, start: int, title: str, number: int) -> str:
    """Give the path that a call in the request teaches; empty where there is none, or it is overlooked."""
    told = re.compile(rf": {title} (\d+)$", re.M)
    earlier = [one for one in ask.done if one.at < start]
    for one in reversed(ask.done):
        found = told.search(one.result) if one.name != "search_files" else None
        path = _with_number(_path_of(one), int(found[1]), number) if found else ""
        if found and _path_of(one) == GUESSES[_KINDS[title]].format(n=int(found[1])):
            path = ""  # it stands where a newcomer looks anyway
        if path and (one.at > start or not _is_overlooked(title, number, len(earlier))):
            return path
    return ""


def _is_overlooked(title: str, number: int, others: int) -> bool:
    draw = zlib.crc32(f"{title} {number} among {others}".encode()) / 0x1_0000_0000
    return draw >= 1 / (1 + _DISTRACTION * others)


def _with_number(path: str, known: int, number: int) -> str:
    """Put another number into a path, in the same width; empty where the known one is not in it."""
    places = [found for found in re.finditer(r"\d+", path) if int(found[0]) == known]
    if not places:
        return ""
    last = places[-1]
    return f"{path[: last.start()]}{number:0{len(last[0])}d}{path[last.end() :]}"


def _path_of(one: DoneCall) -> str:
    command = str(one.arguments.get("command", ""))
    return command.split()[-1] if command.startswith("grep ") else str(one.arguments.get("path", ""))


def _value(read: DoneCall) -> str:
    found = re.search(r"value: (\d+)", read.result)
    return found[1] if found else str(read.result.count("LOST"))
