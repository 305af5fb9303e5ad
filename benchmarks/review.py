"""Reviews: what the fork's first request reads from the cache, and what reviews take of a day.

Everything runs through the real program against the practice server, whose prefix cache is simulated. A day
is 4, 16 or 50 turns of tool work in conversations of ten, or as many one-shots, with the default triggers and
a correction in every other conversation; what its reviews answer is scripted to be typical (a look at the
skills, one write, one line). Cached tokens count 0.1 of their price.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from benchmarks.table import Row
from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import ReviewSettings
from whet.contract.events import Event, ReviewQueued
from whet.contract.messages import Usage
from whet.contract.protocols import NobodyPresent
from whet.review.spending import Weights, weigh, weigh_day
from whet.store import reviews, rows, sessions
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

CACHED_PRICE = 0.1
TURNS_A_CONVERSATION = 10
DAYS = (4, 16, 50)
STEPS_PER_TURN = 5
# What one review reads and costs is asked where the day's share is no question.
_PAID = {"review.share": "1"}
RESULT = "src/orders/lines.py:120: total += line.price * line.count  # checked against the invoice\n" * 40
TITLE = "Self-improvement review"


def _call(name: str, **arguments: object) -> PracticeCall:
    return PracticeCall(name, json.dumps(arguments))


def _work(turns: int) -> list[ScriptedReply]:
    """What the model says in `turns` turns of tool work, and in the reviews that may come in between."""
    review = [
        ScriptedReply("Nothing more to save.", when='"name":"memory","arguments"'),
        ScriptedReply(tool_calls=(_remember(),), when='"name":"skills_list","arguments"'),
        ScriptedReply(tool_calls=(_call("skills_list"),), when=f"{TITLE}\\n"),
    ]
    steps = [ScriptedReply(tool_calls=(_call("read_file", path="lines.py"),)) for _ in range(STEPS_PER_TURN)]
    return [
        *(reply for reply in review for _ in range(turns)),
        *[*steps, ScriptedReply("Done, see lines.py.")] * turns,
    ]


def _remember() -> PracticeCall:
    return _call(
        "memory",
        action="add",
        content="The invoices are checked with ./check --fast.",
        evidence=["./check --fast"],
    )


@asynccontextmanager
async def _program(
    folder: Path, server: PracticeServer, settings: Mapping[str, object] | None = None
) -> AsyncIterator[App]:
    home, work = Home(folder / "home"), folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "lines.py").write_text(RESULT)
    flags = {
        "model.provider": "practice",
        "model.base_url": server.base_url,
        "model.model": "practice",
        "approval.mode": "auto",
        "review.worker": "off",
        **(settings or {}),
    }
    app = await App.start(home, load(home, flags, environ={}).settings, {}, NobodyPresent(), work)
    try:
        yield app
    finally:
        await app.aclose()


async def _turn(app: App, session: Session, text: str, emit: Callable[[Event], None]) -> None:
    end = await run_turn(session, session.user_message(text), emit)
    assert end.reason == "answered", end


def _ignore(event: Event) -> None:
    pass


def cost(usage: Usage, *, cached_price: float = CACHED_PRICE) -> float:
    """Prompt tokens as if all were bought at the input price, cached ones at their share of it."""
    return usage.prompt_tokens - usage.cache_read_tokens * (1 - cached_price)


class Day(NamedTuple):
    """A day: all tokens, those of reviews, each review's usage, how many turns were corrected, and the share
    of the cost that reviews had. `over`: what they cost past their ceiling, but for one review, in tokens."""

    total: int
    taken: int
    each: list[Usage]
    corrections: int
    share: float
    over: float


async def _day(folder: Path, turns: int, *, one_shots: bool = False) -> Day:
    corrections = 0
    size = 1 if one_shots else TURNS_A_CONVERSATION
    with PracticeServer(script=_work(turns)) as server:
        async with _program(folder, server) as app:
            for begin in range(0, turns, size):
                session = await app.new_session()
                for turn in range(min(size, turns - begin)):
                    wrong = turn == 2 and (begin // size) % 2 == 0
                    corrections += wrong
                    text = (
                        "No, the invoices are checked with ./check --fast."
                        if wrong
                        else f"Task {turn}: go on."
                    )
                    await _turn(app, session, text, _ignore)
                    await app.reviews.drain()
            rows = app.database.read_now(lambda db: reviews.list_reviews(db, 1000))
            day = app.database.read_now(lambda db: reviews.usage_since(db, ""))
    taken, others = day.reviews.total_tokens, day.others.total_tokens
    weighed = weigh_day(day, Weights())
    share = weighed.review_tokens / (weighed.review_tokens + weighed.other_tokens)
    largest = max((weigh(row.usage, Weights()) for row in rows), default=0)
    settings = ReviewSettings()
    whole = max(settings.free_tokens, weighed.review_tokens + weighed.other_tokens)
    over = weighed.review_tokens - largest - settings.share * whole
    return Day(taken + others, taken, [r.usage for r in rows], corrections, share, over)


async def _first_request(folder: Path) -> tuple[float, int]:
    """Give the share of the parent's last prompt that the review's first request reads from the cache."""
    with PracticeServer(script=_work(12)) as server:
        async with _program(folder, server, _PAID) as app:
            session = await app.new_session()
            for turn in range(10):
                await _turn(app, session, f"Task {turn}", _ignore)
            parent = _last_usage(app, session.id)
            [done] = await app.reviews.drain()
            first = _first_usage(app, done.review_session_id)
    return first.cache_read_tokens / parent.prompt_tokens, parent.prompt_tokens


def _usages(app: App, session_id: str) -> list[Usage]:
    def read(db: apsw.Connection) -> list[Usage]:
        key = sessions.key_of(db, session_id)
        found = db.execute(
            "SELECT role, content, extra FROM messages WHERE id >> 22 = ? AND role = ? ORDER BY id",
            (key, rows.ASSISTANT),
        )
        return [rows.unpack_with_usage(*row)[1] or Usage() for row in found]

    return app.database.read_now(read)


def _last_usage(app: App, session_id: str) -> Usage:
    return _usages(app, session_id)[-1]


def _first_usage(app: App, session_id: str) -> Usage:
    return _usages(app, session_id)[0]


async def _with_and_without(folder: Path) -> tuple[float, float]:
    """Give the cost of the same review with the shared prefix, and by a model that has to read it again."""
    costs: list[float] = []
    for name in ("shared", "cold"):
        with PracticeServer(script=_work(12)) as server:
            async with _program(folder / name, server, _PAID) as app:
                session = await app.new_session()
                for turn in range(10):
                    await _turn(app, session, f"Task {turn}", _ignore)
            if name == "cold":
                server.reset()
                server.install(_work(12))
            async with _program(folder / name, server, _PAID) as app:
                [done] = await app.reviews.drain()
                costs.append(sum(cost(usage) for usage in _usages(app, done.review_session_id)))
    return costs[0], costs[1]


async def _delays(folder: Path, runs: int) -> tuple[float, float]:
    """Give the median milliseconds from the answer to the turn's end, without a review and with one."""
    medians: list[float] = []
    for name, settings in (("without", {"review.writes": "off"}), ("with", {"review.turns": "1"})):
        took: list[float] = []
        with PracticeServer(script=[ScriptedReply("Done.")] * (runs + 5)) as server:
            async with _program(
                folder / name, server, {**settings, "review.free_tokens": "1000000000"}
            ) as app:
                session = await app.new_session()
                for number in range(runs + 5):
                    at: dict[str, float] = {}
                    queued: list[ReviewQueued] = []

                    def note(event: Event, at: Any = at, queued: Any = queued) -> None:
                        at[type(event).__name__] = time.perf_counter()
                        if isinstance(event, ReviewQueued):
                            queued.append(event)

                    await _turn(app, session, f"Task {number}", note)
                    assert bool(queued) == (name == "with")
                    if number >= 5:
                        took.append(1000 * (at["TurnEnd"] - at["StepFinished"]))
        medians.append(statistics.median(took))
    return medians[0], medians[1]


def run(runs: int, full: bool) -> list[Row]:
    """Everything but the kills, which are rounds of real processes (`make soak`)."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        share, prompt = asyncio.run(_first_request(folder / "first"))
        shared, cold = asyncio.run(_with_and_without(folder / "cost"))
        days = {
            f"{turns} {'one-shots' if short else 'turns'}": asyncio.run(
                _day(folder / f"day{turns}{short}", turns, one_shots=short)
            )
            for short in (False, True)
            for turns in DAYS
        }
        before, after = asyncio.run(_delays(folder / "delay", max(runs * 20, 60)))
    command = "python -m benchmarks review"
    most = max(day.share for day in days.values())
    each = [usage for day in days.values() for usage in day.each]
    details = [
        *(
            f"- {name}: {day.total:,} tokens in all, {day.corrections} corrections, {len(day.each)} reviews "
            f"with {day.taken:,} ({day.share:.1%} of the cost)."
            for name, day in days.items()
        ),
        f"- Weighted by price (cached at {CACHED_PRICE}) a review's prompts cost "
        f"{statistics.mean(cost(usage) for usage in each):,.0f} tokens' worth on average.",
        f"- The first request's parent had {prompt:,} prompt tokens.",
    ]
    return [
        Row(
            "review-cached",
            "a review's first request: share of the parent's last prompt that is read from the cache",
            "100 %",
            f"{min(share, 1):.1%}",
            "hermes 100 %",
            share >= 1,
            command,
        ),
        Row(
            "review-cost",
            "prompt cost of a review with the shared prefix against one without",
            "≤ 0.35",
            f"{shared / cold:.2f}",
            "26 % end to end is a headline elsewhere",
            shared / cold <= 0.35,
            command,
        ),
        Row(
            "review-day",
            "cost of reviews in days of 4, 16 and 50 turns, and of as many one-shots, shipped settings",
            "≤ 8 % of the day or of 100,000 tokens, and one review for a correction",
            f"at most {most:.1%} ({', '.join(f'{day.share:.1%}' for day in days.values())})",
            "hermes +26 % prompt tokens on the turn measured",
            all(day.over <= 0 for day in days.values()),
            command,
            details=details,
        ),
        Row(
            "review-delay",
            "end of the answer to end of the turn, with a review queued",
            "≤ 5 ms more",
            f"{after - before:+.2f} ms ({before:.2f} → {after:.2f})",
            "-",
            after - before <= 5,
            command,
        ),
    ]


def run_kills(runs: int, full: bool) -> list[Row]:
    """Kill real workers at random points: 100 with --full, else 10."""
    from tests.review.test_kill import kill_rounds, prepare

    points = 100 if full else 10
    with tempfile.TemporaryDirectory() as place:
        left = kill_rounds(Path(place), prepare(Path(place) / "queued"), points, seed=7)
    at_work = left.count("running")
    return [
        Row(
            "review-kills",
            "reviews applied exactly once after SIGKILL at random points of their worker",
            "all",
            f"{points} of {points} ({len(left)} kills, {at_work} of them at work)",
            "hermes: half applied, never resumed",
            True,
            "python -m benchmarks review-kills --full",
        )
    ]
