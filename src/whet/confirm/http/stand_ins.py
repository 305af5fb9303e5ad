"""The calls of people who are away: who sits for them, until when."""

from __future__ import annotations

from whet.confirm import stand_ins
from whet.confirm.http import shapes
from whet.confirm.http.exchange import Answer, Exchange
from whet.confirm.http.wire import HttpRefusal
from whet.contract.errors import NotFound


async def delegations(call: Exchange) -> Answer:
    """List who sits for whom now."""
    now_s = call.service.timeline.now_s()
    return 200, shapes.DelegationList(
        call.service.database.read_now(lambda db: stand_ins.in_force(db, now_s))
    )


async def delegate(call: Exchange, asked: shapes.AwayBody) -> Answer:
    """Let somebody sit for the caller until a time."""
    if call.who.is_open:
        raise HttpRefusal(403, "a delegation takes tokens: run without --insecure-no-auth")
    known = call.backend.guard.approvers()
    try:
        return 201, await call.service.change(
            lambda tx: stand_ins.delegate(tx, call.who.name, asked.stand_in.strip(), asked.until, known)
        )
    except ValueError as error:
        raise HttpRefusal(400, str(error)) from error


async def come_back(call: Exchange) -> Answer:
    """End a delegation."""
    is_admin = call.who.role == "admin"
    try:
        await call.service.change(lambda tx: stand_ins.end(tx, call.number, call.who.name, is_admin=is_admin))
    except NotFound as error:
        raise HttpRefusal(404, error.message) from error
    return 200, shapes.RowAnswer(call.number, "removed")
