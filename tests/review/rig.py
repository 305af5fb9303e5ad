"""A program with reviews on real parts, and a conversation in which something is to be learned."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import list_jobs
from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.events import Event, ReviewFinished, ReviewQueued, TurnEnd
from whet.contract.protocols import NobodyPresent
from whet.store import jobs, ledger, reviews
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

TITLE = "Self-improvement review"
SAID = "No, the tests run with ./check --fast in this project."
AGAIN = "No, that is wrong too, the tests run with ./other-check."


def use(tool: str, **arguments: Any) -> PracticeCall:
    return PracticeCall(tool, json.dumps(arguments))


def says(text: str, when: str = "") -> ScriptedReply:
    return ScriptedReply(text, when=when)


def does(*calls: PracticeCall, when: str = "") -> ScriptedReply:
    return ScriptedReply("", tool_calls=calls, when=when)


def remember(content: str, quote: str, **more: Any) -> PracticeCall:
    return use("memory", action="add", content=content, evidence=[quote], **more)


LESSON = remember("The tests run with ./check --fast, not with pytest.", "the tests run with ./check --fast")


@dataclass
class Bench:
    """An open program, its session, and what was said in it."""

    app: App
    session: Session
    server: PracticeServer
    home: Path
    events: list[Event] = field(default_factory=list)

    async def turn(self, text: str) -> TurnEnd:
        return await run_turn(self.session, self.session.user_message(text), self.events.append)

    @property
    def queued(self) -> list[ReviewQueued]:
        return [event for event in self.events if isinstance(event, ReviewQueued)]

    async def review(self) -> list[ReviewFinished]:
        return await self.app.reviews.drain()

    def memory(self) -> str:
        path = self.home / "memories" / "MEMORY.md"
        return path.read_text() if path.exists() else ""

    def rows(self) -> list[ledger.LedgerRow]:
        return self.app.database.read_now(lambda db: ledger.select(db))[::-1]

    def listed(self) -> list[reviews.ReviewRow]:
        return self.app.database.read_now(lambda db: reviews.list_reviews(db))

    def jobs(self) -> list[jobs.Job]:
        return self.app.database.read_now(lambda db: list_jobs(db, kinds=("review",)))


@asynccontextmanager
async def bench(
    tmp_path: Path,
    script: Sequence[ScriptedReply] | None = None,
    *,
    server: PracticeServer | None = None,
    session_id: str = "",
    settings: Mapping[str, object] | None = None,
    wire: str = "chat_completions",
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Bench]:
    own = server is None
    server = server or PracticeServer(script=script).start()
    home = Home(tmp_path / "home")
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    flags = {
        "model.provider": "practice",
        "model.base_url": server.url if wire == "anthropic_messages" else server.base_url,
        "model.model": "practice",
        "model.format": wire,
        "model.max_retries": "0",
        "approval.mode": "auto",
        **(settings or {}),
    }
    loaded = load(home, flags, environ=os.environ).settings
    app = await App.start(
        home, loaded, load_secrets(home, {**os.environ, **(environ or {})}), NobodyPresent(), work
    )
    try:
        session = await (app.open_session(session_id) if session_id else app.new_session())
        yield Bench(app, session, server, home.root)
    finally:
        await app.aclose()
        if own:
            server.stop()


def corrected(*reviewing: ScriptedReply) -> list[ScriptedReply]:
    """A conversation whose second message corrects the agent, then what the review does."""
    return [says("I ran pytest."), says("Understood: ./check --fast."), *reviewing]


async def talk(b: Bench) -> None:
    """Hold that conversation."""
    await b.turn("Run the tests")
    await b.turn(SAID)
