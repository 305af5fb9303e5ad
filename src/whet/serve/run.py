"""Run the API server: listen, serve, and at SIGTERM let running turns end before everything is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp

from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.slash import SlashCommand
from whet.serve.site import Site, SiteTimings
from whet.store.schedules import ScheduleAdder
from whet.web.guard import SiteAddress, make_site_address
from whet.web.listening import SiteServer, listen, log_bugs, make_config, raise_file_limit


class ServeOptions(msgspec.Struct, frozen=True):
    """Options of the server.

    - `hosts`: more names that the Host header may have
    - `public_url`: the address that people use
    - `has_web`: serve the dashboard
    - `drain_s`: the time that running turns have to end at shutdown
    - `is_shared`: another interface uses the same conversations and ends them
    - `commands`: the slash commands of the dashboard
    - `add_schedule`: stores a new schedule; None: the dashboard offers no new schedules
    """

    host: str = "127.0.0.1"
    port: int = 6090
    hosts: tuple[str, ...] = ()
    public_url: str = ""
    has_web: bool = False
    drain_s: float = 10.0
    is_shared: bool = False
    commands: tuple[SlashCommand[Any], ...] = ()
    add_schedule: ScheduleAdder | None = None


async def serve(
    hosted: SessionHost,
    options: ServeOptions,
    timings: SiteTimings,
    on_ready: Callable[[int], None],
    *,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until a signal or, if it is given, until `stop` is set; then signals are left to the caller.
    `on_ready` is called with the port once it listens.

    At the end, running turns that don't end within `drain_s` are cancelled, which is stored. Raises
    ConfigError.
    """
    address = make_site_address(options.host, options.public_url, options.hosts)
    sock = listen(options.host, options.port)
    raise_file_limit()
    log_bugs()
    port = int(sock.getsockname()[1])
    site = Site(hosted, hosted.services.clock, timings)
    config = make_config(_application(site, address, options, port), options.drain_s + 5)
    drains: list[asyncio.Task[None]] = []

    def begin_shutdown() -> None:
        site.feeds.close()
        if not drains:
            work = site.turns.aclose(options.drain_s, is_shared=options.is_shared)
            drains.append(asyncio.create_task(work))

    server = SiteServer(config, lambda: on_ready(port), begin_shutdown, takes_signals=stop is None)
    watch = asyncio.create_task(server.stop_at(stop)) if stop is not None else None
    site.turns.start()
    hosted.services.reviews.get().start()
    hosted.services.schedules.get().start()
    try:
        await server.serve(sockets=[sock])
    finally:
        if watch is not None:
            watch.cancel()
        begin_shutdown()
        await drains[0]


def _application(site: Site, address: SiteAddress, options: ServeOptions, port: int) -> ASGIApp:
    if not options.has_web:
        return site.asgi(address)
    # Importing templates takes 100 ms, and only the dashboard needs them.
    from whet.serve.board.app import Dashboard  # noqa: PLC0415

    board = Dashboard(site, address, port, options.commands, options.add_schedule)
    return site.asgi(address, board.routes(), board.login.problem)
