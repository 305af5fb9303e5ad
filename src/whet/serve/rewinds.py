"""The API's calls for rewind and diff: list a session's steps with their changes to files, and undo them."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.log import mask
from whet.rewind.answers import (
    DiffAnswer,
    RewindAnswer,
    RewindPoints,
    diff_answer,
    points_answer,
    rewind_answer,
)
from whet.rewind.rewinding import Outcome, Point, Rewinding, parse_point
from whet.rewind.states import printable_path
from whet.serve.auth import ApiCaller
from whet.serve.native import Native, query_number
from whet.serve.wire import ApiError, JsonAnswer
from whet.store.rewinds import Parts
from whet.web.operations import Operation, RequestParameter

_MAX_NAMED = 20
_LAST_TURN = 999_999_999


class RewindInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The target of a rewind: `to` is TURN, TURN.STEP (before it), or `undo` for the last rewind.

    `own_edits` decides about files that another person or program has changed since, if both changes can't be
    kept: `ask` changes nothing and lists them (409 `own_edits`), `keep` leaves them as they are, `replace`
    restores them, too, which only the owner may choose. `dry_run` only returns the plan.
    """

    to: str
    parts: Parts = "both"
    own_edits: Literal["ask", "keep", "replace"] = "ask"
    dry_run: bool = False


class RewindCalls:
    """The calls for rewind and diff."""

    def __init__(self, api: Native) -> None:
        self._api = api

    def operations(self) -> tuple[Operation, ...]:
        """Return the calls."""
        rewind, turn = "/api/sessions/{id}/rewind", RequestParameter("turn", int)
        return (
            Operation("GET", rewind, self.points, answers={200: RewindPoints}),
            Operation("POST", rewind, self.rewind, body=RewindInput, answers={200: RewindAnswer}),
            Operation(
                "GET", "/api/sessions/{id}/diff", self.diff, answers={200: DiffAnswer}, parameters=(turn,)
            ),
        )

    async def points(self, request: Request, caller: ApiCaller) -> Response:
        """List the points to go back to. An interrupted rewind is finished first."""
        async with self._api.between_turns(request, caller) as (services, session):
            rewinding = Rewinding(services.recordings.get(), session.log, services.workspace)
            finished = await rewinding.recover()
            return JsonAnswer(points_answer(finished, await rewinding.steps(), await rewinding.left_out()))

    async def diff(self, request: Request, caller: ApiCaller) -> Response:
        """Show a turn's changes to files; without a turn, the session's. Secrets are masked."""
        turn = query_number(request, "turn", 0, _LAST_TURN)
        services, session = await self._api.open_session(request, caller)
        changes = await Rewinding(services.recordings.get(), session.log, services.workspace).diff(turn)
        return JsonAnswer(diff_answer(changes, mask))

    async def rewind(self, request: Request, caller: ApiCaller, body: RewindInput) -> Response:
        """Go back to before a turn or step, or undo a rewind. 409 while a turn runs, and if files were edited
        since and `own_edits` is `ask`."""
        point = _point(body.to)
        is_forced = body.own_edits == "replace"
        if is_forced and not caller.is_owner:
            raise ApiError(
                403, "files that somebody else changed are the owner's to replace", code="wrong_role"
            )
        async with self._api.between_turns(request, caller) as (services, session):
            rewinding = Rewinding(services.recordings.get(), session.log, services.workspace)
            if body.dry_run:
                plan = await rewinding.preview(point, body.parts, force=is_forced)
                return JsonAnswer(rewind_answer(plan, mask, is_plan=True))
            if body.own_edits == "ask":
                _require_decision(await rewinding.preview(point, body.parts, force=False))
            outcome = await rewinding.rewind(point, body.parts, force=is_forced)
            return JsonAnswer(rewind_answer(outcome, mask, is_plan=False))


def _point(to: str) -> Point | None:
    point = parse_point(to)
    if point is None and to != "undo":
        raise ApiError(400, "to must be TURN, TURN.STEP or undo", param="to", code="invalid_value")
    return point


def _require_decision(plan: Outcome) -> None:
    """Raise ApiError (409) if the plan leaves out files that the person could choose to restore."""
    changed = [printable_path(change.path) for change in plan.forceable_conflicts]
    if changed:
        more = f" and {len(changed) - _MAX_NAMED} more" if len(changed) > _MAX_NAMED else ""
        raise ApiError(
            409,
            f"changed since by somebody else: {', '.join(changed[:_MAX_NAMED])}{more}; nothing was done:"
            " say own_edits keep or replace (dry_run shows the plan)",
            param="own_edits",
            code="own_edits",
        )
