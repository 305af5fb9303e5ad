"""The page as an ASGI application: log in, view, decide, review past decisions.

A GET decides nothing: a decision is a form with the session's CSRF token, sent from our own page, that
names the viewed digest. Everything works without JavaScript; with it, the page updates itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whet.clock import SystemClock
from whet.contract.errors import StoreError
from whet.web.assets import Assets
from whet.web.guard import SiteAddress, SiteGuard
from whet.web.login import LoginTexts, SiteLogin
from whet.web.pages import SiteTemplates
from whet.web.sessions import Sessions
from whet_confirm.notify.notifier import ConfirmNotifier
from whet_confirm.oidc import OidcProvider
from whet_confirm.service import ConfirmService
from whet_confirm.web import view
from whet_confirm.web.accounts import SessionRows, TokenAccounts
from whet_confirm.web.audit import AuditWatch
from whet_confirm.web.audit_pages import AuditPages
from whet_confirm.web.devices import DevicePages, make_manifest
from whet_confirm.web.live import RequestStream
from whet_confirm.web.passkey_pages import PasskeyPages
from whet_confirm.web.provider import ProviderPages
from whet_confirm.web.requests import RequestPages
from whet_confirm.web.several import SeveralPages

SAME_USER = (
    "This service does not run apart from its agents (whet confirm install): a program that runs as the same"
    " user, outside a sandbox, could decide in your name."
)
_WORDS = LoginTexts(
    unknown="This token is not known, was revoked, or has run out.",
    refused="This token can only submit. Deciding needs one that approves.",
    undone="Nothing was decided",
)


class PageTerms(msgspec.Struct, frozen=True):
    """How the page is served.

    `port` is part of the cookie's name. `is_separate` means that agents run as other users than this service;
    if not, every page warns about it. `provider` is a further way to log in.
    """

    port: int
    is_open: bool = False
    is_separate: bool = False
    provider: OidcProvider | None = None


def make_page(
    service: ConfirmService, notifier: ConfirmNotifier, address: SiteAddress, terms: PageTerms
) -> ASGIApp:
    """Build the application."""
    assets = Assets(files("whet_confirm.web") / "static")

    is_open, provider = terms.is_open, terms.provider
    label = "" if provider is None or is_open else provider.settings.label

    filters = {
        "duration": view.format_duration,
        "provider": _always(label),
        "same_user": _always("" if terms.is_separate else SAME_USER),
    }
    pages = SiteTemplates("whet_confirm.web", assets, filters)
    accounts = TokenAccounts(service, is_open=is_open)
    sessions = Sessions(accounts, SessionRows(service), SystemClock(), address, f"whet_confirm_{terms.port}")
    login = SiteLogin(sessions, pages, _WORDS, is_open=is_open)
    request_pages = RequestPages(service, pages, accounts, notifier)
    audit_pages = AuditPages(service, pages, AuditWatch(service))
    passkey_pages = PasskeyPages(service, pages, accounts, notifier)
    several = SeveralPages(service, pages, accounts, notifier)
    live = RequestStream(service, sessions)
    routes = [
        Route("/", login.require_login(request_pages.home)),
        Route("/r/{id}", login.require_login(request_pages.record)),
        Route("/r/{id}/decide", login.accept_form(request_pages.decide), methods=["POST"]),
        Route("/r/{id}/reveal", login.accept_form(request_pages.reveal), methods=["POST"]),
        Route("/r/{id}/amend", login.accept_form(request_pages.amend), methods=["POST"]),
        Route("/grants/{number}/stop", login.accept_form(request_pages.stop_grant), methods=["POST"]),
        Route("/passkeys", login.require_login(passkey_pages.show), methods=["GET"]),
        Route("/passkeys", login.accept_form(passkey_pages.enrol), methods=["POST"]),
        *_device_routes(DevicePages(service, pages, accounts, notifier, sessions), login, assets),
        Route("/several", login.require_login(several.show), methods=["GET"]),
        Route("/several", login.accept_form(several.decide), methods=["POST"]),
        Route("/history", login.require_login(audit_pages.history)),
        Route("/log", login.require_login(audit_pages.log), methods=["GET"]),
        Route("/log", login.accept_form(audit_pages.log), methods=["POST"]),
        Route("/live", live.serve),
        Route("/login", login.login, methods=["GET", "POST"]),
        Route("/logout", login.accept_form(login.logout), methods=["POST"]),
        Route("/static/{name}", assets.serve),
    ]

    if provider is not None and not is_open:
        oidc_pages = ProviderPages(service, provider, sessions, pages)
        routes += [Route("/oidc/start", oidc_pages.start), Route("/oidc/callback", oidc_pages.callback)]

    async def not_found(request: Http, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return login.problem(
            status, "There is no such page." if status == 404 else "That can't be done here."
        )

    async def store_failure(request: Http, error: Exception) -> Response:
        reason = error.message if isinstance(error, StoreError) else "the database failed"
        return login.problem(503, f"{_WORDS.undone}: {reason}.")

    site = Starlette(routes=routes, exception_handlers={HTTPException: not_found, StoreError: store_failure})
    return SiteGuard(site, address)


def _device_routes(devices: DevicePages, login: SiteLogin, assets: Assets) -> list[Route]:
    """Return the routes of the page as an app, and of the devices that get messages."""
    return [
        Route("/devices", login.require_login(devices.show), methods=["GET"]),
        Route("/devices", login.accept_form(devices.change), methods=["POST"]),
        Route("/push/receipt", devices.receipt, methods=["POST"]),
        Route("/push/press", devices.press, methods=["POST"]),
        Route("/push/renew", devices.renew, methods=["POST"]),
        Route("/sw.js", devices.worker),
        Route("/app.webmanifest", _always_answer(make_manifest(assets), "application/manifest+json")),
        Route("/icon-192.png", _always_answer(assets.read("icon-192.png"), "image/png")),
    ]


def _always_answer(body: bytes, content_type: str) -> Callable[[Http], Awaitable[Response]]:
    """Return a handler that answers everybody with the same file, which may be cached for an hour."""
    headers = {"cache-control": "public, max-age=3600", "content-type": content_type}

    async def answer(request: Http) -> Response:
        return Response(body, headers=headers)

    return answer


def _always(text: str) -> Callable[[str], str]:
    """Return a template filter that always yields this text."""
    return lambda _: text
