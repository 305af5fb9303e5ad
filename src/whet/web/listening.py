"""Open a listening socket, and run uvicorn so that it reports when it is ready and ends cleanly."""

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
from whet.web.beat import aligned_delay
from whet.web.protocol import LimitedProtocol

BACKLOG = 4096


class SiteServer(uvicorn.Server):
    """A uvicorn server that stops at SIGTERM and SIGINT with exit code 0. `on_stop` wakes waiting tasks.

    `takes_signals` False: another server in the process handles the signals and calls `stop`.
    """

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
        """Handle signals inside the block: stop at the first, and at the second without waiting."""
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
        """Listen, then call `on_ready`."""
        await super().startup(sockets)
        self._on_ready()

    async def main_loop(self) -> None:
        """Serve until stopped. Updates the Date header every second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(aligned_delay(1.0)):
                    await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then end connections as uvicorn does."""
        for server in self.servers:
            await stop_accepting(server)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Finish pending requests and end. A second call ends at once."""
        self.force_exit: bool = self.should_exit
        self.should_exit = True
        self.stopping.set()
        self._on_stop()

    async def stop_at(self, stop: asyncio.Event) -> None:
        """Stop once `stop` is set."""
        await stop.wait()
        self.stop()


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server once the connections that it has just accepted are attached to it.

    Otherwise asyncio drops such a connection but leaves its socket open, so that its client waits until this
    process ends (`Server._attach`).
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(2):  # the next pass creates its transport, the one after connects its protocol
        await asyncio.sleep(0)
    server.close()


def listen(host: str, port: int, options: str = "--port") -> socket.socket:
    """Open a listening socket. Raises ConfigError if the port can't be opened; its hint names `options`, the
    options that choose another port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given; without that each answer waits 40 ms.
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
    except (OverflowError, UnicodeError) as error:  # a port above 65535 or an invalid name
        sock.close()
        raise ConfigError(f"can't listen on {host}:{port}: no such address") from error
    sock.setblocking(False)
    return sock


def make_config(site: Any, drain_s: float) -> uvicorn.Config:
    """Return the settings that our servers share. Up to `drain_s`, a stop waits for pending requests."""
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
    """Send the errors that uvicorn catches (bugs of ours, answered with 500) to our log."""
    caught = logging.getLogger("uvicorn.error")
    ours = logging.getLogger("whet").handlers
    caught.handlers = [*ours]  # a separate list: each logger changes its list in place
    caught.propagate = False


def raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows: each waiting connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
