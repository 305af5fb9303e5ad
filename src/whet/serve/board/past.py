"""Sessions: found by words or by title, and read again from the beginning, step by step if one likes."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.contract.messages import ImagePart, ToolCall
from whet.contract.texts import NOT_JSON
from whet.serve.board import shown
from whet.serve.board.frame import Frame
from whet.store import ledger, replay, reviews, search, sessions
from whet.store.ledger import LedgerRow
from whet.store.replay import ReplayedTurn, ReplayEntry
from whet.store.search import Hit
from whet.store.sessions import SessionRow
from whet.web.sessions import Visit

_PAGE = 40
_ENTRIES = 120
_TOP = 1 << 21


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page has it."""

    entry: ReplayEntry
    text: str
    calls: tuple[tuple[str, str], ...]
    images: int
    starts_turn: ReplayedTurn | None


class HistoryPages:
    """Pages of what was said."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def sessions(self, request: Request, visit: Visit) -> Response:
        """List sessions, or what was found in them."""
        asked = request.query_params
        query, before = asked.get("q", "").strip()[:200], asked.get("before", "")[:40]
        database = self._frame.app.database
        hits: list[Hit] = await search.find(database, query, 50) if query else []

        def read(db: apsw.Connection) -> list[SessionRow]:
            return sessions.list_sessions(db, _PAGE + 1, before=before, query=query)

        rows = await database.read(read)
        return self._frame.page(
            "sessions.html",
            visit,
            here="sessions",
            q=query,
            hits=[(hit, _marked(hit.snippet)) for hit in hits],
            rows=rows[:_PAGE],
            more=rows[_PAGE - 1].last_active if len(rows) > _PAGE else "",
            running=set(self._frame.turns.hosted.running),
        )

    async def session(self, request: Request, visit: Visit) -> Response:
        """Show a session from a message on; `at` shows it up to a message, for replay."""
        session_id, asked = request.path_params["id"], request.query_params
        first, at = _number(asked.get("from", "")) or 1, _number(asked.get("at", ""))
        # The messages that lead up to the one that is replayed, or what is around a hit.
        start = max(1, at - _ENTRIES + 1) if at else first

        def read(db: apsw.Connection) -> dict[str, Any]:
            row = sessions.get(db, session_id)
            found = replay.entries(db, session_id, start, min(_ENTRIES, at - start + 1) if at else _ENTRIES)
            turns = replay.turns(db, session_id, found[0].turn, found[-1].turn) if found else {}
            return {
                "row": row,
                "entries": _shown(found, turns),
                "last": replay.last_seq(db, session_id),
                "children": sessions.list_sessions(db, 20, kinds=("child",), parent_session_id=session_id),
                "reviews": reviews.list_reviews(db, 20, session_id=session_id),
                "learned": _learned(db, session_id),
            }

        found = await self._frame.app.database.read(read)
        shown_to = found["entries"][-1].entry.seq if found["entries"] else 0
        return self._frame.page(
            "session.html",
            visit,
            here="sessions",
            at=at,
            first=start,
            shown_to=shown_to,
            older=max(1, start - _ENTRIES) if start > 1 and not at else 0,
            newer=shown_to + 1 if shown_to < found["last"] and not at else 0,
            is_running=session_id in self._frame.turns.hosted.running,
            **found,
        )


def _learned(db: apsw.Connection, session_id: str) -> list[LedgerRow]:
    return ledger.select(db, 20, profile="", session_id=session_id)


def _shown(found: list[ReplayEntry], turns: dict[int, ReplayedTurn]) -> list[ShownMessage]:
    made: list[ShownMessage] = []
    before = -1
    for entry in found:
        content = entry.message.content
        images = 0 if isinstance(content, str) else sum(isinstance(part, ImagePart) for part in content)
        calls = tuple((call.name, _arguments(call)) for call in entry.message.tool_calls)
        starts = turns.get(entry.turn) if entry.turn != before else None
        before = entry.turn
        made.append(ShownMessage(entry, entry.message.text, calls, images, starts))
    return made


def _arguments(call: ToolCall) -> str:
    """Write a call's arguments for reading: a line each, longer texts below their name; unreadable ones as
    they are."""
    try:
        found = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except NOT_JSON:
        return call.arguments
    return "\n".join(f"{name}: {_value(value)}" for name, value in found.items())


def _value(value: object) -> str:
    if isinstance(value, str):
        return f"\n{value}" if "\n" in value else value
    return msgspec.json.encode(value).decode()


def _marked(snippet: str) -> list[tuple[bool, str]]:
    """Cut a snippet at the marks around what was found: (is found, text)."""
    pieces: list[tuple[bool, str]] = []
    for number, part in enumerate(snippet.split(search.MARK_OPEN)):
        if not number:
            pieces.append((False, part))
            continue
        hit, _, rest = part.partition(search.MARK_CLOSE)
        pieces += [(True, hit), (False, rest)]
    return [(is_hit, shown.text(text, 400)) for is_hit, text in pieces if text]


def _number(text: str) -> int:
    return min(int(text), _TOP) if text.isascii() and text.isdigit() and len(text) < 9 else 0
