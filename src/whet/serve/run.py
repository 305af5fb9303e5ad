"""Run the API: one listener, turns drained at SIGTERM, everything closed in order.

It knows how the parts are put together and nothing of what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp

from whet.app.hosted import SessionHost
from whet.serve.site import Site, SiteTimings
from whet.web.guard import SiteAddress, place
from whet.web.listening import SiteServer, listen, log_bugs, make_config, raise_file_limit


class ServeOptions(msgspec.Struct, frozen=True):
    """How to listen. `hosts` are further names that may be in Host; `public_url` is where people reach it;
    `has_web` whether the dashboard is served; `drain_s` what running turns get at the end; `is_shared`
    whether the conversations are another interface's too, which then ends them."""

    host: str = "127.0.0.1"
    port: int = 6090
    hosts: tuple[str, ...] = ()
    public_url: str = ""
    has_web: bool = False
    drain_s: float = 10.0
    is_shared: bool = False


async def serve(
    hosted: SessionHost,
    listening: ServeOptions,
    pace: SiteTimings,
    on_ready: Callable[[int], None],
    *,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until told to stop; `on_ready` gets the port once it listens. Turns that run then get `drain_s`
    to end and are cancelled, which is stored. With `stop`, that
    ends it, and signals are left to the caller. Raises ConfigError."""
    where = place(listening.host, listening.public_url, listening.hosts)
    sock = listen(listening.host, listening.port)
    raise_file_limit()
    log_bugs()
    port = int(sock.getsockname()[1])
    site = Site(hosted, hosted.app.clock, pace)
    config = make_config(_application(site, where, listening, port), listening.drain_s + 5)
    drains: list[asyncio.Task[None]] = []

    def end() -> None:
        site.feeds.close()
        if not drains:
            work = site.turns.aclose(listening.drain_s, is_shared=listening.is_shared)
            drains.append(asyncio.create_task(work))

    server = SiteServer(config, lambda: on_ready(port), end, takes_signals=stop is None)
    watch = asyncio.create_task(server.stop_at(stop)) if stop is not None else None
    site.turns.start()
    hosted.app.reviews.start()
    hosted.app.schedules.start()
    try:
        await server.serve(sockets=[sock])
    finally:
        if watch is not None:
            watch.cancel()
        end()
        await drains[0]


def _application(site: Site, where: SiteAddress, listening: ServeOptions, port: int) -> ASGIApp:
    if not listening.has_web:
        return site.asgi(where)
    # Templates cost 100 ms to import, and only the dashboard has any.
    from whet.serve.board.app import Dashboard  # noqa: PLC0415

    board = Dashboard(site, where, port)
    return site.asgi(where, board.routes(), board.door.problem)
