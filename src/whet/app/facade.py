"""The library's API: `async with AsyncAgent() as agent`, and `with Agent() as agent` without an event loop.

`Agent` runs an `AsyncAgent` on an event loop in its own thread, so everything is implemented once.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.conversations.hosted import wait_for_end
from whet.app.program_tools import add_functions, check_options
from whet.config.load import load, names_model
from whet.config.paths import Home, find_home
from whet.config.secrets import load_secrets
from whet.contract.errors import WhetError
from whet.contract.events import Emit, Event, Notice, TurnEnd
from whet.contract.messages import ImagePart, Message, Usage
from whet.contract.protocols import NobodyPresent, Person
from whet.contract.tools import Tool
from whet.store import lesson_counts

T = TypeVar("T")


class AgentOptions(TypedDict, total=False):
    """The options of an agent.

    `settings` are as on the command line: {"model.model": "..."}. `session_id` continues a stored session.
    `tools` are functions, sync or async, and `Tool`s. `person` answers the gate's questions; without one,
    calls that need an answer are denied.
    """

    settings: Mapping[str, object]
    session_id: str
    workspace: Path | str
    home: Path | str
    person: Person
    tools: Sequence[Tool | Callable[..., object]]


class _OpenedAgent(msgspec.Struct, frozen=True):
    app: App
    session: Session


class AsyncAgent:
    """A session that a program talks to. `async with` opens home, store and session, and closes them.

    The arguments are those of `AgentOptions`. Turns run one at a time, in the order of the calls. Errors
    outside of a turn raise WhetError; how a turn ended is in its TurnEnd.
    """

    def __init__(self, **options: Unpack[AgentOptions]) -> None:
        check_options("whet.Agent", options, AgentOptions)
        self._options = options
        self._opened: _OpenedAgent | None = None
        self._turn_lock = asyncio.Lock()
        self._turn: asyncio.Task[TurnEnd] | None = None
        self._notices: list[str] = []

    @property
    def notices(self) -> Sequence[str]:
        """The notices about the last turn that a person must read, e.g. that the answer was cut."""
        return tuple(self._notices)

    @property
    def session_id(self) -> str:
        """The session's id. Another agent can continue it with `session_id=`, also after a crash."""
        return self._session.id

    @property
    def messages(self) -> Sequence[Message]:
        """The session's transcript so far."""
        return tuple(self._session.log.messages)

    @property
    def usage(self) -> Usage:
        """The session's total usage, earlier turns included."""
        return self._session.usage

    async def run(self, text: str, images: Sequence[ImagePart] = ()) -> TurnEnd:
        """Run one turn and return its end; everything is stored on return.

        If the caller is cancelled, the turn is cancelled. After a call of `cancel` the end's reason is
        "cancelled".
        """
        return await self._run(text, images, lambda event: None)

    async def stream(self, text: str, images: Sequence[ImagePart] = ()) -> AsyncGenerator[Event]:
        """Run one turn and yield its events; the last one is the TurnEnd. Closing the generator early cancels
        the turn."""
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
        """Add a message to the running turn; the model reads it before its next step. Raises WhetError if no
        turn is running."""
        if self._turn is None:
            raise WhetError("no turn is running", hint="run(...) begins one")
        self._session.steer(text)

    def cancel(self) -> bool:
        """Cancel the running turn. Returns False if no turn is running."""
        return self._turn is not None and self._turn.cancel()

    async def learned(self) -> lesson_counts.LearningNews:
        """Return the lessons that reviews activated, rejected or set aside since the last report; its `line`
        is the summary.

        Each change is reported once in total: here, in a chat or in a one-shot's output.
        """
        return await self._open.app.database.append(lesson_counts.take_unread)

    async def aclose(self) -> None:
        """Cancel a running turn and close everything that was opened; a second call does nothing.

        Waiting reviews are left to a separate process, unless review.worker is off.
        """
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.app.leave_reviews()
            await opened.app.aclose()

    async def __aenter__(self) -> Self:
        options = self._options
        home = Home(Path(options["home"])) if "home" in options else find_home()
        settings = load(home, options.get("settings", {}), environ=os.environ).settings
        workspace = Path(options.get("workspace") or Path.cwd()).absolute()
        person = options.get("person", NobodyPresent())
        secrets = load_secrets(home, os.environ)
        app = await App.start(home, settings, secrets, person, workspace, source="api")
        try:
            if tools := options.get("tools"):
                offered = app.services.tools
                offered.offer(add_functions(offered.registry, tools, app.services.pool))
            session_id, is_chosen = options.get("session_id", ""), names_model(options.get("settings", {}))
            session = await (
                app.open_session(session_id, model_chosen=is_chosen)
                if session_id
                else app.new_session(model_chosen=is_chosen)
            )
        except BaseException:
            await app.aclose()
            raise
        self._opened = _OpenedAgent(app, session)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def _open(self) -> _OpenedAgent:
        if self._opened is None:
            raise WhetError("the agent is not open", hint="async with whet.AsyncAgent(...) as agent")
        return self._opened

    @property
    def _session(self) -> Session:
        return self._open.session

    async def _run(self, text: str, images: Sequence[ImagePart], emit: Emit) -> TurnEnd:
        async with self._turn_lock:
            session = self._session
            began_s = session.clock.monotonic_s()
            notices = self._notices = list[str]()

            def note(event: Event) -> None:
                if isinstance(event, Notice) and event.must_show:
                    notices.append(event.text)
                emit(event)

            turn = self._turn = asyncio.create_task(
                run_turn(session, session.user_message(text, images), note)
            )
            try:
                return await wait_for_end(turn, session, began_s, emit)
            finally:
                self._turn = None


class Agent:
    """An `AsyncAgent` for programs without an event loop, with the same arguments and methods. Each method
    blocks until it is done. The agent is open once it is created: use it as a context manager, or call
    `close`.

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
        """The session's id. Another agent can continue it with `session_id=`, also after a crash."""
        return self._agent.session_id

    @property
    def messages(self) -> Sequence[Message]:
        """The session's transcript so far."""
        return self._agent.messages

    @property
    def notices(self) -> Sequence[str]:
        """The notices about the last turn that a person must read, e.g. that the answer was cut."""
        return self._agent.notices

    @property
    def usage(self) -> Usage:
        """The session's total usage, earlier turns included."""
        return self._agent.usage

    def run(self, text: str, images: Sequence[ImagePart] = ()) -> TurnEnd:
        """Run one turn and return its end; everything is stored on return."""
        return self._wait(self._agent.run(text, images))

    def stream(self, text: str, images: Sequence[ImagePart] = ()) -> Generator[Event]:
        """Run one turn and yield its events; the last one is the TurnEnd. Closing the generator early cancels
        the turn."""
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

        async def turn() -> None:
            try:
                async for event in self._agent.stream(text, images):
                    events.put(event)
            finally:
                # not when the future is done: a cancelled future is done before its turn has ended
                events.put(None)

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
        """Add a message to the running turn; the model reads it before its next step. Raises WhetError if no
        turn is running."""
        self._wait(_call(lambda: self._agent.steer(text)))

    def cancel(self) -> bool:
        """Cancel the running turn. Returns False if no turn is running."""
        return self._wait(_call(self._agent.cancel))

    def learned(self) -> lesson_counts.LearningNews:
        """Return the lessons that reviews activated, rejected or set aside since the last report."""
        return self._wait(self._agent.learned())

    def close(self) -> None:
        """Close the session's resources and stop the loop; a second call does nothing.

        Waiting reviews are left to a separate process, unless review.worker is off.
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


async def _call(function: Callable[[], T]) -> T:
    return function()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
