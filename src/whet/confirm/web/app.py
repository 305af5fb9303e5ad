"""The page as an ASGI application: sign in, look, decide, look back.

Nothing is decided on GET: a decision is a form with the session's token, sent from our own page, that names
the digest that was looked at. Everything works without JavaScript; with it, the page keeps itself up to date.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from whet.clock import SystemClock
from whet.confirm.notify.notifier import Notifier
from whet.confirm.service import Service
from whet.confirm.web import view
from whet.confirm.web.accounts import SessionRows, TokenAccounts
from whet.confirm.web.audit import AuditWatch
from whet.confirm.web.desk import Desk
from whet.confirm.web.live import Live
from whet.confirm.web.past import Past
from whet.web.assets import Assets
from whet.web.forms import BadForm, read_form
from whet.web.guard import Guard, Place, has_origin
from whet.web.pages import Pages
from whet.web.sessions import Sessions, TooManyAttempts, Visit, is_own_form

Handler = Callable[[Http, Visit], Awaitable[Response]]


def make_page(
    service: Service, notifier: Notifier | None, where: Place, *, port: int, is_open: bool = False
) -> ASGIApp:
    """Give the application. `port` is the page's own, for the cookie's name."""
    folder = files("whet.confirm.web")
    assets = Assets(folder / "static")
    pages = Pages("whet.confirm.web", assets, {"duration": view.duration})
    accounts = TokenAccounts(service, is_open=is_open)
    sessions = Sessions(accounts, SessionRows(service), SystemClock(), where, f"whet_confirm_{port}")
    door = Door(sessions, pages, is_open=is_open)
    desk = Desk(service, pages, accounts, notifier)
    past = Past(service, pages, AuditWatch(service))
    live = Live(service, sessions)
    routes = [
        Route("/", door.inside(desk.home)),
        Route("/r/{id}", door.inside(desk.record)),
        Route("/r/{id}/decide", door.posted(desk.decide), methods=["POST"]),
        Route("/r/{id}/amend", door.posted(desk.amend), methods=["POST"]),
        Route("/history", door.inside(past.history)),
        Route("/log", door.inside(past.log), methods=["GET"]),
        Route("/log", door.posted(past.log), methods=["POST"]),
        Route("/live", live.serve),
        Route("/login", door.login, methods=["GET", "POST"]),
        Route("/logout", door.posted(door.logout), methods=["POST"]),
        Route("/static/{name}", assets.serve),
    ]
    site = Starlette(routes=routes, exception_handlers={HTTPException: door.not_found})
    return Guard(site, where)


class Door:
    """Who comes in: the login page, and a check before every other one."""

    def __init__(self, sessions: Sessions, pages: Pages, *, is_open: bool) -> None:
        self._sessions = sessions
        self._pages = pages
        self._is_open = is_open

    def inside(self, handler: Handler) -> Callable[[Http], Awaitable[Response]]:
        """Show a page to who is signed in; send others to the login page and back."""

        async def serve(request: Http) -> Response:
            visit = await self._sessions.visit(request)
            if visit is not None:
                return await handler(request, visit)
            if _came_by_link(request):
                # A strict cookie is not sent along with a link from a chat; a reload by our own page is.
                return self._pages.answer("bounce.html", url=_next(request))
            return RedirectResponse(f"/login?next={quote(_next(request), safe='')}", 303)

        return serve

    def posted(self, handler: Handler) -> Callable[[Http], Awaitable[Response]]:
        """Take a form from who is signed in, if our own page of this session sent it."""

        async def serve(request: Http) -> Response:
            visit = await self._sessions.visit(request)
            if visit is None:
                return self._problem(403, "You are not signed in (any more). Nothing was decided.")
            try:
                form = await read_form(request)
            except BadForm as error:
                return self._problem(error.status, f"Nothing was decided: {error}.")
            if not has_origin(request.headers) or not is_own_form(visit, form.get("csrf", "")):
                return self._problem(403, "Nothing was decided: the form did not come from this page.")
            request.state.form = form
            return await handler(request, visit)

        return serve

    async def login(self, request: Http) -> Response:
        """Show the login page, or sign in."""
        target = _safe_path(request.query_params.get("next", "/"))
        if request.method == "GET":
            return self._login_page(target)
        try:
            form = await read_form(request)
        except BadForm as error:
            return self._login_page(target, error.status, str(error))
        if not has_origin(request.headers):
            return self._login_page(target, 403, "the form did not come from this page")
        response = RedirectResponse(target, 303)
        try:
            account = await self._sessions.sign_in(request, form.get("token", ""), response)
        except TooManyAttempts as error:
            page = self._login_page(
                target, 429, f"Too many wrong tokens. Try again in {error.retry_after_s} s."
            )
            page.headers["retry-after"] = str(error.retry_after_s)
            return page
        if account is None:
            return self._login_page(target, 403, "This token is not known, was revoked, or has run out.")
        if not account.key:
            return self._login_page(
                target, 403, "This token can only submit. Deciding needs one that approves."
            )
        return response

    async def logout(self, request: Http, visit: Visit) -> Response:
        """Sign out."""
        response = RedirectResponse("/login", 303)
        await self._sessions.sign_out(request, response)
        return response

    async def not_found(self, request: Http, error: Exception) -> Response:
        """Say that there is no such page."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._problem(
            status, "There is no such page." if status == 404 else "That can't be done here."
        )

    def _login_page(self, target: str, status: int = 200, problem: str = "") -> HTMLResponse:
        return self._pages.answer(
            "login.html", status, next=target, problem=problem, is_open=self._is_open, visit=None
        )

    def _problem(self, status: int, text: str) -> HTMLResponse:
        return self._pages.answer("problem.html", status, text=text, visit=None)


def _next(request: Http) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _safe_path(target: str) -> str:
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and "\\" not in target else "/"


def _came_by_link(request: Http) -> bool:
    return (
        request.headers.get("sec-fetch-site") == "cross-site"
        and request.headers.get("sec-fetch-mode") == "navigate"
    )
