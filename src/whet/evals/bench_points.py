"""SkillLearnBench's trajectories on the gate of learning: are true key points taken, and swapped ones not?

A trajectory is a list of steps with the evidence for each: an excerpt of what was run and printed. It becomes
a session, which begins with the task's instruction where the folder has it; each step is handed in as a
lesson on a quote of its own evidence, and again with the words of a step of another task. Of the second kind
nothing may come into force that its session has not. No model is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import BadInput
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import from_json
from whet.memory import units
from whet.memory.folding import fold
from whet.memory.gate import judge
from whet.memory.requests import Claim, GateVerdict, Refused
from whet.memory.sources import StoredText, sources
from whet.memory.transcript import QuotableTranscript
from whet.tools.declared import tags_of  # its import says what each tool's results are worth

FILES = "**/traj-extracted-oracle.json"
_ASKED = "**/tasks/*/*/instruction.md"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){12,})"')
_QUOTE_CHARS_MAX = 200
_TOOL = "terminal"
_KEPT_REASONS = 5


class _Step(msgspec.Struct):
    core_step: str
    evidence: str = ""


class KeyPoint(msgspec.Struct, frozen=True):
    """A step of a trajectory: what it is about, what was seen, and the part of that that is quoted."""

    task: str
    text: str
    seen: str
    quote: str


class PointsCard(msgspec.Struct, frozen=True):
    """What a run gave: true points in force, waiting for a person, refused (with the first reasons); and
    swapped points of which something came into force that their session does not show."""

    benchmark: str
    files: int
    sha256: str
    points: int
    in_force: int
    waiting: int
    refused: int
    swapped: int
    swapped_in_force: int
    refusals: tuple[str, ...] = ()


def load(folder: Path) -> tuple[list[KeyPoint], int, str]:
    """Read the trajectories below a folder: key points, how many files, their SHA-256. Raises BadInput."""
    paths = sorted(path for path in folder.glob(FILES) if path.is_file())
    if not paths:
        raise BadInput(f"there is no {FILES} in {folder}", hint="--data names the folder with the data")
    points: list[KeyPoint] = []
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(content)
        try:
            steps = from_json(content, list[_Step])
        except msgspec.DecodeError as error:
            raise BadInput(f"{path} is no trajectory: {error}", hint="see docs/evaluate.md") from error
        points += [_point(path.parent.name, step) for step in steps if step.evidence.strip()]
    return points, len(paths), digest.hexdigest()


def _point(task: str, step: _Step) -> KeyPoint:
    """Quote the longest of what the evidence quotes itself, else its beginning; one line of it."""
    seen = step.evidence.replace("\\n", "\n")
    lines = [line.strip() for found in _QUOTED.findall(seen) for line in found.splitlines()]
    quote = max(lines, key=len, default="") or seen.strip().splitlines()[0]
    return KeyPoint(task, step.core_step, seen, quote[:_QUOTE_CHARS_MAX])


def run(folder: Path) -> PointsCard:
    """Hand every key point in, true and swapped. Raises BadInput."""
    points, files, digest = load(folder)
    by_task: dict[str, list[KeyPoint]] = {}
    for point in points:
        by_task.setdefault(point.task, []).append(point)
    asked = {path.parent.name: path.read_text("utf-8") for path in folder.glob(_ASKED)}
    sessions = {task: _session(asked.get(task, task), own) for task, own in by_task.items()}
    refusals: dict[str, None] = {}
    counts = {"in force": 0, "waits": 0, "refused": 0}
    swapped = wrong = 0
    for number, point in enumerate(points):
        session = sessions[point.task]
        verdict = _handed_in(session, point.text, point.quote)
        if isinstance(verdict, str):
            refusals[verdict] = None
        kind = "refused" if isinstance(verdict, str) else "waits" if verdict.quarantined else "in force"
        counts[kind] += 1
        other = next((one for one in _after(points, number) if one.task != point.task), None)
        if other is not None:
            swapped += 1
            wrong += _says_more(_handed_in(session, other.text, point.quote), other, session)
    return PointsCard(
        benchmark="skilllearnbench",
        files=files,
        sha256=digest,
        points=len(points),
        in_force=counts["in force"],
        waiting=counts["waits"],
        refused=counts["refused"],
        swapped=swapped,
        swapped_in_force=wrong,
        refusals=tuple(list(refusals)[:_KEPT_REASONS]),
    )


def _session(asked: str, points: Sequence[KeyPoint]) -> QuotableTranscript:
    assert "local" in tags_of(_TOOL)
    stored = [StoredText(1, 1, Message("user", asked))]
    for number, point in enumerate(points, 1):
        call = ToolCall(f"c{number}", _TOOL, f'{{"command": "step-{number}"}}')
        asking = Message("assistant", "", tool_calls=(call,))
        result = Message("tool", point.seen, tool_call_id=call.id, tool_name=_TOOL)
        stored += [StoredText(2 * number, 1, asking), StoredText(2 * number + 1, 1, result)]
    return QuotableTranscript("trajectory", sources(stored))


def _handed_in(session: QuotableTranscript, text: str, quote: str) -> GateVerdict | str:
    """Give the verdict on a text that rests on a quote, or why it is refused."""
    try:
        return judge(Claim("memory", text, (quote,)), session, foreground=False)
    except Refused as error:
        return error.message


def _says_more(verdict: GateVerdict | str, claimed: KeyPoint, session: QuotableTranscript) -> bool:
    """Whether a value of what was claimed, that stands nowhere in the session, comes into force."""
    if isinstance(verdict, str):
        return False
    there = " ".join(one.folded for one in session.sources)
    foreign = [value for value in units.values(claimed.text) if value not in there]
    return any(value in fold(verdict.text) for value in foreign)


def _after(points: Sequence[KeyPoint], number: int) -> Sequence[KeyPoint]:
    return [*points[number + 1 :], *points[:number]]
