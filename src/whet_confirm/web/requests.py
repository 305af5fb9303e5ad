"""The two main pages: pending requests, and one request with everything needed to decide on it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from whet.contract.errors import NotFound
from whet.contract.texts import parse_typed_number
from whet.web.sessions import Visit
from whet_confirm import passkeys, sight, whitelist
from whet_confirm.decide import DecisionInput
from whet_confirm.http.wire import HttpRefusal, parse_object
from whet_confirm.keys import base64url
from whet_confirm.names import REQUEST_ID
from whet_confirm.notify import deliveries
from whet_confirm.passkeys import MAX_PROOF_CHARS
from whet_confirm.records import Caller, ConfirmRequest, RequestOutcome
from whet_confirm.requests import RequestFilter, viewed_at
from whet_confirm.service import run_off_loop
from whet_confirm.stand_ins import apply_stand_ins
from whet_confirm.web import view
from whet_confirm.web.passkey_pages import request_origin
from whet_confirm.web.site import AccountPages
from whet_confirm.whitelist import list_running

MAX_PENDING = 200
_MAX_REASON = 2_000
_STATUS = {"not_found": 404, "not_allowed": 403, "own_request": 403, "too_early": 425}


class RequestPages(AccountPages):
    """Lists, shows and decides requests."""

    async def home(self, request: Http, visit: Visit) -> Response:
        """Show the pending requests; on a wide screen the most urgent one is opened."""
        return await self._answer(visit, None)

    async def record(self, request: Http, visit: Visit) -> Response:
        """Show one request, pending or past, and record that it was viewed."""
        confirmation = self._find(request)
        if confirmation is None:
            return self._problem(404, visit, "There is no such request.")
        caller = self._accounts.caller_of(visit)
        if confirmation.is_pending and caller.may("approve"):
            await self._service.mark_viewed(confirmation, caller)
        return await self._answer(visit, confirmation)

    async def decide(self, request: Http, visit: Visit) -> Response:
        """Decide from the form; high-risk approvals need a second confirmation."""
        confirmation, form, caller = self._find(request), request.state.form, self._accounts.caller_of(visit)
        verdict, reason, digest = form.get("verdict"), form.get("reason", "").strip(), form.get("digest", "")
        if confirmation is None:
            return self._problem(404, visit, "There is no such request.")
        if verdict not in ("approve", "deny") or len(digest) != 64 or len(reason) > _MAX_REASON:
            return self._problem(400, visit, "Nothing was decided: the form is not complete.")
        if not caller.may("approve"):
            return self._problem(403, visit, "Nothing was decided: you may look, not decide.")
        if verdict == "approve" and view.has_unseen_parts(self._service, confirmation, caller):
            text = "Not decided. A part of this was not shown to you: have it shown first."
            return await self._answer(visit, confirmation, status=409, problem=text)
        plan = confirmation.plan
        takes_more = verdict == "approve" and (
            confirmation.is_high_risk or plan.needs_factor or plan.needs_passkey
        )
        if (
            takes_more
            and confirmation.is_pending
            and digest == confirmation.digest
            and form.get("sure") != "yes"
        ):
            return await self._ask_again(visit, confirmation, reason)
        passkey = form.get("passkey", "")[:MAX_PROOF_CHARS]
        if passkey:
            await asyncio.to_thread(passkeys.import_webauthn)
        ballot = DecisionInput(
            confirmation.id,
            verdict,
            reason,
            digest,
            via_web=True,
            code=form.get("code", "")[:32],
            passkey=passkey,
            origin=request_origin(request).origin,
            grant=form.get("grant", "")[:32],
        )
        outcome = await self._service.decide(ballot, caller)
        if outcome.kind in ("code", "passkey"):
            return await self._ask_again(visit, outcome.request or confirmation, reason, outcome.message)
        return await self._respond(outcome, confirmation, visit)

    async def stop_grant(self, request: Http, visit: Visit) -> Response:
        """Stop a running grant, or another whitelist entry."""
        caller, number = self._accounts.caller_of(visit), parse_typed_number(request.path_params["number"])
        if not caller.may("approve"):
            return self._problem(403, visit, "Nothing was stopped: you may look, not decide.")
        try:
            await self._service.change(lambda tx: whitelist.remove(tx, number or 0, caller.name))
        except NotFound as error:
            return self._problem(404, visit, f"Nothing was stopped: {error.message}.")
        return RedirectResponse("/", 303)

    async def reveal(self, request: Http, visit: Visit) -> Response:
        """Record that a possible approver asked for the hidden parts of a request, then reveal them."""
        confirmation, caller = self._find(request), self._accounts.caller_of(visit)
        if confirmation is None or not caller.may("approve"):
            return self._problem(403, visit, "You can't see more of this request.")
        await sight.reveal(self._service, confirmation.id, caller)
        return RedirectResponse(f"/r/{confirmation.id}", 303)

    async def _ask_again(
        self, visit: Visit, confirmation: ConfirmRequest, reason: str, problem: str = ""
    ) -> Response:
        """Ask for a second confirmation, with the second factor if required; ask again after a wrong code."""
        detail = await self._build_detail(confirmation, self._accounts.caller_of(visit))
        values: dict[str, object] = {
            "detail": detail,
            "reason": reason,
            "problem": problem[:1].upper() + problem[1:],
            "asking": self._passkey_options(confirmation, visit) if confirmation.plan.needs_passkey else "",
        }
        return self._page("sure.html", visit, values, 403 if problem else 200)

    def _passkey_options(self, confirmation: ConfirmRequest, visit: Visit) -> str:
        """Return the options for the browser's authenticator as JSON, or "" if the person has no passkey."""
        passkey_ids = self._service.database.read_now(
            lambda db: passkeys.passkey_ids(db, self._accounts.caller_of(visit).name)
        )
        challenge = base64url(passkeys.vote_challenge("approve", confirmation.digest))
        options = {
            "challenge": challenge,
            "allowCredentials": [{"type": "public-key", "id": passkey_id} for passkey_id in passkey_ids],
            "userVerification": "required",
        }
        return msgspec.json.encode(options).decode() if passkey_ids else ""

    async def amend(self, request: Http, visit: Visit) -> Response:
        """Change the details of a request whose submitter accepts edits; it must be approved again."""
        confirmation, caller = self._find(request), self._accounts.caller_of(visit)
        if confirmation is None or not caller.may("approve"):
            return self._problem(403, visit, "Nothing was changed: you can't decide on this request.")
        try:
            details = parse_object(request.state.form.get("details", "").encode())
            target = confirmation.id, request.state.form.get("digest", "")
            outcome = await self._service.amend(target, caller, details)
        except (HttpRefusal, ValueError) as error:  # parsed as strictly as in the API
            return self._problem(400, visit, f"Nothing was changed: the details can't be taken: {error}.")
        if outcome.kind == "changed":
            return self._problem(409, visit, "Nothing was changed: the request is not what you looked at.")
        return await self._respond(outcome, confirmation, visit)

    async def _respond(self, outcome: RequestOutcome, confirmation: ConfirmRequest, visit: Visit) -> Response:
        if outcome.kind in ("decided", "voted", "amended"):
            return RedirectResponse(f"/r/{confirmation.id}?done={outcome.kind}", 303)
        status = _STATUS.get(outcome.kind, 409)
        fresh = outcome.request or confirmation
        message = outcome.message[:1].upper() + outcome.message[1:]
        return await self._answer(visit, fresh, status=status, problem=f"Not decided. {message}.")

    async def _answer(
        self, visit: Visit, chosen: ConfirmRequest | None, *, status: int = 200, problem: str = ""
    ) -> Response:
        now_s = self._service.timeline.now_s()
        pending = self._service.list(RequestFilter("pending", limit=MAX_PENDING))
        pending.sort(key=lambda request: request.expires_at)
        assessments = await sight.assess_all(self._service, pending)
        is_home = chosen is None
        selected = chosen or (pending[0] if pending else None)
        values: dict[str, object] = {
            "cards": [
                view.build_request_card(request, now_s, assessment)
                for request, assessment in zip(pending, assessments, strict=True)
            ],
            "count": self._service.count_pending(),
            "detail": await self._build_detail(selected, self._accounts.caller_of(visit))
            if selected
            else None,
            "is_home": is_home,
            "problem": problem,
            "channels": self._notifier.states(),
            "grants": [
                view.build_grant_card(entry)
                for entry in self._service.database.read_now(lambda db: list_running(db, now_s))
            ],
            "unreached": self._service.database.read_now(lambda db: deliveries.count_unreached(db, now_s)),
            "may_stop": self._accounts.caller_of(visit).may("approve"),
        }
        return self._page("desk.html", visit, values, status)

    async def _build_detail(self, request: ConfirmRequest, caller: Caller) -> dict[str, Any]:
        service = self._service
        seen_at = service.database.read_now(lambda db: viewed_at(db, request.id, caller.name))
        now_s, base_policy = service.timeline.now_s(), service.policy_file.policy
        policy = service.database.read_now(
            lambda db: apply_stand_ins(db, base_policy, now_s, request.principal)
        )
        viewer = view.Viewer(
            caller,
            policy,
            now_s,
            seen_at,
            sight.last_revealed_digest(service, request.id, caller),
        )
        delivery_rows = service.database.read_now(
            lambda db: deliveries.list_deliveries(db, request.id, now_s)
        )
        events = service.log.history(request_id=request.id)
        assessment = sight.assess(service, request)
        return await run_off_loop(
            request.length, view.build_request_detail, request, viewer, assessment, delivery_rows, events
        )

    def _page(self, template: str, visit: Visit, values: dict[str, object], status: int) -> Response:
        now_s = self._service.timeline.now_s()
        last = self._service.hub.last_id
        return self._pages.answer(template, status, visit=visit, now_s=now_s, last_event=last, **values)

    def _problem(self, status: int, visit: Visit, text: str) -> Response:
        return self._pages.answer("problem.html", status, text=text, visit=visit)

    def _find(self, request: Http) -> ConfirmRequest | None:
        request_id = request.path_params["id"]
        return self._service.get(request_id) if REQUEST_ID.fullmatch(request_id) else None
