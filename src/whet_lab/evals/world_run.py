"""Runs one world under one arm on the real program, and counts the results.

Every session goes through its person's `App` (each has a home), real HTTP to the model server, and the real
store and gate. The counts come from requests, files and the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.messages import Message, Usage
from whet.contract.origin import Origin
from whet.contract.protocols import NobodyPresent
from whet.memory.requests import Claim, GateVerdict
from whet.store import sessions
from whet_lab.evals.arms import Arm
from whet_lab.evals.project import write_project
from whet_lab.evals.records import FactNeed, Funnel, StaleFact, TaskRecord, TokenSpending, WorldResult
from whet_lab.evals.workplace import CommandAttempt, CommandServer, Pages, Standing, Workplace
from whet_lab.evals.world import FactWorld, SessionPlan, Topic, WorldPerson
from whet_lab.practice.gated_facts import PRIVATE_KEYS, FactStatement, find_claims
from whet_lab.practice.gated_model import GatedModel, Habits
from whet_lab.practice.server import PracticeServer
from whet_lab.practice.strict import Options

_KEEP_BYTES = 32_000_000
_MAX_SESSIONS = 1_000_000
_WHOLE_WINDOW = 4_000_000
"""A context window that holds the whole conversation, so that nothing is summarised."""
_FILES = ("memories/*.md", "skills/**/*.md")


@dataclass(slots=True)
class EvalPerson:
    """One person's program, and the evaluation's records about that person."""

    app: App
    notes: list[str] = field(default_factory=list[str])
    shown: dict[Topic, str] = field(default_factory=dict[Topic, str])
    captured: set[FactStatement] = field(default_factory=set[FactStatement])
    conversation: Session | None = None

    def read_claims(self) -> list[FactStatement]:
        """Return the statements in its files and in the evaluation's own notes."""
        root = self.app.services.home.root
        files = [path for pattern in _FILES for path in sorted(root.glob(pattern)) if path.is_file()]
        past = self.conversation.log.messages if self.conversation is not None else ()
        texts = [message.text for message in past if message.role != "assistant"]
        return find_claims("\n".join([*(path.read_text("utf-8") for path in files), *self.notes, *texts]))


@dataclass(slots=True)
class WorldRun:
    """A world in progress."""

    world: FactWorld
    arm: Arm
    server: PracticeServer
    pages: Pages
    workplace: Workplace
    people: dict[WorldPerson, EvalPerson] = field(default_factory=dict[WorldPerson, EvalPerson])
    tasks: list[TaskRecord] = field(default_factory=list[TaskRecord])
    stale_since: dict[Topic, tuple[int, str]] = field(default_factory=dict[Topic, tuple[int, str]])
    stale: list[StaleFact] = field(default_factory=list[StaleFact])
    leaks: int = 0
    poisoned: int = 0

    async def run_session(self, plan: SessionPlan, *, probing: bool = False) -> list[CommandAttempt]:
        """Run one session with its review and counts, and return its commands."""
        person = self.people[plan.person]
        self._set_notes(person, plan)
        requests_before = self.server.count
        session = await self._open_session(person, plan)
        prompt, _ = await person.app.database.read(lambda db: sessions.read_prefix(db, session.id))
        self.workplace.begin(plan, lambda: _join_visible(prompt, session.log.messages))
        page = self.pages.address(f"/{plan.number}") if plan.planted else ""
        await self._turn(session, msgspec.structs.replace(plan.task, page=page).text)
        first = list(self.workplace.attempts)
        if first and first[-1].objection and not probing:
            await self._turn(session, first[-1].objection)
        if session is not person.conversation:
            await session.context.aclose()
        if not probing:
            if self.arm.reviews:
                await person.app.reviews.drain()
            self._count(person, plan, session, self.server.count - requests_before)
        return list(self.workplace.attempts)

    async def _open_session(self, person: EvalPerson, plan: SessionPlan) -> Session:
        """Return a new session, or the person's one conversation."""
        if not self.arm.one_conversation or plan.is_private:
            return await person.app.new_session(private=plan.is_private)
        if person.conversation is None:
            person.conversation = await person.app.new_session()
        return person.conversation

    async def _turn(self, session: Session, text: str) -> None:
        await run_turn(session, session.user_message(text), lambda event: None)

    def _set_notes(self, person: EvalPerson, plan: SessionPlan) -> None:
        """Put the arm's notes into the prompt."""
        notes = person.notes if self.arm.notes == "everything" else []
        if self.arm.notes == "needed":
            values = ((topic, self.world.truth(topic, plan.number, plan.person)) for topic in plan.task.needs)
            notes = [FactStatement(*topic, value).text for topic, value in values]
        person.app.sessions.instructions = "\n".join(notes)

    def _count(self, person: EvalPerson, plan: SessionPlan, session: Session, requests: int) -> None:
        """Add a finished session to the counts."""
        attempts = self.workplace.attempts
        first = attempts[0] if attempts else None
        current = {topic: self._is_shown(person, topic, plan) for topic in plan.task.needs}
        needs = tuple(
            FactNeed(*topic, current[topic], first.standing.get(topic, "absent") if first else "absent")
            for topic in plan.task.needs
        )
        is_done = bool(attempts) and attempts[-1].is_right
        self.tasks.append(
            TaskRecord(
                plan.number,
                plan.person,
                plan.is_private,
                first is not None and first.is_right,
                is_done,
                len(attempts),
                needs,
                self.sum_spending().tokens - sum(task.tokens for task in self.tasks),
            )
        )
        self._check_requests(plan, requests)
        if not plan.is_private:
            self._record_shown(person, plan)
            if self.arm.notes == "everything":
                person.notes += [
                    message.text for message in session.log.messages if message.role != "assistant"
                ]
        kept_claims = person.read_claims()
        person.captured.update(kept_claims)
        if plan.person == "ana":
            self._track_changes(plan, kept_claims)

    def _is_shown(self, person: EvalPerson, topic: Topic, plan: SessionPlan) -> bool:
        return person.shown.get(topic) == self.world.truth(topic, plan.number, plan.person)

    def _record_shown(self, person: EvalPerson, plan: SessionPlan) -> None:
        """Record the facts that this session has shown."""
        for attempt in self.workplace.attempts:
            for claim in attempt.command.implied_statements():
                is_wish = claim.key in PRIVATE_KEYS
                is_shown = attempt.verdict.is_ok or claim.topic in attempt.verdict.revealed
                is_learnable = bool(attempt.objection) if is_wish else is_shown
                if is_learnable and (is_wish or claim.topic in self.world.facts):
                    person.shown[claim.topic] = self.world.truth(claim.topic, plan.number, plan.person)

    def _check_requests(self, plan: SessionPlan, count: int) -> None:
        bodies = [request.body for request in self.server.requests[-count:]] if count else []
        secrets = [value.encode() for value in self.world.secrets_from(plan)]
        self.leaks += sum(any(value in body for value in secrets) for body in bodies)
        own_value = plan.planted.value if plan.planted else ""
        planted = [value.encode() for value in self.world.planted_values if value != own_value]
        self.poisoned += any(value in body for value in planted for body in bodies)

    def _track_changes(self, plan: SessionPlan, kept_claims: list[FactStatement]) -> None:
        """Record how long the old values of changed facts stay stored."""
        latest = {claim.topic: claim.value for claim in kept_claims}
        for topic, since in self.world.drifts.items():
            if plan.number == since - 1 and topic in latest:
                self.stale_since[topic] = (since, latest[topic])
        for topic, (since, old) in list(self.stale_since.items()):
            if plan.number >= since and latest.get(topic) != old:
                self.stale.append(StaleFact(*topic, plan.number - since, True))
                del self.stale_since[topic]

    async def measure_funnel(self) -> Funnel:
        """Probe each shown fact once at the end, and count the facts that reached each stage."""
        person, last = self.people["ana"], self.world.shape.sessions + 1
        now = [FactStatement(*topic, self.world.truth(topic, last, "ana")) for topic in person.shown]
        shown_claims = [claim for claim in now if person.shown[claim.topic] == claim.value]
        kept_claims = {claim.topic: claim for claim in person.read_claims()}
        reached = 0
        for number, claim in enumerate(shown_claims):
            attempts = await self.run_session(
                SessionPlan(last, "ana", self.world.make_probe(claim.topic, 500 + number)), probing=True
            )
            standing: Standing = attempts[0].standing.get(claim.topic, "absent") if attempts else "absent"
            reached += standing == "right"
        return Funnel(
            len(shown_claims),
            sum(claim in person.captured for claim in shown_claims),
            sum(kept_claims.get(claim.topic) == claim for claim in shown_claims),
            reached,
        )

    def sum_spending(self) -> TokenSpending:
        """Sum the usage of all sessions and reviews so far."""
        rows = [
            row for person in self.people.values() for row in person.app.database.read_now(_list_with_reviews)
        ]
        used = {
            kind: sum((row.usage for row in rows if row.kind == kind), Usage()) for kind in ("chat", "review")
        }
        count = sum(row.kind == "review" for row in rows)
        return TokenSpending(used["chat"], used["review"], count)

    def count_false_claims(self) -> int:
        """Count the stored claims that were never true and that no page planted."""
        return sum(
            claim.key not in PRIVATE_KEYS and not self.world.was_true(claim)
            and claim.value not in self.world.planted_values
            for person in self.people.values()
            for claim in set(person.read_claims())
        )  # fmt: skip


async def run_world(
    world: FactWorld,
    arm: Arm,
    folder: Path,
    habits: Habits | None = None,
    progress: Callable[[int], None] = lambda session: None,
) -> WorldResult:
    """Run all sessions of a world under an arm. `folder` is created and not removed."""
    began_s = time.perf_counter()
    responder = GatedModel(world.seed, habits).answer
    async with AsyncExitStack() as stack:
        server = stack.enter_context(
            PracticeServer(options=Options(keep_bytes=_KEEP_BYTES), responder=responder)
        )
        texts = {f"/{plan.number}": world.page(plan) for plan in world.plans if plan.planted}
        pages = stack.enter_context(Pages(texts))
        workplace = Workplace(world)
        if world.shape.looks:
            write_project(folder / "work")
        stack.enter_context(CommandServer(folder / "work", workplace.answer))
        world_run = WorldRun(world, arm, server, pages, workplace)
        for person in list_people(world.plans):
            app = await _start_app(folder, person, arm, server.base_url)
            stack.push_async_callback(app.aclose)
            if not arm.gated:
                app.learning.owner_service.changes.judge_override = _accept_any
            world_run.people[person] = EvalPerson(app)
        for plan in world.plans:
            await world_run.run_session(plan)
            progress(plan.number)
        spent = world_run.sum_spending()
        remaining = [
            StaleFact(*topic, world.shape.sessions - since + 1, False)
            for topic, (since, _) in world_run.stale_since.items()
        ]
        requests = server.count
        return WorldResult(
            seed=world.seed,
            arm=arm.name,
            tasks=tuple(world_run.tasks),
            funnel=await world_run.measure_funnel(),
            spent=spent,
            stale=(*world_run.stale, *remaining),
            requests=requests,
            leaks=world_run.leaks,
            poisoned=world_run.poisoned,
            planted=len(world.planted_values),
            false_kept=world_run.count_false_claims(),
            wall_s=time.perf_counter() - began_s,
        )


def list_people(plans: Iterable[SessionPlan]) -> list[WorldPerson]:
    """Return the people who have a session, ana first."""
    return list(dict.fromkeys(plan.person for plan in plans))


async def _start_app(folder: Path, person: WorldPerson, arm: Arm, base_url: str) -> App:
    home = Home(folder / person)
    flags: dict[str, object] = {
        "model.provider": "practice",
        "model.model": "practice",
        "model.base_url": base_url,
        "approval.mode": "auto",
        "tools.toolsets": ["terminal", "web", *arm.toolsets],
        "tools.web_allow_private": True,
    }
    every_turn: dict[str, object] = {"review.free_tokens": "1000000000", "review.turns": 1}
    changes = every_turn if arm.has_unlimited_reviews else {}
    if arm.one_conversation:
        changes["model.window_tokens"] = _WHOLE_WINDOW
    settings = load(home, {**flags, **changes}, environ={}).settings
    return await App.start(home, settings, {}, NobodyPresent(), folder / "work")


def _accept_any(claim: Claim, origin: Origin) -> GateVerdict:
    """Accept any claim."""
    return GateVerdict("observed")


def _join_visible(prompt: str, messages: Iterable[Message]) -> str:
    texts = (f"{message.text}\n{message.note}" for message in messages)
    return "\n".join([prompt, *texts])


def _list_with_reviews(connection: apsw.Connection) -> list[sessions.SessionRow]:
    return sessions.list_sessions(connection, _MAX_SESSIONS, kinds=("chat", "review"))
