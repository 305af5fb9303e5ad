"""The API's calls on the plan and the helpers of a session."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app import planning
from whet.log import mask
from whet.serve.auth import ApiCaller
from whet.serve.native import Native
from whet.serve.wire import JsonAnswer
from whet.store import helper_rows
from whet.web.operations import Operation


class PlanInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to a session's plan.

    `planning` starts or ends planning, `steps` replace the model's steps, and `approve` lets the session
    carry out the plan. After `approve`, the answer contains the text of the turn to start.
    """

    planning: bool | None = None
    steps: list[str] | None = None
    approve: bool = False


class HelperList(msgspec.Struct, frozen=True):
    """A session's helpers, in the order in which they were started."""

    helpers: list[helper_rows.HelperView]


class PlanCalls:
    """The calls on plans and helpers."""

    def __init__(self, api: Native) -> None:
        self._api = api

    def operations(self) -> tuple[Operation, ...]:
        """Return the calls."""
        plan, helpers = "/api/sessions/{id}/plan", "/api/sessions/{id}/helpers"
        return (
            Operation("GET", plan, self.show),
            Operation("POST", plan, self.change, body=PlanInput),
            Operation("GET", helpers, self.helpers, answers={200: HelperList}),
        )

    async def show(self, request: Request, caller: ApiCaller) -> Response:
        """Show a session's plan and the results of each step."""
        services, session = await self._api.open_session(request, caller)
        return JsonAnswer(_plan_object(await planning.read_plan(services, session.id)))

    async def change(self, request: Request, caller: ApiCaller, body: PlanInput) -> Response:
        """Change a session's plan: planning mode, steps, approval."""
        services, session = await self._api.open_session(request, caller)
        if body.planning is not None:
            await planning.set_planning(services, session.id, body.planning)
        if body.steps is not None:
            planning.set_steps(services, session.id, body.steps)
        text = await planning.approve_plan(services, session.id) if body.approve else ""
        plan = _plan_object(await planning.read_plan(services, session.id))
        return JsonAnswer(plan | {"text": text} if text else plan)

    async def helpers(self, request: Request, caller: ApiCaller) -> Response:
        """List a session's helpers."""
        services, session = await self._api.open_session(request, caller)
        return JsonAnswer(
            HelperList(await services.database.read(lambda db: helper_rows.list_views(db, session.id)))
        )


def _plan_object(state: planning.PlanState) -> dict[str, object]:
    steps = [
        {"text": mask(step.text), "status": step.status, "done": mask(step.effects)} for step in state.steps
    ]
    return {"planning": state.is_planning, "steps": steps}
