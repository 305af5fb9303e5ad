"""The pages of sessions: the searchable list, and one session from the beginning or step by step."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from whet.app import planning
from whet.app.modes import ABOUT
from whet.serve.board import shown
from whet.serve.board.box import read_box
from whet.serve.board.frame import Frame, number_or_zero
from whet.serve.board.live_turn import LiveTurns
from whet.serve.board.page_messages import list_page_messages
from whet.serve.board.side import read_side
from whet.serve.wire import ApiError
from whet.store import forks, helper_rows, ledger, pins, replay, reviews, search, sessions
from whet.web.sessions import Visit

_PAGE = 40
_ENTRIES, _MAX_ENTRIES = 200, 1_000
_TOP = 1 << 21


class ShownSpan(msgspec.Struct, frozen=True):
    """The messages that a page shows: `limit` messages from number `first` on. For replay, `at` is the last
    one."""

    first: int
    limit: int
    at: int = 0


class HistoryPages:
    """The pages for sessions."""

    def __init__(self, frame: Frame, live: LiveTurns) -> None:
        self._frame = frame
        self._live = live

    async def sessions(self, request: Request, visit: Visit) -> Response:
        """List sessions, or search hits in them."""
        params = request.query_params
        query, before = params.get("q", "").strip()[:200], params.get("before", "")[:40]
        database = self._frame.services.database
        hits: list[search.Hit] = await search.find(database, query, 50) if query else []

        def read(db: apsw.Connection) -> tuple[list[forks.TreeRow], str]:
            rows = sessions.list_sessions(db, _PAGE + 1, before=before, query=query)
            return forks.order_as_trees(db, rows[:_PAGE]), rows[_PAGE - 1].last_active if rows[_PAGE:] else ""

        rows, more = await database.read(read)
        return self._frame.page(
            "sessions.html",
            visit,
            here="sessions",
            q=query,
            hits=[(hit, split_snippet(hit.snippet)) for hit in hits],
            rows=rows,
            more=more,
            running=set(self._frame.turns.running),
        )

    async def session(
        self,
        request: Request,
        visit: Visit,
        *,
        problem: ApiError | None = None,
        notice: str = "",
        output: str = "",
        asks: int | None = None,
    ) -> Response:
        """Show a session: its newest messages, those after a given one or, for replay, those up to `at`.

        `problem` is the error of a request on the page, `output` the output of a command. `notice` is the
        outcome of a rewind. If `asks`, a turn, is set, it is the plan to go back to before that turn.
        """
        session_id, params = request.path_params["id"], request.query_params

        values = await self._frame.services.database.read(lambda db: _read_page(db, session_id, params))
        plan = await planning.read_plan(self._frame.services, session_id)
        box = await read_box(self._frame.services, values["row"])
        span: ShownSpan = values["span"]
        shown_to = values["entries"][-1].entry.seq if values["entries"] else span.first - 1
        frame, live = self._frame, self._live.turn_of(session_id)
        is_running = frame.turns.is_running(session_id)
        failed = self._live.problem(session_id)
        return frame.page(
            "session.html",
            visit,
            problem.status if problem else 200,
            here="sessions",
            at=span.at,
            shown_to=shown_to,
            older=max(1, span.first - span.limit) if span.first > 1 and not span.at else 0,
            newer=shown_to + 1 if shown_to < values["last"] and not span.at else 0,
            plan=plan,
            box=box,
            modes=ABOUT,
            running=set(frame.turns.running),
            is_running=is_running,
            is_elsewhere=not is_running and values["turn"] is not None and not values["turn"].ended,
            live=live if is_running else None,
            questions=frame.questions(session_id),
            problem=shown.text(problem.message) if problem else failed,
            most=_MAX_ENTRIES,
            typed=getattr(request.state, "form", {}) if problem else {},
            told=shown.text(notice),
            asks=asks,
            output=shown.text(output),
            commands=frame.commands.list_names(),
            **values,
        )


def read_span(params: QueryParams, last: int) -> ShownSpan:
    """Return the span of messages that a request asks for. `last` is the number of the newest message."""
    at, first = (min(number_or_zero(params.get(name, "")), _TOP) for name in ("at", "from"))
    limit = min(number_or_zero(params.get("n", "")) or _ENTRIES, _MAX_ENTRIES)
    if at:  # the messages before the one that is replayed
        first = max(1, at - limit + 1)
        return ShownSpan(first, at - first + 1, at)
    return ShownSpan(first or max(1, last - limit + 1), limit)


def _read_page(db: apsw.Connection, session_id: str, params: QueryParams) -> dict[str, Any]:
    """Return the page's values that come from the store. Raises NotFound."""
    row = sessions.get(db, session_id)
    last = replay.read_last_seq(db, session_id)
    span = read_span(params, last)
    return {
        "row": row,
        "span": span,
        "entries": list_page_messages(db, session_id, span.first, span.limit),
        "last": last,
        "turn": replay.read_last_turn(db, session_id),
        "helpers": helper_rows.list_views(db, session_id),
        "family": forks.list_family(db, session_id),
        "reviews": reviews.list_reviews(db, 20, session_id=session_id),
        "learned": ledger.select(db, 20, profile="", session_id=session_id),
        "side": read_side(db),
        "is_pinned": pins.is_pinned(db, session_id),
    }


def split_snippet(snippet: str) -> list[tuple[bool, str]]:
    """Split a snippet at its search marks. Returns pairs of whether a piece is a hit, and its text."""
    pieces: list[tuple[bool, str]] = []
    for number, part in enumerate(snippet.split(search.MARK_OPEN)):
        if not number:
            pieces.append((False, part))
            continue
        hit, _, tail = part.partition(search.MARK_CLOSE)
        pieces += [(True, hit), (False, tail)]
    return [(is_hit, shown.text(text, 400)) for is_hit, text in pieces if text]
