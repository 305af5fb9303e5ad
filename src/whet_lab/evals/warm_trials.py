"""Runs the same tasks cold, warm and with a placebo, pairs the trials, and judges the difference.

The placebo is a template of the same size with examples drawn at random, so that "any examples help" is
not mistaken for "these examples help". Trials run in their own homes and folders. The person's store is
read once, for the placebo, and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.messages import Usage
from whet.contract.protocols import NobodyPresent
from whet.stats import Interval
from whet.store import calls
from whet.warm.label import judge_session
from whet.warm.proof import FIRST_CALLS
from whet.warm.template import Template, save
from whet_lab.evals import paired, task_folder
from whet_lab.evals.own_tasks import OwnTask

TrialArm = Literal["cold", "warm", "placebo"]
ARMS: tuple[TrialArm, ...] = ("cold", "warm", "placebo")


class Trial(msgspec.Struct, frozen=True):
    """One task under one arm.

    `failed` and `calls` count the first ten judged calls. `failures` says for each, in order, whether it
    failed.
    """

    arm: TrialArm
    task: str
    repeat: int
    ok: bool
    failed: int
    calls: int
    usage: Usage
    failures: tuple[bool, ...] = ()

    @property
    def error_rate(self) -> float | None:
        """The share of failed calls among the first ones, or None without calls."""
        return self.failed / self.calls if self.calls else None


class ArmSum(msgspec.Struct, frozen=True):
    """The totals of one arm."""

    arm: TrialArm
    trials: int
    succeeded: int
    failed: int
    calls: int
    usage: Usage


class Comparison(msgspec.Struct, frozen=True):
    """Warm against another arm, paired by task and repeat.

    `fewer_errors` is the other arm's error rate minus warm's, over as many calls of each pair as both
    made, task by task (`tasks` have some). `p` is McNemar's for success, of the pairs that only one won.
    `verdict` is one of fewer errors, more errors, no evidence, no data; fewer errors by an arm that did
    fewer tasks are not evidence.
    """

    against: TrialArm
    tasks: int
    pairs: int
    fewer_errors: Interval
    only_warm: int
    only_other: int
    p: float
    verdict: str


class TrialReport(msgspec.Struct, frozen=True):
    """The results of an evaluation."""

    arms: tuple[ArmSum, ...]
    comparisons: tuple[Comparison, ...]


class WarmTrialSetup:
    """The environment of trials: the model's settings and keys, a folder, and the two templates."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        secrets: Mapping[str, str],
        templates: Mapping[TrialArm, Template],
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._secrets = secrets
        self._templates = templates
        for arm, template in templates.items():
            # The template's source sessions are not in this home's store, so it counts as imported.
            saved_template = msgspec.structs.replace(
                template, name=arm, imported_at=template.created_at or "here"
            )
            save(self._home(arm), saved_template)

    def _home(self, arm: TrialArm) -> Home:
        return Home(self.folder / "homes" / arm)

    async def run(self, task: OwnTask, arm: TrialArm, repeat: int, origin: Path) -> Trial:
        """Do a task once, in a fresh copy of its files; its verifier judges. Raises ConfigError."""
        folder = self.folder / "work" / f"{task.name}-{repeat}" / "project"
        await task_folder.prepare_folder(task, origin, folder)
        trial = await self.run_prompt(task.name, task.prompt, arm, repeat, folder)
        ok, _ = await task_folder.verify(task, folder, self._settings.sandbox, self._home(arm))
        return msgspec.structs.replace(trial, ok=ok)

    async def run_prompt(self, name: str, prompt: str, arm: TrialArm, repeat: int, folder: Path) -> Trial:
        """Run a new session with one turn and count its first calls; `ok` means that the model answered."""
        settings = msgspec.structs.replace(
            self._settings, tools=msgspec.structs.replace(self._settings.tools, workspace="")
        )
        async with aclosing(
            await App.start(self._home(arm), settings, self._secrets, NobodyPresent(), folder, source="eval")
        ) as app:
            session = await app.new_session(title=name, warm=arm if arm in self._templates else "off")
            end = await run_turn(session, session.user_message(prompt), lambda event: None)
            outcomes = await app.database.read(
                lambda db: judge_session(db, calls.read_judging_state(db, session.id), 0)
            )
        judged = [outcome for _, outcome, _ in outcomes if outcome not in ("denied", "unknown")]
        failures = tuple(outcome == "failed" for outcome in judged[:FIRST_CALLS])
        is_answered = end.reason == "answered"
        return Trial(arm, name, repeat, is_answered, sum(failures), len(failures), end.usage, failures)


async def run_all(
    bench: WarmTrialSetup,
    tasks: Sequence[OwnTask],
    origin: Path,
    repeats: int,
    progress: Callable[[str], None],
) -> list[Trial]:
    """Run every task under every arm, `repeats` times. The arms take turns to be first."""
    trials: list[Trial] = []
    for repeat in range(1, repeats + 1):
        for number, task in enumerate(tasks):
            first = (number + repeat) % len(ARMS)
            for arm in (*ARMS[first:], *ARMS[:first]):
                progress(f"{task.name}, {arm}, {repeat} of {repeats}")
                trials.append(await bench.run(task, arm, repeat, origin))
    return trials


def build_report(trials: Sequence[Trial]) -> TrialReport:
    """Sum the trials of each arm, and compare warm with each other arm."""
    return TrialReport(
        tuple(_sum(arm, [trial for trial in trials if trial.arm == arm]) for arm in ARMS),
        tuple(compare(trials, arm) for arm in ("cold", "placebo")),
    )


def compare(trials: Sequence[Trial], other: TrialArm) -> Comparison:
    """Compare warm with `other`, task by task."""
    mine, theirs = ([trial for trial in trials if trial.arm == arm] for arm in ("warm", other))
    gap = paired.compare(*_match_calls(theirs, mine), lambda trial: trial.error_rate)
    if not gap.tasks:
        verdict = "no data"
    elif not gap.is_clear or (gap.gap.low > 0 and gap.only_first > gap.only_other):
        verdict = "no evidence"
    else:
        verdict = "fewer errors" if gap.gap.low > 0 else "more errors"
    return Comparison(
        other, gap.tasks, gap.pairs, gap.gap, gap.only_other, gap.only_first, gap.p_value, verdict
    )


def _match_calls(first: Sequence[Trial], other: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """Limit each pair to as many calls as both made: an arm that stops early has fewer chances to fail.

    Trials without `failures` stay unchanged.
    """
    least: dict[tuple[str, int], int] = {}
    for trial in (*first, *other):
        key = trial.task, trial.repeat
        least[key] = min(least.get(key, trial.calls), trial.calls)
    cut = [[_cut(trial, least[trial.task, trial.repeat]) for trial in arm] for arm in (first, other)]
    return cut[0], cut[1]


def _cut(trial: Trial, calls: int) -> Trial:
    if len(trial.failures) <= calls:
        return trial
    first_failures = trial.failures[:calls]
    return msgspec.structs.replace(trial, failed=sum(first_failures), calls=calls, failures=first_failures)


def _sum(arm: TrialArm, trials: Sequence[Trial]) -> ArmSum:
    return ArmSum(
        arm,
        len(trials),
        sum(trial.ok for trial in trials),
        sum(trial.failed for trial in trials),
        sum(trial.calls for trial in trials),
        sum((trial.usage for trial in trials), Usage()),
    )
