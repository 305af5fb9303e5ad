"""A session on real parts: SQLite on disk, HTTP to the practice server, tools that leave traces in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from whet.agent.loop import run_turn
from whet.agent.session import Session, TurnLimits, TurnObserver
from whet.clock import Clock, SystemClock
from whet.config.schema import FallbackSettings, ModelSettings
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.engines import NoEngine, list_engine_tools
from whet.context.host import EngineHost
from whet.contract.context_engine import ContextEngine
from whet.contract.errors import BadInput, StoreError
from whet.contract.events import Emit, Event, TurnEnd
from whet.contract.messages import Message, Part
from whet.contract.protocols import Decision, GateCall, NobodyPresent, Person
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.plugins.hermes import await_real_usage
from whet.providers.backoff import Backoff
from whet.providers.connect import connect
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript
from whet.tools.signature import tool
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

E = TypeVar("E")


@dataclass
class ListGate:
    """Denies the tools named; keeps the order in which it was asked."""

    denied: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    broken: bool = False
    by_service: bool = False
    reported: list[tuple[str, str]] = field(default_factory=list)
    takes: Callable[[], Awaitable[None]] | None = None

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        if self.broken:
            raise RuntimeError("the policy has a bug")
        self.asked.append(call.call.id)
        if self.takes is not None:
            await self.takes()
        if call.tool.name in self.denied:
            return Decision("deny", "nobody", "nobody was there to ask")
        return Decision("allow", "service" if self.by_service else "rule")

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        self.reported.append((call.call.id, output.error_kind))


def traced_tools(folder: Path) -> list[Tool]:
    """Tools whose every run is a line in `folder`/trace."""

    def trace(line: str) -> None:
        with (folder / "trace").open("a") as file:
            file.write(line + "\n")

    @tool(toolset="file", effects={"read"}, parallel=True, repeatable=True)
    async def look(ctx: ToolContext, at: str = "") -> str:
        """Look."""
        trace(f"look {at}")
        return f"saw {at}"

    @tool(toolset="file", effects={"write"})
    async def put(ctx: ToolContext, what: str) -> str:
        """Put."""
        trace(f"put {what}")
        return f"put {what}"

    @tool(toolset="file", effects={"read"}, parallel=True, repeatable=True)
    async def meet(ctx: ToolContext, name: str, other: str) -> str:
        """Wait until the other call has started: only overlapping calls can."""
        (folder / f"met-{name}").touch()
        async with asyncio.timeout(30):
            while not (folder / f"met-{other}").exists():
                await asyncio.sleep(0)
        return f"{name} met {other}"

    @tool(toolset="file", effects={"execute"}, timeout_s=0.05)
    async def hang(ctx: ToolContext) -> str:
        """Never end."""
        trace("hang")
        await asyncio.Event().wait()
        return ""

    @tool(toolset="file", effects={"execute"}, timeout_s=None)
    async def wait(ctx: ToolContext) -> str:
        """Never end, without a limit."""
        trace("wait")
        ctx.output("waiting")
        await asyncio.Event().wait()
        return ""

    @tool(toolset="file", effects={"read"})
    async def fail(ctx: ToolContext, why: str = "no luck") -> ToolOutput:
        """Fail."""
        trace("fail")
        raise BadInput(why, hint="try another")

    @tool(toolset="file", effects={"read"})
    async def crash(ctx: ToolContext, late: bool = False) -> str:
        """Have a bug, or be left without an answer."""
        raise TimeoutError("no answer") if late else ZeroDivisionError("oops")

    @tool(toolset="file", effects={"read"}, output_cap_chars=1000)
    async def shout(ctx: ToolContext) -> str:
        """Say a lot."""
        return "x" * 5000

    return [look, put, meet, hang, wait, fail, crash, shout]


@dataclass
class Rig:
    """A session and what it runs on."""

    session: Session
    server: PracticeServer
    database: StateDatabase
    gate: ListGate
    folder: Path
    events: list[Event] = field(default_factory=list)

    async def turn(self, content: str | tuple[Part, ...] | None) -> TurnEnd:
        message = None if content is None else Message("user", content)
        return await run_turn(self.session, message, self.events.append)

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def trace(self) -> list[str]:
        path = self.folder / "trace"
        return path.read_text().splitlines() if path.exists() else []


class FullDisk(StateDatabase):
    """Fails one write while it is armed."""

    armed = False

    async def append(self, work: Any, after: Any = None, scope: str = "") -> Any:
        if self.armed:
            FullDisk.armed = False
            error = StoreError("the disk is full", hint="make room")
            after(None, error)
            raise error
        return await super().append(work, after, scope)


@asynccontextmanager
async def rig(
    folder: Path,
    script: Iterable[ScriptedReply] | None = None,
    *,
    server: PracticeServer | None = None,
    session_id: str = "",
    limits: TurnLimits | None = None,
    clock: Clock | None = None,
    wire: str = "chat_completions",
    database: StateDatabase | None = None,
    engine: ContextEngine | None = None,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 frozen
    spare: ContextEngine | None = None,
    window: int = 0,
    observers: Sequence[TurnObserver] = (),
    person: Person = NobodyPresent(),  # noqa: B008 it has no state
    more_tools: Sequence[Tool] = (),
    backoff: Backoff | None = None,
    provider_name: str = "practice",
) -> AsyncIterator[Rig]:
    """Open a session, new or `session_id`'s, in `folder`; closes everything it opened."""
    clock = clock or SystemClock()
    own_server = server is None
    server = server or PracticeServer(script=script).start()
    store = database or StateDatabase.open(folder / "state.db", clock)
    settings = ModelSettings(
        provider=provider_name,
        base_url=server.base_url,
        model="practice",
        format=wire,  # type: ignore[arg-type]
        window_tokens=window,
    )
    provider = connect(settings, FallbackSettings(), {}, backoff=backoff)
    tools = [*traced_tools(folder), *more_tools]
    if session_id:
        log = await Transcript.open(store, session_id, clock)
    else:
        log = await Transcript.create(store, NewSession(id=clock.new_id(), workspace=str(folder)), clock)
    gate = ListGate()
    seat = EngineRunner.wrap(engine or NoEngine(), deadlines, await_real_usage)
    await seat.set_model(provider.info, provider.info.window_tokens, HostFacts(lambda: provider.info))
    tools += await list_engine_tools(seat, [one.name for one in tools])

    async def make_spare() -> EngineRunner | None:
        return EngineRunner.wrap(spare, deadlines, await_real_usage) if spare else None

    facts = HostFacts(lambda: session.link.info, str(folder), "cli", fixed_tokens=100)
    host = EngineHost(log, seat, facts, make_spare)
    session = Session(
        log=log,
        link=provider.open("You are a test.", [one.spec for one in tools], log.session.id),
        context=host,
        tools={one.name: one for one in tools},
        gate=gate,
        person=person,
        limits=limits or TurnLimits(steps=90, turn_s=60),
        clock=clock,
        workspace=folder,
        observers=observers,
    )
    await host.begin()
    try:
        yield Rig(session, server, store, gate, folder)
    finally:
        await host.aclose()
        await provider.aclose()
        store.close()
        if own_server:
            server.stop()


def calls(*wanted: tuple[str, str], text: str = "") -> ScriptedReply:
    """A reply that asks for tools: (name, arguments JSON) each."""
    return ScriptedReply(
        text=text, tool_calls=tuple(PracticeCall(name, arguments) for name, arguments in wanted)
    )
