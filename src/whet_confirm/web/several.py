"""The page that decides several requests with one form.

A request can be ticked only if this person has opened it in its current version and no part is hidden.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request as Http
from starlette.responses import Response

from whet.contract.errors import StoreCorrupt
from whet.web.sessions import Visit
from whet_confirm import sight
from whet_confirm.decide import DecisionInput
from whet_confirm.names import REQUEST_ID
from whet_confirm.records import Caller, ConfirmRequest
from whet_confirm.requests import RequestFilter, viewed_at
from whet_confirm.sight import Assessment
from whet_confirm.stand_ins import apply_stand_ins
from whet_confirm.web import view
from whet_confirm.web.site import AccountPages

_MAX_TICKED = 20
_MAX_REASON = 2_000
_FIELD = "r."


class SeveralPages(AccountPages):
    """Lists the requests that can be decided together, and applies one verdict to all ticked ones."""

    async def show(self, request: Http, visit: Visit) -> Response:
        """Show the pending requests, and which of them may be ticked."""
        return await self._answer(visit)

    async def decide(self, request: Http, visit: Visit) -> Response:
        """Decide on each ticked request, and report those that failed."""
        form, caller = request.state.form, self._accounts.caller_of(visit)
        verdict, reason = form.get("verdict"), form.get("reason", "").strip()
        ticked = {name.removeprefix(_FIELD): text for name, text in form.items() if name.startswith(_FIELD)}
        if verdict not in ("approve", "deny") or len(reason) > _MAX_REASON or len(ticked) > _MAX_TICKED:
            return await self._answer(visit, 400, "Nothing was decided: the form is not complete.")
        if not ticked or not caller.may("approve"):
            return await self._answer(
                visit, 403 if ticked else 400, "Nothing was decided: tick what you decide on."
            )
        results: list[dict[str, str]] = []
        for request_id, digest in ticked.items():
            try:
                confirmation = self._service.get(request_id) if REQUEST_ID.fullmatch(request_id) else None
            except StoreCorrupt as error:  # the other ticked requests are still decided
                results.append(
                    {"id": request_id, "action": request_id, "message": f"Not decided: {error.message}."}
                )
                continue
            if confirmation is not None:
                action, message = await self._decide_request(confirmation, DecisionInput(
                    confirmation.id, verdict, reason, digest or "-", via_web=True, is_one_of_many=True
                ), caller)  # fmt: skip
                results.append({"id": confirmation.id, "action": action, "message": message})
        return await self._answer(visit, results=results)

    async def _decide_request(
        self, confirmation: ConfirmRequest, ballot: DecisionInput, caller: Caller
    ) -> tuple[str, str]:
        action = view.build_request_card(confirmation, 0.0)["action"]
        if ballot.verdict == "approve" and view.has_unseen_parts(self._service, confirmation, caller):
            return action, "Not decided: a part of it was not shown to you."
        outcome = await self._service.decide(ballot, caller)
        if outcome.kind in ("decided", "voted"):
            return action, outcome.message[:1].upper() + outcome.message[1:] + "."
        return action, f"Not decided: {outcome.message}."

    async def _answer(
        self, visit: Visit, status: int = 200, problem: str = "", results: list[dict[str, str]] | None = None
    ) -> Response:
        now_s, caller = self._service.timeline.now_s(), self._accounts.caller_of(visit)
        pending = self._service.list(RequestFilter("pending", limit=200))
        pending.sort(key=lambda request: request.expires_at)
        assessments = await sight.assess_all(self._service, pending)
        rows = [
            self._row(request, caller, now_s, assessment)
            for request, assessment in zip(pending, assessments, strict=True)
        ]
        values = {"rows": rows, "problem": problem, "results": results or []}
        return self._pages.answer("several.html", status, visit=visit, **values)

    def _row(
        self, confirmation: ConfirmRequest, caller: Caller, now_s: float, assessment: Assessment
    ) -> dict[str, Any]:
        service, plan, risk = self._service, confirmation.plan, assessment.risk
        policy = service.policy_file.policy
        policy = service.database.read_now(
            lambda db: apply_stand_ins(db, policy, now_s, confirmation.principal)
        )
        barrier = view.find_barrier(confirmation, view.Viewer(caller, policy, now_s))
        is_alarming = confirmation.is_high_risk or (risk is not None and risk.is_alarming)
        if not barrier and (is_alarming or plan.needs_factor or plan.needs_passkey):
            barrier = "Decide on this one by itself."
        if not barrier and view.has_unseen_parts(self._service, confirmation, caller):
            barrier = "A part of it was not shown to you yet."
        if (
            not barrier
            and service.database.read_now(lambda db: viewed_at(db, confirmation.id, caller.name)) is None
        ):
            barrier = "Look at it first."
        card = view.build_request_card(confirmation, now_s, assessment)
        return card | {"barrier": barrier, "digest": confirmation.digest}
