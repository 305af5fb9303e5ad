"""Run the service: two listeners on one event loop, upkeep in the background, a clean shutdown at SIGTERM.

This module only connects the parts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.errors import ConfigError
from whet.web.guard import SiteAddress, make_site_address
from whet.web.listening import SiteServer, listen, log_bugs, make_config, raise_file_limit
from whet_confirm.attendance import list_abandoned
from whet_confirm.callbacks import Callbacks, load_secret
from whet_confirm.export import LogExport, parse_destination
from whet_confirm.http.app import Api, ASGIApp
from whet_confirm.http.guard import ApiGuard
from whet_confirm.notify.notifier import ConfirmNotifier
from whet_confirm.notify.settings import read_channels
from whet_confirm.oidc import OidcProvider, OidcSettings
from whet_confirm.open import ServicePaths
from whet_confirm.peers import Peers, listen_at
from whet_confirm.push.settings import PushSettings
from whet_confirm.service import ConfirmService
from whet_confirm.upkeep import Upkeep, follow_other_processes, notify_witnesses
from whet_confirm.web.app import PageTerms, make_page
from whet_confirm.witnesses import Witnesses

DRAIN_S = 10.0
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class ListenSettings(msgspec.Struct, frozen=True):
    """How to listen.

    `is_open` is --insecure-no-auth. `hosts` are further names allowed in Host. `public_url` is the address
    of the page if it is not on this machine. `channels` is the channels file.
    """

    host: str = "127.0.0.1"
    port: int = 6000
    web_port: int = 6080
    hosts: tuple[str, ...] = ()
    is_open: bool = False
    allow_private_callbacks: bool = False
    public_url: str = ""
    channels: Path | None = None
    oidc: OidcSettings | None = None
    secrets: dict[str, str] = {}
    witnesses: Witnesses = Witnesses()
    exports: tuple[str, ...] = ()
    socket: Path | None = None
    peers: Peers = {}
    report: Callable[[str], None] | None = None
    """Shows the operator a line at the terminal, e.g. that a channel's chat does not exist."""

    @property
    def is_separate(self) -> bool:
        """Whether the users that agents run as are known, and this service runs as another user."""
        asking = [uid for uid, caller in self.peers.items() if caller.role == "submit"]
        return bool(asking) and os.geteuid() not in asking


def check_exposure(settings: ListenSettings) -> None:
    """Raise ConfigError for a service without tokens that other machines could reach."""
    if settings.is_open and settings.host not in _LOCAL:
        raise ConfigError(
            f"--insecure-no-auth is for this machine only, not for {settings.host}",
            hint="leave --insecure-no-auth out, or listen on 127.0.0.1",
        )


async def serve(
    service: ConfirmService,
    paths: ServicePaths,
    settings: ListenSettings,
    on_ready: Callable[[Sequence[int]], None],
    *,
    stop: asyncio.Event | None = None,
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] | None = None,
) -> None:
    """Serve until stopped; `on_ready` gets the ports once they listen. Raises ConfigError.

    Setting `stop` ends it like SIGTERM. `background` replaces the jobs that run next to the listeners
    (`list_background_jobs`, and the notifier).
    """
    check_exposure(settings)
    sockets = [listen(settings.host, settings.port, "another --port")]
    if settings.web_port >= 0:
        try:
            sockets.append(listen(settings.host, settings.web_port, "another --web-port"))
        except ConfigError:
            sockets[0].close()
            raise
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    if settings.socket is not None:
        sockets.append(listen_at(settings.socket))
    raise_file_limit()
    log_bugs()
    # A service on all interfaces has many host names. A page with a rebound name still can't send a token.
    host = "*" if settings.host in ("0.0.0.0", "::") else settings.host
    guard = ApiGuard(
        service, hosts=frozenset({host, *settings.hosts}), is_open=settings.is_open, peers=settings.peers
    )
    page_port = ports[-1]
    notifier = make_notifier(service, paths, settings, page_port)
    web = make_web(service, settings, notifier, page_port)
    api = Api(service, guard, page_url(settings, page_port), web=web, web_port=page_port)
    config = make_config(api, DRAIN_S)
    server = SiteServer(config, lambda: on_ready(ports), service.hub.close)
    jobs = (
        [*list_background_jobs(service, paths, settings), notifier.run] if background is None else background
    )
    async with asyncio.TaskGroup() as group:
        service.attendance.resume(service.database.read_now(list_abandoned))
        tasks = [group.create_task(job()) for job in jobs]
        if stop is not None:
            tasks.append(group.create_task(server.stop_at(stop)))
        try:
            await server.serve(sockets=sockets)
        finally:
            for task in tasks:
                task.cancel()
    await Upkeep(service, paths.checkpoints, *settings.witnesses.files).seal()


def make_web(
    service: ConfirmService, settings: ListenSettings, notifier: ConfirmNotifier, port: int
) -> ASGIApp | None:
    """Return the page, for all paths on the web port outside the API, or None without a web port."""
    if settings.web_port < 0:
        return None
    oidc = settings.oidc
    provider = OidcProvider(oidc, settings.secrets, page_url(settings, port)) if oidc else None
    terms = PageTerms(port, settings.is_open, settings.is_separate, provider)
    return make_page(service, notifier, _site_address(settings), terms)


def make_notifier(
    service: ConfirmService, paths: ServicePaths, settings: ListenSettings, port: int
) -> ConfirmNotifier:
    """Open the channels to people. Raises ConfigError."""
    channels = read_channels(
        settings.channels or paths.folder / "channels.toml", settings.channels is not None
    )
    url = page_url(settings, port)
    # Push services write to this address if they have a problem with this service's messages.
    push = PushSettings(url if url.startswith("https://") else "", settings.allow_private_callbacks)
    return ConfirmNotifier(service, channels, settings.secrets, url, report=settings.report, push=push)


def page_url(settings: ListenSettings, port: int) -> str:
    """Return the address of the page that people are sent, or an empty string if there is no page."""
    if settings.public_url or settings.web_port < 0:
        return settings.public_url.rstrip("/")
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _site_address(settings: ListenSettings) -> SiteAddress:
    return make_site_address(settings.host, settings.public_url, settings.hosts)


def list_background_jobs(
    service: ConfirmService, paths: ServicePaths, settings: ListenSettings
) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return the jobs that run next to the listeners: upkeep, webhooks, witnesses and log exports."""
    secret = load_secret(paths.folder / "webhook.secret")
    callbacks = Callbacks(service, secret, allow_private=settings.allow_private_callbacks)
    files = (paths.checkpoints, *settings.witnesses.files)
    jobs: list[Callable[[], Coroutine[Any, Any, None]]] = [
        Upkeep(service, *files).run,
        callbacks.run,
        lambda: follow_other_processes(service),
    ]
    if settings.witnesses.urls:
        jobs.append(lambda: notify_witnesses(service, settings.witnesses.urls))
    for address in settings.exports:
        jobs.append(LogExport(service, address, parse_destination(address, settings.secrets)).run)
    return jobs


def startup_lines(settings: ListenSettings, ports: Sequence[int], token_files: Sequence[Path]) -> list[str]:
    """Return the lines to print when the service is ready."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    lines = [f"confirmation service: http://{host}:{ports[0]}"]
    if len(ports) > 1:
        lines.append(f"web page and browsers: http://{host}:{ports[1]}")
    if settings.is_open:
        lines.append("WARNING: --insecure-no-auth: anybody on this machine can approve anything")
    return lines + [f"made a first token ({path.stem}): {path}" for path in token_files]
