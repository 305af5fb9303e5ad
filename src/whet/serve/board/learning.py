"""The pages of lessons: the ledger, waiting changes, notes and timeline, and the forms that decide on
changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import get_args

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.memory.effects import MIN_SESSIONS, Effect, measure_effects
from whet.memory.notes import NoteEntry
from whet.memory.reader import hash_entry
from whet.memory.requests import summarize_change
from whet.serve.board import shown
from whet.serve.board.frame import Frame, number_or_zero
from whet.store import ledger, lesson_counts
from whet.store.ledger import Kind, LedgerFilter, LedgerRow, State
from whet.web.sessions import Visit

_PAGE, _MAX = 40, 1_000
_STATES: tuple[State, ...] = get_args(State)
_KINDS: tuple[Kind, ...] = get_args(Kind)
WHO = {"foreground": "the agent", "review": "a review", "user": "you", "import": "installed"}


_LEARNED: tuple[State, ...] = ("active", "undone")


class LearnedMoment(msgspec.Struct, frozen=True):
    """One change on the timeline. `effect`: the outcomes of sessions that started with it, None if
    unknown."""

    row: LedgerRow
    summary: str
    effect: Effect | None

    @property
    def is_compared(self) -> bool:
        """Whether there are enough sessions on both sides for a comparison."""
        effect = self.effect
        return effect is not None and min(effect.shown.sessions, effect.compared.sessions) >= MIN_SESSIONS


class LearningPages:
    """Shows lessons and decides on them."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._service = frame.services.learning.owner_service

    async def ledger(self, request: Request, visit: Visit) -> Response:
        """List changes, newest first."""
        params = request.query_params
        limit = min(number_or_zero(params.get("n", "")) or _PAGE, _MAX)
        filters: LedgerFilter = {"profile": ""}
        kind, state = params.get("kind", ""), params.get("state", "")
        for known_kind in _KINDS:
            if known_kind == kind:
                filters["kind"] = known_kind
        for known_state in _STATES:
            if known_state == state:
                filters["states"] = (known_state,)
        rows = await self._rows(limit + 1, filters)
        return self._frame.page(
            "learning.html",
            visit,
            here="learning",
            rows=[(row, summarize_change(row)) for row in rows[:limit]],
            more=limit + _PAGE if len(rows) > limit else 0,
            kind=filters.get("kind", ""),
            state=state if "states" in filters else "",
            states=[known_state for known_state in _STATES if known_state != "staged"],
            who=WHO,
        )

    async def inbox(self, request: Request, visit: Visit) -> Response:
        """Show the waiting and the refused changes in full, and mark them as reported to the owner."""
        rows = await self._rows(200, {"profile": "", "states": lesson_counts.WAITING})
        refused: list[LedgerRow] = await self._frame.services.database.read(lesson_counts.list_refusals)
        changes = await self._frame.services.database.append(lesson_counts.take_unread)
        return self._frame.page(
            "inbox.html",
            visit,
            here="inbox",
            rows=[await self._change_values(row) for row in rows],
            refused=[await self._change_values(row) for row in refused],
            told=changes.line_with("below", "/learning"),
            who=WHO,
            problem="",
        )

    async def change(self, request: Request, visit: Visit) -> Response:
        """Show one change in full."""
        return await self._change(visit, _id(request))

    async def notes(self, request: Request, visit: Visit) -> Response:
        """Show the notes files as new sessions read them, with the effect of each note."""
        files = await self._service.reader.read_notes()
        all_effects = await measure_effects(self._service, ("memory", "user"))
        return self._frame.page(
            "notes.html",
            visit,
            here="learning",
            files=files,
            effects=[effect for effect in all_effects if effect.current],
        )

    async def timeline(self, request: Request, visit: Visit) -> Response:
        """Show the lessons by day: their evidence, and the outcomes of sessions since."""
        limit = min(number_or_zero(request.query_params.get("n", "")) or _PAGE, _MAX)
        rows = await self._rows(limit + 1, {"profile": "", "states": _LEARNED})
        effects = {
            (effect.item.kind, effect.item.name): effect
            for effect in await measure_effects(self._service, ("memory", "user", "skill"))
        }
        days: dict[str, list[LearnedMoment]] = {}
        for row in rows[:limit]:
            moment = LearnedMoment(row, summarize_change(row), effects.get(_effect_key(row)))
            days.setdefault(row.at[:10], []).append(moment)
        return self._frame.page(
            "timeline.html",
            visit,
            here="learning",
            days=list(days.items()),
            more=limit + _PAGE if len(rows) > limit else 0,
            who=WHO,
            least=MIN_SESSIONS,
        )

    async def undo(self, request: Request, visit: Visit) -> Response:
        """Undo a change."""
        origin = Origin("user", execution_context="dashboard")
        return await self._decide(request, visit, lambda row_id: self._service.undo(row_id, origin))

    async def accept(self, request: Request, visit: Visit) -> Response:
        """Accept a waiting change."""
        return await self._decide(request, visit, self._service.accept)

    async def reject(self, request: Request, visit: Visit) -> Response:
        """Reject a waiting change."""
        return await self._decide(request, visit, self._service.reject)

    async def _decide(
        self, request: Request, visit: Visit, decide: Callable[[int], Awaitable[LedgerRow]]
    ) -> Response:
        row_id = _id(request)
        try:
            row = await decide(row_id)
        except NotFound:
            raise
        except WhetError as error:
            return await self._change(visit, row_id, 409, f"Nothing was changed: {error}")
        return_to = request.state.form.get("back", "")
        if return_to == "inbox":
            return RedirectResponse("/inbox", 303)
        return RedirectResponse(f"/learning/{row.id}", 303)

    async def _change(self, visit: Visit, row_id: int, status: int = 200, problem: str = "") -> Response:
        row = await self._service.get_change(row_id)
        return self._frame.page(
            "change.html",
            visit,
            status,
            here="learning",
            one=await self._change_values(row),
            who=WHO,
            problem=problem,
        )

    async def _change_values(self, row: LedgerRow) -> dict[str, object]:
        waits = row.state in lesson_counts.WAITING or (row.state == "refused" and row.kind == "memory")
        return {
            "row": row,
            "summary": summarize_change(row),
            "diff": shown.diff(row.before, row.after),
            # The diff leaves out the middle of a long text, and files beside SKILL.md.
            "whole": await self._service.describe_whole(row) if waits and row.changes else "",
            "waits": waits,
            "can_undo": row.state == "active" and not row.undone_by,
        }

    async def _rows(self, limit: int, filters: LedgerFilter) -> list[LedgerRow]:
        await self._service.reader.read_notes()  # record edits made by hand first

        def read(db: apsw.Connection) -> list[LedgerRow]:
            return ledger.select(db, limit, **filters)

        return await self._frame.services.database.read(read)


def _effect_key(row: LedgerRow) -> tuple[str, str]:
    """Return the kind and name under which sessions with this change are counted."""
    if row.kind == "skill":
        return "skill", row.item
    return row.item, hash_entry(NoteEntry(row.after, "", 0, 0))


def _id(request: Request) -> int:
    number = number_or_zero(request.path_params["id"])
    if not number:
        raise NotFound("there is no such change", hint="/learning lists them")
    return number
