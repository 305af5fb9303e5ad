"""Pages for sessions: search by words or title, and read one from the beginning or step by step."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from whet.app import planning
from whet.contract.messages import ImagePart, ToolCall
from whet.contract.receipts import TurnReceipt
from whet.contract.texts import NOT_JSON, from_json, subject_of, unwrap_pastes
from whet.question import Row, parse_row
from whet.serve.board import prose, shown
from whet.serve.board.frame import Frame, number_or_zero
from whet.serve.board.live_turn import LiveTurns
from whet.serve.board.prose import ProseBlock
from whet.serve.wire import ApiError
from whet.store import facts, forks, helper_rows, ledger, replay, reviews, search, sessions
from whet.store.forks import TreeRow
from whet.store.ledger import LedgerRow
from whet.store.replay import ReplayedTurn, ReplayEntry
from whet.store.search import Hit
from whet.web.sessions import Visit

_PAGE = 40
_ENTRIES, _MAX_ENTRIES = 200, 1_000
_MAX_ARGUMENTS, _ABOUT_CHARS = 6_000, 160
_TOP = 1 << 21


class PageCall(msgspec.Struct, frozen=True):
    """A call as the page shows it: its subject, its arguments, and the lines that it writes."""

    name: str
    about: str
    arguments: str
    rows: tuple[Row, ...] = ()


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it, with all texts ready for display.

    An answer has `blocks`, its `calls` without a result yet, and `did`, the receipt of its turn. A result
    has the call that it `answers`.
    """

    entry: ReplayEntry
    text: str
    blocks: tuple[ProseBlock, ...]
    calls: list[PageCall]
    images: int
    starts_turn: ReplayedTurn | None
    answers: PageCall | None = None
    did: TurnReceipt | None = None


class ShownSpan(msgspec.Struct, frozen=True):
    """The messages that a page shows: `limit` from number `first` on. If `at` is set, they end at that
    message, for replay."""

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
        hits: list[Hit] = await search.find(database, query, 50) if query else []

        def read(db: apsw.Connection) -> tuple[list[TreeRow], str]:
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
        asks: int | None = None,
    ) -> Response:
        """Show a session: its newest messages, those from a given one on, or for replay those up to `at`.

        `problem` is the error of a request on the page. `notice` is the outcome of a rewind, or its plan
        if `asks` is set, which is the turn to go back to.
        """
        session_id, params = request.path_params["id"], request.query_params

        def read(db: apsw.Connection) -> dict[str, Any]:
            row = sessions.get(db, session_id)
            last = replay.read_last_seq(db, session_id)
            span = read_span(params, last)
            values = replay.list_entries(db, session_id, span.first, span.limit)
            turns = replay.list_turns(db, session_id, values[0].turn, values[-1].turn) if values else {}
            return {
                "row": row,
                "span": span,
                "entries": build_page_messages(values, turns, _read_receipts(db, session_id, values)),
                "last": last,
                "turn": replay.read_last_turn(db, session_id),
                "helpers": helper_rows.list_views(db, session_id),
                "family": forks.list_family(db, session_id),
                "reviews": reviews.list_reviews(db, 20, session_id=session_id),
                "learned": _read_changes(db, session_id),
            }

        values = await self._frame.services.database.read(read)
        plan = await planning.read_plan(self._frame.services, session_id)
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
            is_running=is_running,
            is_elsewhere=not is_running and values["turn"] is not None and not values["turn"].ended,
            live=live if is_running else None,
            questions=frame.questions(session_id),
            problem=shown.text(problem.message) if problem else failed,
            most=_MAX_ENTRIES,
            told=shown.text(notice),
            asks=asks,
            **values,
        )


def read_span(params: QueryParams, last: int) -> ShownSpan:
    """Return the span of messages that a request asks for; `last` is the newest message."""
    at, first = (min(number_or_zero(params.get(name, "")), _TOP) for name in ("at", "from"))
    limit = min(number_or_zero(params.get("n", "")) or _ENTRIES, _MAX_ENTRIES)
    if at:  # the messages before the one that is replayed
        first = max(1, at - limit + 1)
        return ShownSpan(first, at - first + 1, at)
    return ShownSpan(first or max(1, last - limit + 1), limit)


def _read_changes(db: apsw.Connection, session_id: str) -> list[LedgerRow]:
    return ledger.select(db, 20, profile="", session_id=session_id)


def _read_receipts(
    db: apsw.Connection, session_id: str, entries: list[ReplayEntry]
) -> dict[int, TurnReceipt]:
    """Return the receipts of the turns whose answers are among the entries."""
    key = sessions.key_of(db, session_id)
    receipts = {
        entry.turn: facts.build_receipt(db, key, entry.turn) for entry in entries if _is_answer(entry)
    }
    return {turn: receipt for turn, receipt in receipts.items() if receipt is not None}


def _is_answer(entry: ReplayEntry) -> bool:
    return entry.message.role == "assistant" and not entry.message.tool_calls


def build_page_messages(
    entries: list[ReplayEntry], turns: dict[int, ReplayedTurn], receipts: dict[int, TurnReceipt]
) -> list[ShownMessage]:
    messages: list[ShownMessage] = []
    open_calls: dict[str, tuple[PageCall, list[PageCall]]] = {}
    before = -1
    for entry in entries:
        message = entry.message
        content = message.content
        images = 0 if isinstance(content, str) else sum(isinstance(part, ImagePart) for part in content)
        text = shown.text(unwrap_pastes(message.text) if message.role == "user" else message.text)
        called = [(call.id, build_page_call(call)) for call in message.tool_calls]
        calls = [call for _, call in called]
        answered = open_calls.pop(message.tool_call_id, None) if message.role == "tool" else None
        if answered is not None:
            answered[1].remove(answered[0])
        messages.append(
            ShownMessage(
                entry,
                text,
                tuple(prose.split_blocks(text)) if message.role == "assistant" else (),
                calls,
                images,
                turns.get(entry.turn) if entry.turn != before else None,
                answered[0] if answered else None,
                receipts.get(entry.turn) if _is_answer(entry) else None,
            )
        )
        open_calls |= {id_: (call, calls) for id_, call in called}
        before = entry.turn
    return messages


def build_page_call(call: ToolCall) -> PageCall:
    """Format a call for reading: written content as diff lines, other arguments one a line, unreadable
    arguments unchanged."""
    name = shown.line(call.name, 60)
    try:
        arguments = from_json(call.arguments, dict[str, Any])
    except NOT_JSON:
        return PageCall(name, "", shown.text(call.arguments, _MAX_ARGUMENTS))
    subject = subject_of(arguments)
    rows: list[Row] = []
    other_lines: list[str] = []
    for key, value in arguments.items():
        if key in ("diff", "patch") and isinstance(value, str) and "\n" in value:
            rows += [_diff_row(line) for line in shown.text(value, _MAX_ARGUMENTS).strip("\n").split("\n")]
        elif key in ("content", "new_string", "old_string") and isinstance(value, str):
            sign = "-" if key == "old_string" else "+"
            lines = shown.text(value, _MAX_ARGUMENTS).removesuffix("\n").split("\n")
            rows += [parse_row(sign + line) for line in lines]
        elif value != subject or len(subject) > _ABOUT_CHARS or "\n" in subject:
            other_lines.append(f"{key}: {_value(value)}")
    subject_line = shown.line(subject, _ABOUT_CHARS)
    return PageCall(name, subject_line, shown.text("\n".join(other_lines), _MAX_ARGUMENTS), tuple(rows))


def _diff_row(line: str) -> Row:
    return Row("file", line) if line.startswith(("--- ", "+++ ")) else parse_row(line)


def _value(value: object) -> str:
    if isinstance(value, str):
        return f"\n{value}" if "\n" in value else value
    return msgspec.json.encode(value).decode()


def split_snippet(snippet: str) -> list[tuple[bool, str]]:
    """Split a snippet at its search marks into (is a hit, text)."""
    pieces: list[tuple[bool, str]] = []
    for number, part in enumerate(snippet.split(search.MARK_OPEN)):
        if not number:
            pieces.append((False, part))
            continue
        hit, _, tail = part.partition(search.MARK_CLOSE)
        pieces += [(True, hit), (False, tail)]
    return [(is_hit, shown.text(text, 400)) for is_hit, text in pieces if text]
