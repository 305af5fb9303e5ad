"""Turns a press of a message's button into a decision: identifies the person and verifies the button."""

from __future__ import annotations

from collections.abc import Sequence

from whet.contract.channels import Incoming
from whet_confirm import whitelist
from whet_confirm.decide import DecisionInput
from whet_confirm.ledger import Tx
from whet_confirm.names import REQUEST_ID
from whet_confirm.notify.buttons import PressMeaning
from whet_confirm.notify.notice_text import clock_time
from whet_confirm.notify.settings import ConfiguredNotifier, People
from whet_confirm.records import Caller, ConfirmRequest, RequestOutcome
from whet_confirm.requests import decode_details
from whet_confirm.running_grants import find_running_grant
from whet_confirm.service import ConfirmService
from whet_confirm.shown import hidden_parts, one_line

_BY_NAME = (
    "SELECT id, role FROM tokens WHERE name = ? AND role IN ('approve', 'admin') AND revoked_at IS NULL"
    " AND (expires_at IS NULL OR expires_at > ?) LIMIT 1"
)


class Presses:
    """Handles presses. A person may decide in chats as long as they have a valid approve token."""

    def __init__(
        self, service: ConfirmService, people: People, notifiers: Sequence[ConfiguredNotifier]
    ) -> None:
        self._service = service
        self._people = people
        self._notifiers = notifiers

    async def __call__(self, press: Incoming) -> str:
        """Handle a press and describe the outcome, which is durable on return."""
        chats = [notifier for notifier in self._notifiers if notifier.listener == press.place.channel]
        kind = chats[0].kind
        pressed, request = None, None
        for notifier in chats:
            pressed = pressed or notifier.buttons.parse_press(press.text)
        if pressed is not None and REQUEST_ID.fullmatch(pressed.request_id):
            request = self._service.get(pressed.request_id)
        if pressed is None or request is None:
            return "This button belongs to no request that is known here."
        caller = self._find_caller(press.place.channel, press.place.user)
        if caller is None:
            return await self._refuse(kind, press, request)
        for notifier in chats:
            if notifier.buttons.is_ours(pressed, request.digest):
                meaning = notifier.buttons.meaning_of(pressed)
                return await apply_press(self._service, caller, request, meaning)
        return await self._refuse_stale_button(kind, press, request, caller)

    def _find_caller(self, bot: str, user: str) -> Caller | None:
        name = self._people.name(bot, user)
        if name is None:
            return None
        row = self._service.database.read_one(_BY_NAME, (name, self._service.timeline.now_s()))
        if row is None:
            return None
        role = "admin" if row[1] == "admin" else "approve"
        return Caller(name, role, str(row[0]))

    async def _refuse(self, kind: str, press: Incoming, request: ConfirmRequest) -> str:
        await self._record_refusal(kind, press, request, "not a person who may decide")
        return (
            f"You can't decide here: {kind} user {press.place.user} is not in the service's list "
            "of people, or has no approve token in use."
        )

    async def _refuse_stale_button(
        self, kind: str, press: Incoming, request: ConfirmRequest, caller: Caller
    ) -> str:
        if not request.is_pending:
            return describe_end(request)
        await self._record_refusal(
            kind, press, request, f"button of {caller.name} does not match the request"
        )
        return "This button is for another version of the request. See the newest message or the page."

    async def _record_refusal(self, kind: str, press: Incoming, request: ConfirmRequest, why: str) -> None:
        user = press.place.user
        data: dict[str, object] = {"channel": press.place.channel, "user": user[:64], "why": why}
        await self._service.record("press_refused", request.id, f"{kind}:{user}"[:80], data)


async def apply_press(
    service: ConfirmService, caller: Caller, request: ConfirmRequest, meaning: PressMeaning
) -> str:
    """Decide on a request or stop its grant, as the button means, and describe the outcome.

    `request` must be the version that the button was made for.
    """
    if meaning.is_stop:
        return await _stop_grant(service, caller, request)
    if meaning.verdict == "approve" and _has_hidden_parts(service, request):
        return "A part of this is hidden in messages: see it on the page to approve it."
    ballot = DecisionInput(request.id, meaning.verdict, meaning.reason, request.digest, grant=meaning.grant)
    return format_reply(await service.decide(ballot, caller))


async def _stop_grant(service: ConfirmService, caller: Caller, request: ConfirmRequest) -> str:
    def stop(tx: Tx) -> int:
        number = find_running_grant(tx.connection, request.id, tx.now_s)
        if number:
            whitelist.remove(tx, number, caller.name)
        return number

    number = await service.change(stop)
    return f"Grant {number} was stopped." if number else "This grant does not run any more."


def _has_hidden_parts(service: ConfirmService, request: ConfirmRequest) -> bool:
    """Return whether no message can show the whole request. An older button may still exist."""
    details = decode_details(request.details_json)
    texts = (request.description, request.action, request.requester)
    return bool(hidden_parts(details, texts, service.policy_file.policy.redact))


def format_reply(outcome: RequestOutcome) -> str:
    request = outcome.request
    if outcome.kind == "decided" and request is not None:
        grant = f" Grant {outcome.grant_id} runs." if outcome.grant_id else ""
        return describe_end(request) + grant
    if outcome.kind == "voted":
        return f"Your vote was {outcome.message}."[:190]
    if outcome.kind in ("late", "already_decided") and request is not None:
        return f"Too late. {describe_end(request)}"
    return f"Not decided: {outcome.message}."


def describe_end(request: ConfirmRequest) -> str:
    """Describe how a request ended, in at most 200 characters, which is Telegram's limit."""
    action = one_line(request.action, 60)[0]
    at = f" at {clock_time(request.resolved_at)}" if request.resolved_at else ""
    if request.status == "expired":
        return f"{action} expired{at} without a decision, which is a denial."
    by = f" by {one_line(request.resolved_by, 40)[0]}" if request.resolved_by else ""
    reason = f": {one_line(request.reason, 60)[0]}" if request.reason else "."
    return f"{action} was {request.status.replace('_', ' ')}{by}{at}{reason}"[:190]
