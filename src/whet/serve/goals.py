"""The API's calls on goals: start, show and stop them. Only for owners.

A worker runs an accepted goal, even if this server stops. Its result is read from the store.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app.services import Services
from whet.contract.texts import map_texts
from whet.log import mask
from whet.serve.auth import ApiCaller
from whet.serve.wire import JsonAnswer
from whet.store import goals
from whet.web.operations import JSON_OBJECT, Operation

_OWNER = ("owner",)


class GoalInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A goal. `verify` is a command that succeeds when the goal is reached. `guard` names files that must not
    change, `may_change` files that may change although they can change the result of `verify`."""

    text: str
    verify: str = ""
    budget_usd: Annotated[float, msgspec.Meta(ge=0, lt=1e6)] = 0.0
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    guard: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()


class Goals:
    """The calls on goals."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def operations(self) -> tuple[Operation, ...]:
        """Return the calls."""
        goal_path = "/api/goals/{id}"
        return (
            Operation("GET", "/api/goals", self.list_goals, roles=_OWNER),
            Operation(
                "POST", "/api/goals", self.start, roles=_OWNER, body=GoalInput, answers={202: JSON_OBJECT}
            ),
            Operation("GET", goal_path, self.show, roles=_OWNER),
            Operation("POST", f"{goal_path}/stop", self.stop, roles=_OWNER),
        )

    async def list_goals(self, request: Request, caller: ApiCaller) -> Response:
        """List goals, newest first."""
        rows = await self._services.database.read(goals.list_goals)
        return JsonAnswer({"goals": [map_texts(msgspec.to_builtins(row), mask) for row in rows]})

    async def start(self, request: Request, caller: ApiCaller, body: GoalInput) -> Response:
        """Queue a goal for a worker. Answers 202 with the goal's id."""
        from whet.goals.queue import queue_goal  # noqa: PLC0415 - few clients have goals
        from whet.goals.text import GoalWish  # noqa: PLC0415 - the same

        wish = GoalWish(body.text, body.verify, body.budget_usd, body.steps, body.guard, body.may_change)
        schedule = await queue_goal(self._services, wish)
        return JsonAnswer({"id": schedule.id, "state": "waiting"}, 202)

    async def show(self, request: Request, caller: ApiCaller) -> Response:
        """Show a goal and the effects of its calls."""
        from whet.goals.queue import find_goal  # noqa: PLC0415 - few clients have goals

        number, report = await find_goal(self._services, request.path_params["id"])
        return JsonAnswer(_answer(number, None if report is None else msgspec.to_builtins(report)))

    async def stop(self, request: Request, caller: ApiCaller) -> Response:
        """Stop a goal; it ends as cancelled."""
        from whet.goals.queue import stop_goal  # noqa: PLC0415 - few clients have goals

        number = request.path_params["id"]
        report = await stop_goal(self._services, number)
        return JsonAnswer(_answer(number, None if report is None else msgspec.to_builtins(report)))


def _answer(number: str, report: dict[str, Any] | None) -> dict[str, Any]:
    if report is None:
        return {"id": number, "state": "waiting"}
    return {"id": number, "state": report["goal"]["state"], **map_texts(report, mask)}
