"""A listening socket and a uvicorn that starts, says so, and ends as a program of ours should.

Knows no application.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from whet.contract.errors import ConfigError
from whet.web.beat import in_step
from whet.web.protocol import LimitedProtocol

BACKLOG = 4096


class SiteServer(uvicorn.Server):
    """uvicorn that stops at SIGTERM and SIGINT with exit code 0; `on_stop` wakes those who wait. Beside
    another server of the process, signals are that one's (`takes_signals` False) and it calls `stop`."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
        *,
        takes_signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._takes_signals = takes_signals
        self.stopping: asyncio.Event = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop at a signal; a second one does not wait for anybody."""
        if not self._takes_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for number in handled:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        self._on_ready()

    async def main_loop(self) -> None:
        """Serve until told to stop; the Date header is renewed every second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), in_step(1.0))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then end connections as uvicorn does."""
        for server in self.servers:
            await stop_accepting(server)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Answer what is under way and end; called again, end at once."""
        self.force_exit: bool = self.should_exit
        self.should_exit = True
        self.stopping.set()
        self._on_stop()

    async def stop_at(self, stop: asyncio.Event) -> None:
        """Stop once `stop` is set."""
        await stop.wait()
        self.stop()


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server; what it accepted in this moment is a connection of it by then. asyncio drops that
    otherwise with its socket open, so that its client waits until the process ends (`Server._attach`)."""
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(
        2
    ):  # its transport is made in the next pass of the loop, its protocol told in the one after
        await asyncio.sleep(0)
    server.close()


def listen(host: str, port: int, options: str = "--port") -> socket.socket:
    """Open a listening socket. Raises ConfigError that says how to find who has the port, and which options
    choose another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle off only where the protocol is named; without that each answer waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken",
                hint=f"see by whom: ss -ltnp 'sport = :{port}'; or choose {options}",
            ) from error
        raise ConfigError(f"can't listen on {host}:{port}: {error.strerror}") from error
    except (OverflowError, UnicodeError) as error:  # a port above 65535, a name that can't be one
        sock.close()
        raise ConfigError(f"can't listen on {host}:{port}: no such address") from error
    sock.setblocking(False)
    return sock


def make_config(site: Any, drain_s: float) -> uvicorn.Config:
    """Give the settings that our servers share: limits on slow and large heads, asyncio's own loop, no access
    log, logging left to us."""
    return uvicorn.Config(
        site,
        loop="none",
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(drain_s)),
        backlog=BACKLOG,
    )


def log_bugs() -> None:
    """Let what uvicorn catches (a bug of ours, answered with 500) reach our log."""
    caught = logging.getLogger("uvicorn.error")
    ours = logging.getLogger("whet").handlers
    caught.handlers = [*ours]  # a list of its own: each logger changes its list in place
    caught.propagate = False


def raise_file_limit() -> None:
    """Allow as many connections as the system lets us: each that waits is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
