"""The synchronous face for programs: `with Agent() as agent: agent.run("...")`.

One background event loop per agent carries everything; nothing of the core is written twice. Not to be
called from a running event loop: await `agent.loop.run_turn` there.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home, find_home
from whet.config.secrets import load_secrets
from whet.contract.errors import WhetError
from whet.contract.events import Event, TurnEnd
from whet.contract.protocols import NobodyPresent, Person

T = TypeVar("T")


class Agent:
    """A session that a program talks to. `settings` are as on the command line: {"model.model": "..."}.

    Opens the home, the store and a new session, or the stored `session_id`; use it as a context manager,
    or call `close`. Raises WhetError.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        session_id: str = "",
        workspace: Path | None = None,
        home: Path | None = None,
        person: Person | None = None,
    ) -> None:
        if _in_event_loop():
            raise WhetError(
                "Agent is for synchronous programs", hint="await whet.agent.loop.run_turn instead"
            )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="whet", daemon=True)
        self._thread.start()
        try:
            self._app, self.session = self._wait(
                _open(
                    Home(home) if home else find_home(),
                    settings or {},
                    person or NobodyPresent(),
                    (workspace or Path.cwd()).absolute(),
                    session_id,
                )
            )
        except BaseException:
            self._stop_loop()
            raise

    def run(self, text: str) -> TurnEnd:
        """Run one turn and give its end; everything is stored on return."""
        return self._wait(run_turn(self.session, self.session.user_message(text), lambda event: None))

    def stream(self, text: str) -> Iterator[Event]:
        """Run one turn and yield its events; the last one is the TurnEnd. Leaving early cancels the turn."""
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

        async def turn() -> None:
            try:
                await run_turn(self.session, self.session.user_message(text), events.put)
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

    def close(self) -> None:
        """Close the session's resources and stop the loop; a second call does nothing.

        Reviews that wait are left to a process of their own, unless review.worker is off.
        """
        if self._thread.is_alive():
            self._wait(self._app.reviews.leave())
            self._wait(self._app.aclose())
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


async def _open(
    home: Home, flags: Mapping[str, object], person: Person, workspace: Path, session_id: str
) -> tuple[App, Session]:
    settings = load(home, flags, environ=os.environ).settings
    app = await App.start(home, settings, load_secrets(home, os.environ), person, workspace, source="api")
    try:
        session = await (app.open_session(session_id) if session_id else app.new_session())
    except BaseException:
        await app.aclose()
        raise
    return app, session


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
