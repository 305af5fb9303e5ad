"""The login page of a site, and the check for a login before every other page and form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from whet.web.bodies import MAX_BYTES, BadForm, read_form
from whet.web.guard import has_origin
from whet.web.pages import SiteTemplates
from whet.web.sessions import Sessions, TooManyAttempts, Visit, is_own_form
from whet.web.uploads import read_upload

Handler = Callable[[Request, Visit], Awaitable[Response]]
PageHandler = Callable[[Request], Awaitable[Response]]


class LoginTexts(msgspec.Struct, frozen=True):
    """The texts of a login: `unknown` for a wrong token, `refused` for a valid token without access to this
    site, `undone` for a rejected form."""

    unknown: str
    refused: str
    undone: str = "Nothing was done"


class SiteLogin:
    """Logs people in. `is_open`: the site was started so that no token is needed."""

    def __init__(
        self, sessions: Sessions, pages: SiteTemplates, texts: LoginTexts, *, is_open: bool = False
    ) -> None:
        self._sessions = sessions
        self._pages = pages
        self._texts = texts
        self._is_open = is_open

    def require_login(self, handler: Handler) -> PageHandler:
        """Return a handler that shows a page to logged-in people and sends others to the login page first."""

        async def serve(request: Request) -> Response:
            visit = await self._sessions.find_visit(request)
            if visit is not None:
                return await handler(request, visit)
            if _came_by_link(request):
                # Browsers send no strict cookie if a link on another site is followed. They do if our own
                # page then reloads itself.
                return self._pages.answer("bounce.html", url=_current_path(request))
            return RedirectResponse(f"/login?next={quote(_current_path(request), safe='')}", 303)

        return serve

    def accept_form(self, handler: Handler, max_bytes: int = MAX_BYTES) -> PageHandler:
        """Return a handler of forms of at most `max_bytes`. A form must come from our own page of the
        session.

        `handler` finds its fields in `request.state.form` and its files in `request.state.files`.
        """
        undone = self._texts.undone

        async def serve(request: Request) -> Response:
            visit = await self._sessions.find_visit(request)
            if visit is None:
                return self.problem(403, f"You are not signed in (any more). {undone}.")
            try:
                form = await read_upload(request, max_bytes)
            except BadForm as error:
                return self.problem(error.status, f"{undone}: {error}.")
            if not has_origin(request.headers) or not is_own_form(visit, form.fields.get("csrf", "")):
                return self.problem(403, f"{undone}: the form did not come from this page.")
            request.state.form, request.state.files = form.fields, form.files
            return await handler(request, visit)

        return serve

    async def login(self, request: Request) -> Response:
        """Show the login page, or log in."""
        target = safe_path(request.query_params.get("next", "/"))
        if request.method in ("GET", "HEAD"):
            return self._login_page(target)
        try:
            form = await read_form(request)
        except BadForm as error:
            return self._login_page(target, error.status, str(error))
        if not has_origin(request.headers):
            return self._login_page(target, 403, "The form did not come from this page.")
        response = RedirectResponse(target, 303)
        try:
            account = await self._sessions.sign_in(request, form.get("token", ""), response)
        except TooManyAttempts as error:
            text = f"Too many wrong tokens. Try again in {error.retry_after_s} s."
            page = self._login_page(target, 429, text)
            page.headers["retry-after"] = str(error.retry_after_s)
            return page
        if account is None:
            return self._login_page(target, 403, self._texts.unknown)
        if not account.key:
            return self._login_page(target, 403, self._texts.refused)
        return response

    async def logout(self, request: Request, visit: Visit) -> Response:
        """Log out."""
        response = RedirectResponse("/login", 303)
        await self._sessions.sign_out(request, response)
        return response

    def problem(self, status: int, text: str, visit: Visit | None = None) -> HTMLResponse:
        """Return a page that describes a problem."""
        return self._pages.answer("problem.html", status, text=text, visit=visit)

    def _login_page(self, target: str, status: int = 200, problem: str = "") -> HTMLResponse:
        return self._pages.answer(
            "login.html", status, next=target, problem=problem, is_open=self._is_open, visit=None
        )


def safe_path(target: str) -> str:
    """Return a path of our own site, or "/" for a target that may lead elsewhere."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and "\\" not in target else "/"


def _current_path(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _came_by_link(request: Request) -> bool:
    return (
        request.headers.get("sec-fetch-site") == "cross-site"
        and request.headers.get("sec-fetch-mode") == "navigate"
    )
