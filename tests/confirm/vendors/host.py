"""Runs an ASGI app on a free loopback port in a thread, and stops at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp

from whet.web.listening import stop_accepting


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, started: threading.Event) -> None:
        quiet: Any = {"lifespan": "off", "log_config": None, "log_level": "critical"}
        super().__init__(uvicorn.Config(app, loop="asyncio", http="h11", ws="wsproto", **quiet))
        self._started = started
        self.stopping = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._started.set()
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await stop_accepting(server)
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        while any(vars(server)["_active_count"] for server in self.servers):
            for connection in list(self.server_state.connections):
                transport: Any = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(0)


class Host:
    """A vendor's server next to the test: recorded calls, faults to hand out, and a condition to wait on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.faults: dict[str, list[Any]] = {}
        self._started = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    def app(self) -> ASGIApp:
        raise RuntimeError("each vendor has its own")

    def fail_next(self, method: str, *faults: Any) -> None:
        """Answer the next calls of `method` with these faults: (status, body, headers) or "hang"."""
        with self.changed:
            self.faults.setdefault(method, []).extend(faults)

    def next_fault(self, method: str) -> Any:
        with self.changed:
            waiting = self.faults.get(method)
            return waiting.pop(0) if waiting else None

    def note(self, change: Callable[[], object] = lambda: None) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 40.0) -> Any:
        """Wait until `condition` gives something true, and give it; it may be of what nobody notes here."""
        until_s = time.monotonic() + timeout_s
        with self.changed:
            while not (found := condition()):
                if time.monotonic() > until_s:
                    raise TimeoutError(f"never saw: {what}")
                self.changed.wait(0.1)
            return found

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop."""
        assert self._server is not None and self._server.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._server.loop).result(30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # it may start again at its port
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._server = _Server(self.app(), self._started)
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None and self._thread is not None and self._server.loop is not None
        with contextlib.suppress(RuntimeError):
            self._server.loop.call_soon_threadsafe(self._server.stopping.set)
        self._thread.join(30)

    def _run(self, listener: socket.socket) -> None:
        assert self._server is not None
        with asyncio.Runner() as runner:
            runner.run(self._server.serve([listener]))


class ChatHost(Host):
    """A vendor's server where people write to a bot."""

    write: Callable[..., Any]
    """Have somebody write a text in a chat."""
    said: Callable[..., list[str]]
    """Return what the bot has said in a chat."""
    own_chat: Any = ""
    """The chat that is meant if a test names none."""

    def ask(self, text: str, answer: str, chat: Any = None, **more: Any) -> None:
        """Have somebody write, and wait until the bot has said `answer` in that chat."""
        self.write(text, chat or self.own_chat, **more)
        self.wait_said(answer, chat)

    def wait_said(self, text: str, chat: Any = None, timeout_s: float = 40.0) -> list[str]:
        """Wait until the bot has said a text with `text` in it, and return all that it said."""
        place = chat or self.own_chat

        def find() -> list[str] | None:
            texts = self.said(place)
            return texts if any(text in message for message in texts) else None

        return self.wait(find, f"{text!r} in {place}", timeout_s)
