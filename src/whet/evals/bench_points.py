"""SkillLearnBench's trajectories on the gate of learning: are true key points taken, and swapped ones not?

A trajectory is a session that an agent had, and a list of its steps with the evidence for each. Each step is
handed in as a step of a skill, on the parts of its evidence that stand in the session: one after another,
as a model does whose quote was refused. The same quotes are handed in with the words of another task's
step; of those nothing may come into force that the session has not. No model is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import BadInput
from whet.contract.texts import from_json
from whet.evals import bench_replay
from whet.memory import units
from whet.memory.folding import fold
from whet.memory.gate import judge
from whet.memory.requests import Claim, GateVerdict, Refused
from whet.memory.transcript import QuotableTranscript

FILES = "**/traj-extracted-oracle.json"
_ASKED = "**/tasks/*/*/instruction.md"
_TRIES = 4
_KEPT_REASONS = 5


class _Step(msgspec.Struct):
    core_step: str
    evidence: str = ""


class KeyPoint(msgspec.Struct, frozen=True):
    """A step of a trajectory: what it is about, and what was seen of it."""

    task: str
    text: str
    seen: str


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


class _Trajectory(msgspec.Struct, frozen=True):
    task: str
    points: list[KeyPoint]
    session: QuotableTranscript


def run(folder: Path) -> PointsCard:
    """Hand every key point in, true and swapped. Raises BadInput."""
    paths = sorted(path for path in folder.glob(FILES) if path.is_file())
    if not paths:
        raise BadInput(f"there is no {FILES} in {folder}", hint="--data names the folder with the data")
    asked = {path.parent.name: path.read_text("utf-8") for path in folder.glob(_ASKED)}
    digest = hashlib.sha256()
    trajectories = [_load(path, asked, digest.update) for path in paths]
    points = [point for one in trajectories for point in one.points]
    refusals: dict[str, None] = {}
    counts = {"in force": 0, "waits": 0, "refused": 0}
    swapped = wrong = at = 0
    for trajectory in trajectories:
        for point in trajectory.points:
            at += 1
            quotes = bench_replay.quotes(point.seen, trajectory.session)[:_TRIES]
            verdict = _handed_in(trajectory.session, point.text, quotes)
            if isinstance(verdict, str):
                refusals[verdict] = None
            counts[_kind(verdict)] += 1
            after = (*points[at:], *points[:at])
            other = next((one for one in after if one.task != point.task), None)
            if other is not None:
                swapped += 1
                claimed = _handed_in(trajectory.session, other.text, quotes)
                wrong += _says_more(claimed, other, trajectory.session)
    return PointsCard(
        benchmark="skilllearnbench",
        files=len(paths),
        sha256=digest.hexdigest(),
        points=len(points),
        in_force=counts["in force"],
        waiting=counts["waits"],
        refused=counts["refused"],
        swapped=swapped,
        swapped_in_force=wrong,
        refusals=tuple(list(refusals)[:_KEPT_REASONS]),
    )


def _load(path: Path, asked: Mapping[str, str], seen: Callable[[bytes], object]) -> _Trajectory:
    """Read one trajectory: its key points, and the session that they are about."""
    task, record = path.parent.name, path.with_name(bench_replay.RECORD)
    try:
        content = path.read_bytes()
        steps = from_json(content, list[_Step])
        session = bench_replay.read(asked.get(task, task), record)
        seen(content)
        seen(record.read_bytes())
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is no trajectory: {error}", hint="see docs/evaluate.md") from error
    except FileNotFoundError as error:
        raise BadInput(f"there is no {record}", hint="see docs/evaluate.md") from error
    points = [KeyPoint(task, one.core_step, one.evidence) for one in steps if one.evidence.strip()]
    return _Trajectory(task, points, session)


def _handed_in(session: QuotableTranscript, text: str, quotes: Sequence[str]) -> GateVerdict | str:
    """Give the best verdict on a text that rests on one of these quotes, or why the first is refused."""
    found: list[GateVerdict] = []
    reasons: list[str] = []
    for quote in quotes:
        try:
            found.append(judge(Claim("skill", text, (quote,)), session, foreground=False))
        except Refused as error:
            reasons.append(error.message)
        if found and not found[-1].quarantined:
            return found[-1]
    return next(iter((*found, *reasons, "Its evidence does not stand in the session")))


def _kind(verdict: GateVerdict | str) -> str:
    if isinstance(verdict, str):
        return "refused"
    return "waits" if verdict.quarantined else "in force"


def _says_more(verdict: GateVerdict | str, claimed: KeyPoint, session: QuotableTranscript) -> bool:
    """Whether a value of what was claimed, that stands nowhere in the session, comes into force."""
    if isinstance(verdict, str) or verdict.quarantined:
        return False
    there = " ".join(f"{one.folded} {fold(one.call)}" for one in session.sources)
    foreign = [value for value in units.values(claimed.text) if value not in there]
    return any(value in fold(verdict.text) for value in foreign)
