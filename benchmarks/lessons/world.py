"""A store, a learning service, and sessions written from short scripts, for trying lessons on the real gate."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whet.clock import SystemClock
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.origin import Origin
from whet.contract.tools import ToolOutput
from whet.memory.reader import MemoryReader
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.memory.service import LearningService
from whet.review.judge import read_claims
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

Request = MemoryRequest | SkillRequest


@dataclass(frozen=True)
class User:
    """The person says something; `is_typed` as in a terminal, which marks what is pasted."""

    text: str
    is_typed: bool = False


@dataclass(frozen=True)
class Say:
    """The assistant answers."""

    text: str


@dataclass(frozen=True)
class Run:
    """The assistant calls a tool; `arguments` is a command for the terminal, else a dict."""

    tool: str
    arguments: str | dict[str, Any]
    result: str
    ok: bool = True

    @property
    def given(self) -> dict[str, Any]:
        """The arguments as the tool gets them."""
        return {"command": self.arguments} if isinstance(self.arguments, str) else self.arguments


Step = User | Say | Run


@dataclass(frozen=True)
class Case:
    """A session and what is tried on it. `marker` is what must not reach a later prompt; `expect` is the state
    that a genuine lesson must end in."""

    name: str
    family: str
    steps: Sequence[Step]
    tries: Sequence[Request]
    marker: str = ""
    before: Sequence[Step] = ()
    expect: Literal["active", "quarantined", "no"] = "active"


@dataclass
class World:
    """One home with its learning service."""

    folder: Path
    limits: MemorySettings = field(
        default_factory=lambda: MemorySettings(memory_chars=200_000, user_chars=100_000, prompt_chars=200_000)
    )
    clock: SystemClock = field(default_factory=SystemClock)
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database = StateDatabase.open(self.folder / "state.db", self.clock)
        self.learning = LearningService(
            MemoryReader(self.database, self.clock, self.folder, (self.limits, ReviewSettings()))
        )

    def close(self) -> None:
        """Close the store."""
        self.database.close()

    async def session(self, steps: Sequence[Step], workspace: str = "") -> str:
        """Store a session that went as `steps` say and give its id."""
        new = NewSession(id=f"s{next(self._count)}-{self.clock.new_id()}", workspace=workspace)
        log = await Transcript.create(self.database, new, self.clock)
        turn = None
        for step in steps:
            if isinstance(step, User):
                if turn is not None:
                    await log.end_turn(turn, "answered", "")
                message = Message("user", step.text, origin="typed" if step.is_typed else "")
                turn = await log.begin_turn(message)
                continue
            assert turn is not None
            if isinstance(step, Say):
                await log.append_reply(turn, Message("assistant", step.text), Usage(), "m")
                continue
            call = ToolCall(self.clock.new_id(), step.tool, json.dumps(step.given))
            await log.append_reply(turn, Message("assistant", "", tool_calls=(call,)), Usage(), "m")
            (open_call,) = log.open_calls(turn)
            await log.store_call_start(turn, open_call, "rule")
            output = ToolOutput(step.result, error_kind="" if step.ok else "exit")
            result = Message(
                "tool", step.result, tool_call_id=call.id, tool_name=step.tool, is_error=not step.ok
            )
            await log.store_call_result(turn, open_call, result, output=output, duration_s=0.1)
            log.live.fold_results()
        if turn is not None:
            await log.end_turn(turn, "answered", "")
        return new.id

    async def _handed_in(
        self, session_id: str, requests: Sequence[Request]
    ) -> tuple[str, list[WriteOutcome]]:
        """Hand requests in as one review of a session; gives the review's own session and the outcomes."""
        child = f"r{next(self._count)}-{self.clock.new_id()}"
        new = NewSession(id=child, parent_session_id=session_id, kind="review")
        await self.database.write(lambda db: sessions.create(db, new, "2026-11-21T00:00:00.000Z"))
        outcomes: list[WriteOutcome] = []
        for number, request in enumerate(requests):
            origin = Origin(
                "review",
                session_id=child,
                tool_call_id=f"c{number}",
                parent_session_id=session_id,
                task_id=child,
            )
            outcomes.append(await self._hand_in(request, origin))
        return child, outcomes

    async def review(self, session_id: str, requests: Sequence[Request]) -> list[tuple[WriteOutcome, str]]:
        """Try requests as one review of a session would; gives each outcome and its final state."""
        child, outcomes = await self._handed_in(session_id, requests)
        rows = await self.database.write(lambda db: self.learning.settle(db, child))
        await self.learning.apply(rows)
        states = {row.id: row.state for row in rows}
        return [(one, states.get(one.ledger_id, "refused")) for one in outcomes]

    async def staged(self, session_id: str, requests: Sequence[Request]) -> list[LedgerRow]:
        """Hand requests in as one review would, and give what would be judged; nothing comes into force."""
        child, _ = await self._handed_in(session_id, requests)
        rows = await self.database.read(lambda db: read_claims(db, child))
        await self.database.write(lambda db: self.learning.discard(db, child))
        return rows

    async def foreground(
        self, session_id: str, requests: Sequence[Request]
    ) -> list[tuple[WriteOutcome, str]]:
        """Try requests as the session's own model would."""
        found: list[tuple[WriteOutcome, str]] = []
        for number, request in enumerate(requests):
            origin = Origin("foreground", session_id=session_id, tool_call_id=f"f{number}")
            outcome = await self._hand_in(request, origin)
            found.append((outcome, outcome.state))
        return found

    async def prompt(self) -> str:
        """Give all that a later session could read: its prompt, and every skill in force."""
        part = await self.learning.reader.build_prompt_part()
        texts = [part.text]
        for info in self.learning.library.all():
            texts += [path.read_text("utf-8") for path in info.folder.rglob("*") if path.is_file()]
        return "\n".join(texts)

    async def _hand_in(self, request: Request, origin: Origin) -> WriteOutcome:
        if isinstance(request, MemoryRequest):
            return await self.learning.submit(request, origin)
        return await self.learning.submit(request, origin)


def add(content: str, *quotes: str, target: Literal["memory", "user"] = "memory") -> MemoryRequest:
    """A request to remember."""
    return MemoryRequest("add", target, content, evidence=quotes)


def create(name: str, description: str, body: str, *quotes: str) -> SkillRequest:
    """A request to make a skill."""
    text = f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"
    return SkillRequest("create", name, content=text, evidence=quotes)


def run(work: Any) -> Any:
    """Run to the end."""
    return asyncio.run(work)
