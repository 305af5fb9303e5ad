"""Measures whether the learning gate accepts SkillLearnBench's true key points and rejects swapped ones.

A trajectory is an agent's session and a list of its steps with the evidence for each. Each step is submitted
as a step of a skill, with one part of its evidence that occurs in the session after another, as a model does
after a refusal. The same quotes are also submitted with the text of another task's step, of which no value
that is not in the session may come into force. No model is called. Steps that the session shows only in the
assistant's own prose are counted separately, because no quote could show them. The gate was tuned on the
steps of every second kind of task ("tuned on").
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import BadInput
from whet.contract.texts import from_json
from whet.memory import units
from whet.memory.folding import fold
from whet.memory.gate import judge
from whet.memory.requests import Claim, GateVerdict, Refused
from whet.memory.transcript import QuotableTranscript
from whet_lab.evals import bench_replay

TRAJECTORY_FILES = "**/traj-extracted-oracle.json"
_PROMPT_FILES = "**/tasks/*/*/instruction.md"
_TRIES = 4
_KEPT_REASONS = 5


class _Step(msgspec.Struct):
    core_step: str
    evidence: str = ""


class KeyPoint(msgspec.Struct, frozen=True):
    """A step of a trajectory: its task, its text and its evidence."""

    task: str
    text: str
    seen: str


class PointsPart(msgspec.Struct, frozen=True):
    """The outcomes of true points.

    `waiting` ones need a person. `unshown` ones were refused because the session mentions them only in the
    assistant's own text.
    """

    in_force: int
    waiting: int
    refused: int
    unshown: int

    @property
    def points(self) -> int:
        """The number of points."""
        return self.in_force + self.waiting + self.refused + self.unshown


class PointsCard(msgspec.Struct, frozen=True):
    """The results of a run.

    `parts` has all points and each half of the kinds of tasks; `refusals` has the first reasons of refused
    points. `swapped_in_force` counts the swapped points with a value in force that their session does not
    show.
    """

    benchmark: str
    files: int
    sha256: str
    parts: dict[str, PointsPart]
    swapped: int
    swapped_in_force: int
    refusals: tuple[str, ...] = ()


class _Trajectory(msgspec.Struct, frozen=True):
    kind: str
    points: list[KeyPoint]
    session: QuotableTranscript


def run(folder: Path) -> PointsCard:
    """Submit every key point, true and swapped. Raises BadInput."""
    paths = sorted(path for path in folder.glob(TRAJECTORY_FILES) if path.is_file())
    if not paths:
        raise BadInput(
            f"there is no {TRAJECTORY_FILES} in {folder}", hint="--data names the folder with the data"
        )
    prompts = {path.parent.name: path.read_text("utf-8") for path in folder.glob(_PROMPT_FILES)}
    digest = hashlib.sha256()
    trajectories = [_load(path, prompts, digest.update) for path in paths]
    points = [point for item in trajectories for point in item.points]
    tuned_on = sorted({item.kind for item in trajectories})[::2]
    refusals: dict[str, None] = {}
    counts = {part: Counter[str]() for part in ("all", "tuned on", "held out")}
    swapped = swapped_in_force = position = 0
    for trajectory in trajectories:
        half = "tuned on" if trajectory.kind in tuned_on else "held out"
        for point in trajectory.points:
            position += 1
            quotes = bench_replay.find_quotes(point.seen, trajectory.session)
            verdict = _judge_point(trajectory.session, point.text, quotes[:_TRIES])
            outcome = _classify_verdict(verdict, is_shown=bench_replay.shows(trajectory.session, quotes))
            if outcome == "refused":
                refusals[str(verdict)] = None
            counts["all"][outcome] += 1
            counts[half][outcome] += 1
            later_first = (*points[position:], *points[:position])
            other = next((item for item in later_first if item.task != point.task), None)
            if other is not None:
                swapped += 1
                verdict = _judge_point(trajectory.session, other.text, quotes[:_TRIES])
                swapped_in_force += _accepts_foreign_value(verdict, other, trajectory.session)
    return PointsCard(
        benchmark="skilllearnbench",
        files=len(paths),
        sha256=digest.hexdigest(),
        parts={
            part: PointsPart(*(outcomes[name] for name in ("in force", "waits", "refused", "unshown")))
            for part, outcomes in counts.items()
        },
        swapped=swapped,
        swapped_in_force=swapped_in_force,
        refusals=tuple(list(refusals)[:_KEPT_REASONS]),
    )


def _load(path: Path, prompts: Mapping[str, str], update_digest: Callable[[bytes], object]) -> _Trajectory:
    """Read one trajectory: its key points and its session."""
    task, record = path.parent.name, path.with_name(bench_replay.RECORD)
    try:
        content = path.read_bytes()
        steps = from_json(content, list[_Step])
        session = bench_replay.read(prompts.get(task, task), record)
        update_digest(content)
        update_digest(record.read_bytes())
    except msgspec.DecodeError as error:
        raise BadInput(
            f"{path} is not a trajectory: {error}", hint="--data names the folder as it was downloaded"
        ) from error
    except FileNotFoundError as error:
        raise BadInput(
            f"there is no {record}", hint="--data names the folder as it was downloaded"
        ) from error
    points = [KeyPoint(task, step.core_step, step.evidence) for step in steps if step.evidence.strip()]
    return _Trajectory(path.parent.parent.name, points, session)


def _judge_point(session: QuotableTranscript, text: str, quotes: Sequence[str]) -> GateVerdict | str:
    """Return the best verdict on a text with one of these quotes, or the reason of the first refusal."""
    verdicts: list[GateVerdict] = []
    reasons: list[str] = []
    for quote in quotes:
        try:
            verdicts.append(judge(Claim("skill", text, (quote,)), session, foreground=False))
        except Refused as error:
            reasons.append(error.message)
        if verdicts and verdicts[-1].trust != "untrusted":
            return verdicts[-1]
    return next(iter((*verdicts, *reasons, "its evidence does not occur in the session")))


def _classify_verdict(verdict: GateVerdict | str, *, is_shown: bool) -> str:
    if isinstance(verdict, str):
        return "refused" if is_shown else "unshown"
    return "waits" if verdict.trust == "untrusted" else "in force"


def _accepts_foreign_value(
    verdict: GateVerdict | str, claimed: KeyPoint, session: QuotableTranscript
) -> bool:
    """Return whether a claimed value that does not occur in the session comes into force."""
    if isinstance(verdict, str) or verdict.trust == "untrusted":
        return False
    session_text = " ".join(f"{source.folded} {fold(source.call)}" for source in session.sources)
    foreign = [value for value in units.find_values(claimed.text) if value not in session_text]
    return any(value in fold(verdict.text) for value in foreign)
