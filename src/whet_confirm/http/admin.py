"""The API's administrative calls: whitelist, audit log, checkpoints, webhooks, keys, delegations."""

from __future__ import annotations

import apsw

from whet.contract.errors import NotFound
from whet.contract.texts import parse_typed_number
from whet_confirm import stand_ins, whitelist
from whet_confirm.callbacks import retry_dead_letter
from whet_confirm.http import answers, shapes
from whet_confirm.http.exchange import Answer, Exchange
from whet_confirm.http.wire import HttpRefusal

_MAX_LISTED = 200


async def audit_events(call: Exchange) -> Answer:
    """Return the hash-chained log. Oldest first, after ?after=."""
    events = call.service.log.history(after_id=parse_typed_number(call.query.get("after", "")) or 0)
    return 200, shapes.EventPage(len(events), [answers.event_record(event) for event in events])


async def checkpoint(call: Exchange) -> Answer:
    """Return the newest signed checkpoint."""
    columns = ", ".join(shapes.CheckpointAnswer.__struct_fields__)
    sql = f"SELECT {columns} FROM checkpoints ORDER BY size DESC LIMIT 1"
    row = call.service.database.read_one(sql, ())
    return 200, shapes.CheckpointAnswer(*row) if row else shapes.CheckpointAnswer(0)  # type: ignore[arg-type]


async def list_whitelist(call: Exchange) -> Answer:
    """List the whitelist."""
    now_s = call.service.timeline.now_s()
    return 200, shapes.AllowedEntries(
        call.service.database.read_now(lambda db: whitelist.list_entries(db, now_s))
    )


async def allow(call: Exchange, body: shapes.AllowBody) -> Answer:
    """Whitelist an action for a limited time."""
    entry = whitelist.WhitelistRequest(
        body.action.strip(), body.principal.strip(), body.session_key, body.seconds
    )
    try:
        return 201, await call.service.change(lambda tx: whitelist.add(tx, entry, call.caller.name))
    except ValueError as error:
        raise HttpRefusal(400, str(error)) from error


async def disallow(call: Exchange) -> Answer:
    """Remove a whitelist entry."""
    try:
        await call.service.change(lambda tx: whitelist.remove(tx, call.number, call.caller.name))
    except NotFound as error:
        raise HttpRefusal(404, error.message) from error
    return 200, shapes.RowAnswer(call.number, "removed")


async def dead_letters(call: Exchange) -> Answer:
    """List the webhooks that were not delivered."""

    def read(db: apsw.Connection) -> list[shapes.DeadLetter]:
        columns = ", ".join(shapes.DeadLetter.__struct_fields__)
        sql = f"SELECT {columns} FROM callbacks WHERE status != 'delivered' ORDER BY id DESC LIMIT ?"
        return [shapes.DeadLetter(*row) for row in db.execute(sql, (_MAX_LISTED,))]

    return 200, shapes.DeadLetters(call.service.database.read_now(read))


async def retry(call: Exchange) -> Answer:
    """Retry a webhook."""
    if not await call.service.change(lambda tx: retry_dead_letter(tx.connection, call.number, tx.now_s)):
        raise HttpRefusal(404, "there is no dead letter of that number")
    return 200, shapes.RowAnswer(call.number, "waiting")


async def keys(call: Exchange) -> Answer:
    """Return the public keys (JWK set). Grants and checkpoints are verified with them."""
    public_keys = call.service.public_keys.values()
    return 200, shapes.JsonWebKeys([shapes.JsonWebKey(key.id, key.text) for key in public_keys])


async def delegations(call: Exchange) -> Answer:
    """List the delegations in force."""
    now_s = call.service.timeline.now_s()
    return 200, shapes.DelegationList(
        call.service.database.read_now(lambda db: stand_ins.list_active(db, now_s))
    )


async def delegate(call: Exchange, body: shapes.AwayBody) -> Answer:
    """Delegate your approvals to another person until a time."""
    if call.caller.is_open:
        raise HttpRefusal(403, "a delegation takes tokens: run without --insecure-no-auth")
    approvers = call.backend.guard.approvers()
    try:
        return 201, await call.service.change(
            lambda tx: stand_ins.delegate(tx, call.caller.name, body.stand_in.strip(), body.until, approvers)
        )
    except ValueError as error:
        raise HttpRefusal(400, str(error)) from error


async def end_delegation(call: Exchange) -> Answer:
    """End a delegation."""
    is_admin = call.caller.role == "admin"
    try:
        await call.service.change(
            lambda tx: stand_ins.end(tx, call.number, call.caller.name, is_admin=is_admin)
        )
    except NotFound as error:
        raise HttpRefusal(404, error.message) from error
    return 200, shapes.RowAnswer(call.number, "removed")
