"""Warm sessions on planted stores: lessons found by the default build, unfit examples, switch-offs.

The store has 300 sessions of ordinary work. Seven mistakes are planted in it, each with the call that mends
it, and so is what must not become a lesson: calls that worked after an unrelated failure, private places, a
person's objections.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.support import FixedClock
from tests.warm.stores import TOOLS, Did, Turn, read, sh, stored

from benchmarks.table import Row
from whet.config.paths import Home
from whet.store.database import StateDatabase
from whet.store.warm import ArmCounts
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.proof import judge_harm
from whet.warm.select import Situation, pick_examples
from whet.warm.template import Template
from whet.warm.template_store import WarmTemplates

COMMAND = "python -m benchmarks warm-planted"
_NAMES = [
    "basket",
    "invoice",
    "ledger",
    "parser",
    "router",
    "session",
    "ticket",
    "voucher",
    "worker",
    "cache",
]


class Lesson(msgspec.Struct, frozen=True):
    """A task, the call that fails, its exit code, and the call that works; NAME stands for what differs."""

    topic: str
    task: str
    wrong: str
    code: int
    right: str
    mark: str

    def calls(self, name: str) -> tuple[Did, Did]:
        """Return both calls for a name."""
        fail = "sh: 1: No such file or directory" if self.code != 127 else "sh: 1: command not found"
        if self.wrong.startswith("read "):
            wrong, right = (
                text.removeprefix("read ").replace("NAME", name) for text in (self.wrong, self.right)
            )
            return read(wrong, "no such file", "not_found"), read(right)
        return (
            sh(self.wrong.replace("NAME", name), fail, self.code),
            sh(self.right.replace("NAME", name), f"{name}: 3 lines"),
        )


LESSONS = (
    Lesson(
        "tests",
        "Run the unit tests of NAME",
        "pytest tests/test_NAME.py",
        127,
        "uv run pytest tests/test_NAME.py",
        "uv run",
    ),
    Lesson("usages", "Find every usage of NAME", "grep -rn NAME src", 2, "grep -rn NAME app/src", "app/src"),
    Lesson(
        "handbook",
        "What does the handbook say about NAME?",
        "read docs/NAME.md",
        1,
        "read handbook/NAME.md",
        "handbook/",
    ),
    Lesson(
        "report",
        "Print the monthly report for NAME",
        "python tools/report.py NAME",
        127,
        "python3 tools/report.py NAME",
        "python3",
    ),
    Lesson(
        "prices",
        "Look up the price of NAME",
        "jq .NAME prices.json",
        2,
        "jq .NAME data/prices.json",
        "data/prices.json",
    ),
    Lesson(
        "balance",
        "Show the balance of book NAME",
        "./ledger balance NAME",
        2,
        "./ledger --book main balance NAME",
        "--book",
    ),
    Lesson(
        "lint", "Check the style of module NAME", "make lint-NAME", 2, "make -C build lint-NAME", "-C build"
    ),
)
_OTHER_TASKS = (
    ("greeting", "Write a greeting for the new colleague"),
    ("faq", "Summarise the faq for customers"),
    ("folders", "Tidy the downloads folder"),
    ("letter", "Translate this letter to French"),
)


def fill(folder: Path, sessions: int, seed: int) -> StateDatabase:
    """Store the sessions."""
    clock, rng = FixedClock(), random.Random(seed)
    database = StateDatabase.open(folder / "state.db", clock)

    async def write() -> None:
        for _ in range(sessions):
            await stored(database, clock, list(_turns(rng)), workspace="/w")

    asyncio.run(write())
    return database


def _turns(rng: random.Random) -> Iterator[Turn]:
    for _ in range(5):
        chance, name = rng.random(), rng.choice(_NAMES)
        if chance < 0.25:
            lesson = rng.choice(LESSONS)
            wrong, right = lesson.calls(name)
            task = lesson.task.replace("NAME", name)
            if rng.random() < 0.25:  # the mistake alone: nothing mended it here
                yield Turn(task, [[wrong], [sh("git status", "clean")]])
            elif rng.random() < 0.3:
                yield Turn(task, [[wrong]])
                yield Turn("No, that is wrong. Undo it.", [[right]])
            else:
                yield Turn(task, [[wrong], [right]])
            continue
        topic, task = rng.choice(_OTHER_TASKS)
        if chance < 0.35:  # worked after a failure, and mended nothing
            yield Turn(
                task,
                [
                    [sh(f"grep -r {name.upper()} notes", "grep: notes: No such file", 2)],
                    [sh("ls notes2", "a")],
                ],
            )
        elif chance < 0.4:
            yield Turn(task, [[read("~/.ssh/config", "Host a")], [sh("cat ~/.ssh/id_rsa.pub", "ssh-rsa A")]])
        elif chance < 0.6:
            yield Turn(task, [[sh(f"cat docs/{topic}.md", "text")], [sh(f"ls {topic}", "a b")]])
        else:
            yield Turn(task, [[read(f"docs/{topic}.md")], [sh("git log --oneline -3", "1a b")]])


def build(folder: Path, database: StateDatabase) -> Template:
    """Build a template with the default options."""
    clock = FixedClock()
    clock.advance(86_400)
    return (
        WarmTemplates(Home(folder / "home"), database, clock)
        .build(BuildOptions(name="work"), MiningScope())
        .template
    )


def planted_found(template: Template) -> set[str]:
    """Return the topics of the planted lessons that the template shows."""
    texts = [str(example.arguments) for example in template.examples]
    return {lesson.topic for lesson in LESSONS if any(lesson.mark in text for text in texts)}


def unfit_examples(template: Template) -> tuple[int, int, list[str]]:
    """Return how many examples new tasks get, how many tasks of a known lesson get it, and the unfit ones."""
    now = datetime(2026, 11, 2, tzinfo=UTC)
    given = 0
    served = 0
    unfit: list[str] = []
    tasks = [
        (lesson.topic, lesson.task.replace("NAME", name))
        for lesson in LESSONS
        for name in ("parcel", "quote")
    ]
    for topic, task in [
        *tasks,
        *((topic, task) for topic, task in _OTHER_TASKS),
        ("", "Plan my holiday in May"),
    ]:
        situation = Situation(text=task, workspace="/w", tools=TOOLS, now=now)
        chosen = pick_examples(template, situation)
        given += len(chosen)
        marks = [lesson.mark for lesson in LESSONS if lesson.topic == topic]
        served += bool(marks) and any(marks[0] in str(example.arguments) for example in chosen)
        unfit += [
            f"{task}: {example.arguments} ({example.context_hint})"
            for example in chosen
            if not (marks and marks[0] in str(example.arguments)) and task != example.context_hint
        ]
    return given, served, unfit


def switch_offs(runs: int, sessions: int, gap: float, *, seed: int = 0) -> tuple[float, list[int]]:
    """Return in which share of runs a template is switched off, looked at after every session, and after how
    many warm sessions. `gap`: how many more of the first calls fail with it."""
    rng = random.Random(seed)
    off: list[int] = []
    for _ in range(runs):
        usual = rng.choice((0.02, 0.1, 0.3))
        cold = [_counts(rng, usual, "cold") for _ in range(100)]
        warm: list[ArmCounts] = []
        held: list[ArmCounts] = []
        for _ in range(sessions):
            if rng.random() < 0.1:
                held.append(_counts(rng, usual, "held_out"))
            else:
                warm.append(_counts(rng, min(usual + gap, 0.95), "warm"))
            if judge_harm(warm, held, lambda cold=cold: cold):
                off.append(len(warm))
                break
    return len(off) / runs, off


def _counts(rng: random.Random, rate: float, arm: str) -> ArmCounts:
    calls = rng.randint(3, 10)
    own = min(max(rng.gauss(rate, 0.05), 0.0), 1.0)  # sessions differ
    return ArmCounts(arm=arm, calls=calls, failed=sum(rng.random() < own for _ in range(calls)), at="")


def run(runs: int, full: bool) -> list[Row]:
    """Build on one store for each run, and repeat the sequential test."""
    found: list[int] = []
    unfit: list[str] = []
    served = given = 0
    for seed in range(max(min(runs, 5), 1)):
        with tempfile.TemporaryDirectory() as name:
            database = fill(Path(name), 300, seed)
            template = build(Path(name), database)
            database.close()
        found.append(len(planted_found(template)))
        more, good, bad = unfit_examples(template)
        given, served, unfit = given + more, served + good, unfit + bad
        private = [
            str(example.arguments) for example in template.examples if ".ssh" in str(example.arguments)
        ]
        unfit += private
    wrongly, _ = switch_offs(1_000 if full else 300, 400, 0.0)
    rightly, uses = switch_offs(1_000 if full else 300, 12, 0.8, seed=1)
    within = sum(use <= 10 for use in uses) / max(len(uses), 1) * rightly
    return [
        Row(
            "warm-planted",
            f"300 sessions with {len(LESSONS)} planted lessons: found by the default build; examples that"
            f" do not fit a new task, of {given} given",
            f"{len(LESSONS)} of {len(LESSONS)}; 0",
            f"{min(found)} of {len(LESSONS)}; {len(unfit)}",
            "-",
            min(found) == len(LESSONS) and not unfit,
            COMMAND,
            details=[f"{served} tasks of a lesson got its example", *unfit],
        ),
        Row(
            "warm-switch-off",
            "template without effect switched off, looked at after each of 400 sessions; harm (80 points more"
            " failed calls) found within 10 uses",
            "≤ 5 %; ≥ 90 %",
            f"{wrongly:.1%}; {within:.0%}",
            "-",
            wrongly <= 0.05 and within >= 0.9,
            COMMAND,
        ),
    ]
