"""A press becomes a decision, or a reason why not: whose it is, what it is bound to, what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from whet.confirm.decide import DecisionInput
from whet.confirm.ids import SHAPE
from whet.confirm.notify.buttons import Buttons
from whet.confirm.notify.channel import ButtonPress, PressReply
from whet.confirm.notify.settings import People
from whet.confirm.notify.telling import clock_time
from whet.confirm.records import Caller, ConfirmRequest, RequestOutcome
from whet.confirm.service import ConfirmService
from whet.confirm.shown import one_line

_BY_NAME = (
    "SELECT id, role FROM tokens WHERE name = ? AND role IN ('approve', 'admin') AND revoked_at IS NULL"
    " AND (expires_at IS NULL OR expires_at > ?) LIMIT 1"
)


class Presses:
    """Decides what presses do. A person may decide in chats as long as they have an approve token in use."""

    def __init__(self, service: ConfirmService, people: People, buttons: Mapping[str, Buttons]) -> None:
        self._service = service
        self._people = people
        self._buttons = buttons

    async def __call__(self, press: ButtonPress) -> PressReply:
        """Take a press; whatever comes of it is on disk before the answer."""
        buttons = self._buttons[press.channel]
        pressed = buttons.read(press.data)
        request = None
        if pressed is not None and SHAPE.fullmatch(pressed.request_id):
            request = self._service.get(pressed.request_id)
        if pressed is None or request is None:
            return PressReply("This button belongs to no request that is known here.")
        who = self._who(press)
        if who is None:
            return await self._refuse(press, request)
        if not buttons.is_ours(pressed, request.digest):
            return await self._not_bound(press, request, who)
        verdict, reason = buttons.meaning(pressed)
        # What the button was made for, not what the request is by now: the decision compares the two.
        ballot = DecisionInput(request.id, verdict, reason, request.digest)
        return _reply(await self._service.decide(ballot, who))

    def _who(self, press: ButtonPress) -> Caller | None:
        name = self._people.name(press.kind, press.user_id)
        if name is None:
            return None
        row = self._service.database.read_one(_BY_NAME, (name, self._service.timeline.now_s()))
        if row is None:
            return None
        role = "admin" if row[1] == "admin" else "approve"
        return Caller(name, role, str(row[0]))

    async def _refuse(self, press: ButtonPress, request: ConfirmRequest) -> PressReply:
        await self._note(press, request, "not a person who may decide")
        return PressReply(
            f"You can't decide here: {press.kind} user {press.user_id} is not in the service's list "
            "of people, or has no approve token in use."
        )

    async def _not_bound(self, press: ButtonPress, request: ConfirmRequest, who: Caller) -> PressReply:
        if not request.is_pending:
            return PressReply(_ended(request))
        await self._note(press, request, f"button of {who.name} does not fit the request")
        return PressReply(
            "This button is for another version of the request. See the newest message or the page."
        )

    async def _note(self, press: ButtonPress, request: ConfirmRequest, why: str) -> None:
        data: dict[str, object] = {"channel": press.channel, "user": press.user_id[:64], "why": why}
        await self._service.record("press_refused", request.id, f"{press.kind}:{press.user_id}"[:80], data)


def _reply(outcome: RequestOutcome) -> PressReply:
    request = outcome.request
    if outcome.kind == "decided" and request is not None:
        return PressReply(_ended(request), did_count=True)
    if outcome.kind == "voted":
        return PressReply(
            f"Your vote counts. {outcome.message[:1].upper()}{outcome.message[1:]}.", did_count=True
        )
    if outcome.kind in ("late", "already_decided") and request is not None:
        return PressReply(f"Too late. {_ended(request)}")
    return PressReply(f"Not decided: {outcome.message}.")


def _ended(request: ConfirmRequest) -> str:
    """Say how a request ended, in at most 200 characters: as much as Telegram shows."""
    action = one_line(request.action, 60)[0]
    at = f" at {clock_time(request.resolved_at)}" if request.resolved_at else ""
    if request.status == "expired":
        return f"{action} expired{at} without a decision, which is a denial."
    by = f" by {one_line(request.resolved_by, 40)[0]}" if request.resolved_by else ""
    reason = f": {one_line(request.reason, 60)[0]}" if request.reason else "."
    return f"{action} was {request.status.replace('_', ' ')}{by}{at}{reason}"[:190]
