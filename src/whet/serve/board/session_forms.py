"""The forms that set a session's title, pin, archive, model and mode from any page."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import apsw
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from whet.clock import iso
from whet.contract.errors import WhetError
from whet.serve.board import box
from whet.serve.board.frame import Frame
from whet.serve.wire import ApiError
from whet.store import pins, sessions
from whet.web.sessions import Visit

_MAX_TITLE = 200


class SessionForms:
    """Handles the forms."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def rename(self, request: Request, visit: Visit) -> Response:
        """Set the title."""
        title = " ".join(request.state.form.get("title", "").split())[:_MAX_TITLE]
        if not title:
            raise ApiError(400, "Write a title.")
        row = await self._chat(request)
        await self._frame.services.database.write(lambda db: sessions.rename(db, row.id, title))
        return _go_back(request)

    async def pin(self, request: Request, visit: Visit) -> Response:
        """Pin or unpin the session."""
        await self._set_time(request, pins.set_pin_time)
        return _go_back(request)

    async def archive(self, request: Request, visit: Visit) -> Response:
        """Archive the session and leave its page, or unarchive it."""
        row, at = await self._set_time(request, sessions.set_archive_time)
        is_left = bool(at) and request.state.form.get("back") == row.id
        return RedirectResponse("/", 303) if is_left else _go_back(request)

    async def set(self, request: Request, visit: Visit) -> Response:
        """Set the model or the mode, from the next request on."""
        row, form = await self._chat(request), request.state.form
        if self._frame.turns.is_busy(row.id):
            raise ApiError(409, "A turn is running; stop it first.")
        try:
            if "model" in form:
                await box.set_model(self._frame.turns, row.id, form["model"])
            if "mode" in form:
                await box.set_mode(self._frame.services, row.id, form["mode"])
        except WhetError as error:
            raise ApiError(400, f"{error.message}. {error.hint}".rstrip(". ") + ".") from error
        return RedirectResponse(f"/sessions/{quote(row.id)}#end", 303)

    async def _chat(self, request: Request) -> sessions.SessionRow:
        session_id = request.path_params["id"]
        row = await self._frame.services.database.read(lambda db: sessions.get(db, session_id))
        if row.kind != "chat":
            raise ApiError(400, f"A {row.kind} is not changed from here.")
        return row

    async def _set_time(
        self, request: Request, set_time: Callable[[apsw.Connection, str, str], None]
    ) -> tuple[sessions.SessionRow, str]:
        """Set one of a session's times to now, or clear it if the form's `on` is not 1. Returns the session
        and the time, empty if cleared."""
        row = await self._chat(request)
        is_on = request.state.form.get("on", "1") == "1"
        at = iso(self._frame.services.clock.now()) if is_on else ""
        await self._frame.services.database.write(lambda db: set_time(db, row.id, at))
        return row, at


def _go_back(request: Request) -> Response:
    """Redirect to the session's page that the form was on, or to the first page."""
    session_id = request.state.form.get("back", "")
    return RedirectResponse(f"/sessions/{quote(session_id, safe='')}" if session_id else "/", 303)
