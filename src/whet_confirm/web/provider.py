"""The redirect to the identity provider and back, for the page's login.

A browser that is sent to the provider gets a cookie. A person who returns without it, or with another
browser's state, is refused. An attempt is valid once, for ten minutes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from whet.web.login import safe_path
from whet.web.pages import SiteTemplates
from whet.web.sessions import Account, Sessions
from whet_confirm import people
from whet_confirm.oidc import OidcProvider, SignInAttempt, SignInRefused
from whet_confirm.people import PREFIX
from whet_confirm.service import ConfirmService

_VALID_S = 600.0
_MAX_ATTEMPTS = 1000
_COOKIE = "whet_confirm_oidc"


class _PendingLogin(NamedTuple):
    attempt: SignInAttempt
    browser: bytes
    target: str
    ends_s: float


class ProviderPages:
    """Sends people to the provider, and logs them in when they return."""

    def __init__(
        self, service: ConfirmService, provider: OidcProvider, sessions: Sessions, pages: SiteTemplates
    ) -> None:
        self._service = service
        self._provider = provider
        self._sessions = sessions
        self._pages = pages
        self._pending_logins: dict[str, _PendingLogin] = {}

    async def start(self, request: Http) -> Response:
        """Send a person to the provider."""
        now_s = self._service.timeline.now_s()
        self._pending_logins = {
            state: login for state, login in self._pending_logins.items() if login.ends_s > now_s
        }
        try:
            attempt = await self._provider.begin()
        except SignInRefused as error:
            return self._problem(f"You can't sign in this way now: {error.message}.", 502)
        number = secrets.token_urlsafe(32)
        target = safe_path(request.query_params.get("next", "/"))
        if len(self._pending_logins) >= _MAX_ATTEMPTS:  # many attempts by one person don't lock others out
            del self._pending_logins[next(iter(self._pending_logins))]
        self._pending_logins[attempt.state] = _PendingLogin(attempt, _hash(number), target, now_s + _VALID_S)
        response = RedirectResponse(attempt.url, 303, {"cache-control": "no-store"})
        # Lax, unlike the session's: it must be sent when the provider redirects the person back.
        response.set_cookie(
            _COOKIE, number, max_age=int(_VALID_S), httponly=True, samesite="lax", path="/oidc",
            secure=self._sessions.is_secure,
        )  # fmt: skip
        return response

    async def callback(self, request: Http) -> Response:
        """Log in a person who returns from the provider."""
        login = self._pending_logins.pop(request.query_params.get("state", ""), None)
        number = request.cookies.get(_COOKIE, "")
        if login is None or login.ends_s <= self._service.timeline.now_s():
            return self._problem("This sign-in was not begun here, or is too old.")
        if not hmac.compare_digest(login.browser, _hash(number)):
            return self._problem("This sign-in was begun in another browser.")
        code = request.query_params.get("code", "")
        issuer = self._provider.settings.issuer
        if request.query_params.get("iss", issuer) != issuer:  # RFC 9207: another provider's answer
            return self._problem("This answer is another provider's.")
        if not code:
            reason = request.query_params.get("error", "nothing")[:100]
            return self._problem(f"The provider did not let you in: {reason}.")
        try:
            person = await self._provider.finish(login.attempt, code)
        except SignInRefused as error:
            await self._service.record("login_failed", data={"where": "provider", "why": error.message[:200]})
            return self._problem(f"You are not signed in: {error.message}.")
        valid_s = self._provider.settings.session_hours * 3600
        problem = await self._service.change(lambda tx: people.record_login(tx, person, valid_s))
        if problem:
            return self._problem(f"You are not signed in: {problem}.")
        # Browsers don't send a strict cookie with a redirect from another site, so our own page reloads.
        response = self._pages.answer("bounce.html", url=login.target)
        response.delete_cookie(_COOKIE, path="/oidc")
        account = Account(f"{PREFIX}{person.name}", person.name, frozenset((person.role,)))
        await self._sessions.start_session(request, account, response)
        return response

    def _problem(self, text: str, status: int = 403) -> Response:
        return self._pages.answer("problem.html", status, text=text, visit=None)


def _hash(number: str) -> bytes:
    return hashlib.sha256(number.encode("utf-8", "surrogateescape")).digest()
