"""The API's calls on lessons: list those that are new to the owner, waiting or refused, and decide on
them."""

from __future__ import annotations

from typing import Literal

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app.learning.services import LearningServices
from whet.contract.errors import NotFound
from whet.contract.texts import parse_typed_number
from whet.log import mask
from whet.memory.requests import summarize_change
from whet.serve.auth import ApiCaller
from whet.serve.wire import JsonAnswer
from whet.store import learned, lesson_counts
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow
from whet.web.operations import Operation, RequestParameter

_OWNER = ("owner",)
_MAX = 100


class LessonFacts(msgspec.Struct, frozen=True):
    """One waiting or refused change. `quotes` are its evidence."""

    id: int
    at: str
    kind: str
    item: str
    state: str
    what: str
    text: str
    reason: str
    quotes: list[str]


class Lessons(msgspec.Struct, frozen=True):
    """Counts of new changes with a summary `line`, the waiting changes, and the changes that reviews refused,
    newest first."""

    learned: int
    refused: int
    waiting: int
    line: str
    inbox: list[LessonFacts]
    refusals: list[LessonFacts]


class LessonAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owner's decision on a waiting change or a refused note."""

    answer: Literal["accept", "reject"]


class LessonCalls:
    """The calls on lessons; only for owners."""

    def __init__(self, database: StateDatabase, learning: LearningServices) -> None:
        self._database = database
        self._learning = learning

    def operations(self) -> tuple[Operation, ...]:
        """Return the calls."""
        seen, path = RequestParameter("seen", description="1 marks what is new as told."), "/api/learned"
        return (
            Operation("GET", path, self.show, roles=_OWNER, answers={200: Lessons}, parameters=(seen,)),
            Operation(
                "POST", f"{path}/{{id}}", self.decide, _OWNER, body=LessonAnswer, answers={200: LessonFacts}
            ),
        )

    async def show(self, request: Request, caller: ApiCaller) -> Response:
        """List the new, waiting and refused lessons. Lessons stay new until a call with `seen=1`."""
        is_seen = request.query_params.get("seen", "") == "1"

        def read(db: apsw.Connection) -> tuple[lesson_counts.LearningNews, list[LedgerRow], list[LedgerRow]]:
            return (
                lesson_counts.count_unread(db),
                lesson_counts.list_waiting(db)[:_MAX],
                lesson_counts.list_refusals(db),
            )

        changes, waits, refused = await self._database.read(read)
        if is_seen and changes.until:
            until = changes.until
            await self._database.append(
                lambda db: learned.set_report_position(
                    db, "", max(until, learned.read_report_position(db, ""))
                )
            )
        line = changes.line_with("GET /api/learned", "whet memory log")
        lessons = Lessons(
            changes.learned,
            changes.refused,
            changes.waiting,
            line,
            [await self._facts(row) for row in waits],
            [await self._facts(row) for row in refused],
        )
        return JsonAnswer(lessons)

    async def decide(self, request: Request, caller: ApiCaller, body: LessonAnswer) -> Response:
        """Accept or reject a waiting change or a refused note."""
        number_text, learning = request.path_params["id"], self._learning.owner_service
        number = parse_typed_number(number_text)
        if number is None:
            raise NotFound(f"there is no change {number_text[:20]}", hint="GET /api/learned lists them")
        row = await (learning.accept if body.answer == "accept" else learning.reject)(number)
        return JsonAnswer(await self._facts(row))

    async def _facts(self, row: LedgerRow) -> LessonFacts:
        whole = await self._learning.owner_service.describe_whole(row) if row.changes else ""
        text = mask(whole or row.after or f"removes: {row.before}")
        quotes = [mask(evidence.quote) for evidence in row.evidence]
        summary, reason = summarize_change(row), mask(row.reason)
        return LessonFacts(row.id, row.at, row.kind, row.item, row.state, summary, text, reason, quotes)
