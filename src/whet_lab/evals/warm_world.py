"""The depot as a world for warm sessions: a history of real runs, and a template built from it.

Each seed is another depot with other conventions. The practice model uses only its request, so the arms
differ only in the content of their examples. The results show how much of the learnable content reaches
the point of use, not how much a model improves. Offline and deterministic.
"""

from __future__ import annotations

import random
from contextlib import aclosing, closing
from datetime import datetime
from pathlib import Path

import msgspec

from whet.agent.loop import run_turn
from whet.app.build import App
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.protocols import NobodyPresent
from whet.store.database import StateDatabase
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope, mine
from whet.warm.template import Template
from whet.warm.template_store import WarmTemplates
from whet_lab.evals.warm_placebo import make_placebo
from whet_lab.evals.warm_trials import TrialArm
from whet_lab.practice.depot import ARTICLES, DAYS, WEEKS, build_question, make_depot

NAME = "depot"


class Depot(msgspec.Struct, frozen=True):
    """One seed's world on disk, with a home whose store holds its history."""

    seed: int
    path: Path
    home: Home


def write_depot(folder: Path, seed: int, *, pitfalls: bool = True) -> Depot:
    """Write a depot."""
    path = folder / f"depot-{seed}-{'gated' if pitfalls else 'open'}"
    make_depot(path, seed, pitfalls=pitfalls)
    return Depot(seed, path, Home(folder / f"home-{path.name}"))


async def create_history(depot: Depot, settings: Settings, sessions: int) -> None:
    """Create a history: sessions of three turns, every second one about records, run on the real program."""
    rng = random.Random(f"life {depot.seed}")
    async with aclosing(await App.start(depot.home, settings, {}, NobodyPresent(), depot.path)) as app:
        for number in range(sessions):
            session = await app.new_session(title=f"day {number}", warm="off")
            for _ in range(3):
                numbers = draw_numbers(rng) if number % 2 else {}
                notes = tuple(rng.randint(1, 12) for _ in range(2 if number % 2 else 4))
                message = session.user_message(build_question(numbers, notes))
                await run_turn(session, message, lambda event: None)
            await session.context.aclose()


def draw_numbers(rng: random.Random) -> dict[str, int]:
    """Draw the records that a question asks for."""
    return {"count": rng.randint(1, WEEKS), "price": rng.randint(1, ARTICLES), "lost": rng.randint(1, DAYS)}


def build_templates(depot: Depot, now: datetime) -> dict[TrialArm, Template]:
    """Build the template, and a placebo of its size.

    If no tool failed, the template uses all examples, so that its harmlessness can be measured.
    """
    clock = SystemClock()
    database = StateDatabase.open(depot.home.database, clock)
    options, choice = BuildOptions(name=NAME), MiningScope(min_messages=10)
    with closing(database):
        mined = database.read_now(lambda db: mine(db, choice, lambda done, total: None))
        if not mined.failing_tools():
            options = msgspec.structs.replace(options, least_error_rate=0.0)
        built = WarmTemplates(depot.home, database, clock).build(options, choice).template
        placebo = database.read_now(lambda db: make_placebo(db, mined, built, options, now, depot.seed))
        return {"warm": built, "placebo": placebo}
