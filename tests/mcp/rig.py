"""Servers for tests, and one way to use them as a program does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.support import FixedClock
from tests.tools.running import context
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, McpSettings
from whet.contract.errors import ToolError
from whet.contract.tools import ToolOutput
from whet.mcp.first_start import StartWait
from whet.mcp.remote import RemoteParts
from whet.mcp.servers import Servers
from whet.mcp.stdio import ServerJail
from whet.tools.guardian import Guardian

HERE = Path(__file__).parent
SDK = McpServerSettings(command=sys.executable, args=(str(HERE / "sdk_server.py"),))


def odd(fault: str, journal: Path | None = None, **more: Any) -> McpServerSettings:
    given = (str(HERE / "odd_server.py"), fault, *([str(journal)] if journal else []))
    return McpServerSettings(command=sys.executable, args=("-S", "-E", *given), **more)


def text_of(answer: Any) -> str:
    """Give the text of an SDK's answer: of its first part, where it has parts."""
    return (answer.content[0] if hasattr(answer, "content") else answer).text


class Session:
    """What a server's news reach."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def add_notice(self, text: str, *, must_show: bool = False) -> None:
        self.notices.append(text)


class Bench:
    """Servers in use: what was told, how long was waited, and a call as a session makes it."""

    def __init__(self, servers: Servers, clock: FixedClock, session: Session, waits: list[float]) -> None:
        self.servers = servers
        self.clock = clock
        self.session = session
        self.waits = waits
        self.shown: list[str] = []
        """What calls showed while they ran."""
        self.answers: list[str | None] = []
        """What the person says to the questions to come; nobody is there when it is empty."""
        self.asked: list[tuple[str, list[str]]] = []
        """The questions that were put, with the answers to pick from."""

    @property
    def told(self) -> list[str]:
        """The notices so far."""
        return self.session.notices

    async def call(self, name: str, /, **arguments: Any) -> ToolOutput:
        """Call a tool by its full name; a failure comes as dispatch gives it."""
        tool = next(one for one in self.servers.tools() if one.name == name)
        try:
            return await tool.run(replace(context(), output=self.shown.append, ask=self._ask), arguments)
        except ToolError as error:
            return ToolOutput(f"{error.message}. {error.hint}".strip(), error_kind=error.kind)

    async def _ask(self, question: str, choices: Sequence[str]) -> str | None:
        self.asked.append((question, list(choices)))
        return self.answers.pop(0) if self.answers else None


@asynccontextmanager
async def bench(
    home: Path,
    servers: Mapping[str, McpServerSettings],
    secrets: Mapping[str, str] | None = None,
    jail: Callable[[str, McpServerSettings], ServerJail | None] | None = None,
    wait_s: float = 30.0,
    wait: StartWait | None = None,
) -> AsyncGenerator[Bench]:
    """Begin a session with these servers; every wait in here has a limit. The first start waits `wait_s`."""
    clock, session, waits = FixedClock(), Session(), list[float]()

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)
        await asyncio.sleep(0)

    reach = RemoteParts(Home(home), secrets or {}, clock, Guardian(), pause, jail=jail, wait_s=wait_s)
    both = Servers(McpSettings(servers=dict(servers)), reach)
    both.attach_sink((), session)
    try:
        async with asyncio.timeout(60):
            await both.learn(wait)
            yield Bench(both, clock, session, waits)
    finally:
        await both.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something that another process causes is so, at most half a minute."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
