"""The practice server: answers like a model server over real HTTP, but scripted, without a language model.

It runs in a thread with its own event loop, so tests and the demo get a server in a few milliseconds;
`whet practice serve` runs the same server. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from whet.contract.errors import Unavailable
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.endpoints import Practice, RecordedRequest
from whet_lab.practice.responder import answer
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.strict import Options


class _Server(uvicorn.Server):
    """uvicorn without its 100 ms ticks: it sets `started`, waits for `stopping`, and closes at once."""

    def __init__(self, app: ASGIApp, started: threading.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=600,
            )
        )
        self._started = started
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Serve until `stopping` is set."""
        self.loop = asyncio.get_running_loop()
        self._started.set()
        await self.stopping.wait()

    def hang_up(self, client: object) -> None:
        """Close the connection of this address without an answer."""
        for connection in self._connections():
            if connection.client == client:
                connection.transport.abort()

    def _connections(self) -> list[H11Protocol]:
        # The Config above sets h11, so all connections have this type.
        return [
            connection for connection in self.server_state.connections if isinstance(connection, H11Protocol)
        ]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drop every connection, stalled ones too, and close the socket."""
        for server in self.servers:
            # Let connections accepted just now register first: a closed server would lose their sockets.
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(2):
                await asyncio.sleep(0)
            server.close()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections():
            connection.transport.abort()
        while self.server_state.connections:
            await asyncio.sleep(0)
        for server in self.servers:
            await server.wait_closed()


class PracticeServer:
    """A practice server on 127.0.0.1. Start it, or use it as a context manager. Port 0 picks a free port.

    `seed` goes into response ids and the signatures of thinking blocks; `responder` answers if there is no
    script.
    """

    def __init__(
        self,
        port: int = 0,
        script: Iterable[ScriptedReply] | None = None,
        seed: int = 0,
        options: Options | None = None,
        responder: Callable[[PracticeRequest], ScriptedReply] = answer,
    ) -> None:
        self._port = port
        self._practice = Practice(options or Options(), seed, script, responder)
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None

    def start(self) -> Self:
        """Listen, and return once requests are accepted. Raises Unavailable if the port can't be used."""
        # With the protocol named, asyncio disables Nagle's algorithm; otherwise an answer waits 40 ms for an
        # ACK.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self._port))
        except OSError as error:
            listener.close()
            raise Unavailable(
                f"port {self._port} can't be used: {error.strerror}",
                hint="take another with --port, 0 for any",
            ) from error
        self._port = listener.getsockname()[1]
        self._server = _Server(self._practice.app(), self._started)
        self._practice.gate.hang_up = self._server.hang_up
        self._thread = threading.Thread(
            target=_serve, args=(self._server, listener), name="practice-server", daemon=True
        )
        self._thread.start()
        self._started.wait(10)
        return self

    def stop(self) -> None:
        """Drop every connection and end the thread. A second call does nothing."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None or server.loop is None:
            return
        server.loop.call_soon_threadsafe(server.stopping.set)
        thread.join(10)
        self._started.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The root, which Anthropic's clients use as base URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The root with /v1, which OpenAI's clients use as base URL."""
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests to the model endpoints, oldest first."""
        return self._practice.requests

    @property
    def count(self) -> int:
        """The number of requests to the model endpoints, including those no longer stored."""
        return self._practice.count

    def wait_for_request(self, number: int, timeout: float = 30.0) -> RecordedRequest:
        """Wait until `number` requests have arrived in all, and return the newest. Raises TimeoutError."""
        self._wait(lambda: self._practice.count >= number, timeout, f"request {number}")
        return self.requests[-1]

    def wait_for_stall(self, number: int = 1, timeout: float = 30.0) -> None:
        """Wait until `number` answers have stalled in all. Raises TimeoutError."""
        self._wait(lambda: self._practice.stalls >= number, timeout, f"stall {number}")

    def release(self) -> None:
        """Let the stalled answers continue."""
        if self._server is not None and self._server.loop is not None:
            self._server.loop.call_soon_threadsafe(self._practice.gate.release)

    def install(self, script: Iterable[ScriptedReply] | None) -> None:
        """Answer from this script from now on; None returns to the responder."""
        self._practice.install(script)

    def reset(self) -> None:
        """Discard script, cache and requests."""
        self._practice.reset()

    def _wait(self, condition: Callable[[], bool], timeout: float, event_name: str) -> None:
        with self._practice.arrived:
            if not self._practice.arrived.wait_for(condition, timeout):
                raise TimeoutError(f"the practice server saw no {event_name} within {timeout:g} s")


def _serve(server: _Server, listener: socket.socket) -> None:
    with asyncio.Runner() as runner:
        runner.run(server.serve([listener]))
