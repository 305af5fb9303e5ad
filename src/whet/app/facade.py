"""The agent for programs: `async with AsyncAgent() as agent`, and `with Agent() as agent` without a loop.

`Agent` drives an `AsyncAgent` on a loop of its own in a thread; what a turn does is written once. What an
agent can do beyond this page is the work of the modules that it puts together.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar, Unpack

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.hosted import end_of
from whet.app.program_tools import with_functions
from whet.config.load import load
from whet.config.paths import Home, find_home
from whet.config.secrets import load_secrets
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event, TurnEnd
from whet.contract.messages import ImagePart, Message, Usage
from whet.contract.protocols import NobodyPresent, Person
from whet.contract.tools import Tool
from whet.store import news
from whet.store.news import LearningNews

T = TypeVar("T")


class AgentOptions(TypedDict, total=False):
    """`settings` are as on the command line: {"model.model": "..."}. `session_id` goes on with a stored
    session. `tools` are functions, sync or async, and `Tool`s. `person` answers the gate's questions; without
    one what needs an answer is denied."""

    settings: Mapping[str, object]
    session_id: str
    workspace: Path
    home: Path
    person: Person
    tools: Sequence[Tool | Callable[..., object]]


class AsyncAgent:
    """A session that a program talks to; `async with` opens home, store and session, and closes them.

    The arguments are those of `AgentOptions`. Turns run one at a time, in the order of the calls. What goes
    wrong outside of a turn raises WhetError; how a turn ended is in its TurnEnd.
    """

    def __init__(self, **options: Unpack[AgentOptions]) -> None:
        self._options = options
        self._opened: tuple[App, Session] | None = None
        self._one_turn = asyncio.Lock()
        self._turn: asyncio.Task[TurnEnd] | None = None

    @property
    def session_id(self) -> str:
        """The session's id; with `session_id=` another agent goes on with it, also after a crash."""
        return self._session.id

    @property
    def messages(self) -> Sequence[Message]:
        """The session's transcript so far."""
        return tuple(self._session.log.messages)

    @property
    def usage(self) -> Usage:
        """What the session has spent, earlier turns included."""
        return self._session.usage

    async def run(self, text: str, images: Sequence[ImagePart] = ()) -> TurnEnd:
        """Run one turn and give its end; everything is stored on return. A cancel of the caller cancels it;
        after `cancel` the end's reason is cancelled."""
        return await self._run(text, images, lambda event: None)

    async def stream(self, text: str, images: Sequence[ImagePart] = ()) -> AsyncGenerator[Event]:
        """Run one turn and yield its events; the last one is the TurnEnd. Leaving early cancels the turn,
        when the generator is closed."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        turn = asyncio.create_task(self._run(text, images, events.put_nowait))
        turn.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await turn
        finally:
            turn.cancel()
            await asyncio.wait({turn})

    def steer(self, text: str) -> None:
        """Give the running turn a message; the model reads it before its next step."""
        if self._turn is None:
            raise WhetError("no turn is running", hint="run(...) begins one")
        self._session.steer(text)

    def cancel(self) -> bool:
        """Cancel the turn that runs; False where none does."""
        return self._turn is not None and self._turn.cancel()

    async def learned(self) -> LearningNews:
        """Give what reviews brought into force, were refused and put aside since this was last told, here, in
        a chat or in a one-shot's object; its `line` says it. It is told once."""
        database = self._parts[0].database
        return await database.append(news.tell)

    async def aclose(self) -> None:
        """Cancel a running turn and close what was opened; a second call does nothing.

        Reviews that wait are left to a process of their own, unless review.worker is off.
        """
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].reviews.leave()
            await opened[0].aclose()

    async def __aenter__(self) -> Self:
        options = self._options
        home = Home(options["home"]) if "home" in options else find_home()
        settings = load(home, options.get("settings", {}), environ=os.environ).settings
        workspace = options.get("workspace", Path.cwd()).absolute()
        person = options.get("person", NobodyPresent())
        secrets = load_secrets(home, os.environ)
        app = await App.start(home, settings, secrets, person, workspace, source="api")
        try:
            if given := options.get("tools"):
                app.tools = with_functions(app.tools, given, app.pool)
                app.learning.trust(app.tools.by_name.values())
            wanted = options.get("session_id", "")
            self._opened = app, await (app.open_session(wanted) if wanted else app.new_session())
        except BaseException:
            await app.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def _parts(self) -> tuple[App, Session]:
        if self._opened is None:
            raise WhetError("the agent is not open", hint="async with whet.AsyncAgent(...) as agent")
        return self._opened

    @property
    def _session(self) -> Session:
        return self._parts[1]

    async def _run(self, text: str, images: Sequence[ImagePart], emit: Emit) -> TurnEnd:
        async with self._one_turn:
            session = self._session
            began_s = session.clock.monotonic_s()
            turn = self._turn = asyncio.create_task(
                run_turn(session, session.user_message(text, images), emit)
            )
            try:
                return await end_of(turn, session, began_s, emit)
            finally:
                self._turn = None


class Agent:
    """An `AsyncAgent` for programs without an event loop: the same arguments, the same methods, each of which
    returns when it is done. Opened when it is made; use it as a context manager, or call `close`.

    `steer` and `cancel` may be called from other threads while `run` or `stream` works.
    """

    def __init__(self, **options: Unpack[AgentOptions]) -> None:
        if _in_event_loop():
            raise WhetError("Agent would block the event loop", hint="async with whet.AsyncAgent() as agent")
        self._agent = AsyncAgent(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="whet", daemon=True)
        self._thread.start()
        try:
            self._wait(self._agent.__aenter__())
        except BaseException:
            self._stop_loop()
            raise

    @property
    def session_id(self) -> str:
        """The session's id; with `session_id=` another agent goes on with it, also after a crash."""
        return self._agent.session_id

    @property
    def messages(self) -> Sequence[Message]:
        """The session's transcript so far."""
        return self._agent.messages

    @property
    def usage(self) -> Usage:
        """What the session has spent, earlier turns included."""
        return self._agent.usage

    def run(self, text: str, images: Sequence[ImagePart] = ()) -> TurnEnd:
        """Run one turn and give its end; everything is stored on return."""
        return self._wait(self._agent.run(text, images))

    def stream(self, text: str, images: Sequence[ImagePart] = ()) -> Generator[Event]:
        """Run one turn and yield its events; the last one is the TurnEnd. Leaving early cancels the turn."""
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

        async def turn() -> None:
            try:
                async for event in self._agent.stream(text, images):
                    events.put(event)
            finally:
                events.put(None)  # not by the future: a cancelled one is done before its turn has ended

        future = asyncio.run_coroutine_threadsafe(turn(), self._loop)
        try:
            while (event := events.get()) is not None:
                yield event
            future.result()
        finally:
            if not future.done():
                future.cancel()
                while events.get() is not None:
                    pass

    def steer(self, text: str) -> None:
        """Give the running turn a message; the model reads it before its next step."""
        self._wait(_called(lambda: self._agent.steer(text)))

    def cancel(self) -> bool:
        """Cancel the turn that runs; False where none does."""
        return self._wait(_called(self._agent.cancel))

    def learned(self) -> LearningNews:
        """Give what reviews learned, were refused and put aside since this was last told."""
        return self._wait(self._agent.learned())

    def close(self) -> None:
        """Close the session's resources and stop the loop; a second call does nothing.

        Reviews that wait are left to a process of their own, unless review.worker is off.
        """
        if self._thread.is_alive():
            self._wait(self._agent.aclose())
            self._stop_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _called(function: Callable[[], T]) -> T:
    return function()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
