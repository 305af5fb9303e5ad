"""What admins and auditors call: the whitelist, events, checkpoints, webhooks that never arrived."""

from __future__ import annotations

from typing import Any

import apsw

from whet.confirm import whitelist
from whet.confirm.callbacks import revive
from whet.confirm.http import shapes
from whet.confirm.http.guard import need
from whet.confirm.http.wire import HttpRefusal, Scope, parse_object, query, text_field
from whet.confirm.records import Caller
from whet.confirm.service import ConfirmService
from whet.contract.errors import NotFound

Answer = tuple[int, dict[str, Any]]
Call = tuple[str, bytes, bytes]
_LISTED = 200


def is_admin_path(path: bytes) -> bool:
    """Whether `call` answers this path."""
    return path.split(b"/", 2)[1] in (b"whitelist", b"callbacks") or path in (
        b"/audit/events",
        b"/audit/checkpoint",
    )


async def call(service: ConfirmService, who: Caller, called: Call, scope: Scope) -> Answer:
    """Answer a call. Raises Refusal."""
    method, path, body = called
    parts = path.split(b"/")[1:]
    if path.startswith(b"/audit/"):
        if method != "GET":
            raise HttpRefusal(405, f"{method} is not answered here", headers=[(b"allow", b"GET")])
        return _audit(service, who, path, query(scope).get("after", "0"))
    if parts == [b"whitelist"]:
        return await _whitelist(service, who, method, body)
    if parts == [b"callbacks"] and method == "GET":
        need(who, "audit")
        return 200, {"callbacks": service.database.read(_dead_letters)}
    if parts[0] == b"whitelist" and len(parts) == 2 and method == "DELETE":
        return await _unlist(service, who, _number(parts[1]))
    if parts[0] == b"callbacks" and len(parts) == 3 and parts[2] == b"retry" and method == "POST":
        return await _retry(service, who, _number(parts[1]))
    raise HttpRefusal(405, f"{method} is not answered here")


def _audit(service: ConfirmService, who: Caller, path: bytes, after: str) -> Answer:
    if path == b"/audit/checkpoint":
        need(who, "audit", "approve")
        return 200, _checkpoint(service)
    need(who, "audit")
    is_number = after.isascii() and after.isdigit() and len(after) < 19
    found = service.history(after_id=int(after) if is_number else 0)
    return 200, {"count": len(found), "events": [shapes.event(event) for event in found]}


async def _unlist(service: ConfirmService, who: Caller, entry: int) -> Answer:
    need(who, "admin")
    try:
        await service.change(lambda tx: whitelist.remove(tx, entry, who.name))
    except NotFound as error:
        raise HttpRefusal(404, error.message) from error
    return 200, {"id": entry, "status": "removed"}


async def _retry(service: ConfirmService, who: Caller, number: int) -> Answer:
    need(who, "admin")
    if not await service.change(lambda tx: revive(tx.connection, number, tx.now_s)):
        raise HttpRefusal(404, "there is no dead letter of that number")
    return 200, {"id": number, "status": "waiting"}


def _number(raw: bytes) -> int:
    """Read a row's number from a path; 0, which no row has, for anything else."""
    return int(raw) if raw.isdigit() and len(raw) < 16 else 0


async def _whitelist(service: ConfirmService, who: Caller, method: str, body: bytes) -> Answer:
    if method == "GET":
        need(who, "audit")
        return 200, {"entries": service.database.read(whitelist.entries)}
    if method != "POST":
        raise HttpRefusal(405, f"{method} is not answered here", headers=[(b"allow", b"GET, POST")])
    need(who, "admin")
    fields = parse_object(body)
    seconds = fields.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise HttpRefusal(400, "seconds is required: an entry is never for ever")
    wanted = whitelist.WhitelistRequest(
        action=text_field(fields, "action", "", 256).strip(),
        principal=text_field(fields, "principal", "", 256).strip(),
        session_key=text_field(fields, "session_key", "", 1024),
        seconds=float(seconds),
    )
    try:
        made = await service.change(lambda tx: whitelist.add(tx, wanted, who.name))
    except ValueError as error:
        raise HttpRefusal(400, str(error)) from error
    return 201, made


def keys(service: ConfirmService) -> dict[str, Any]:
    """GET /keys: the public keys that grants and checkpoints are checked with, as a JWK set."""

    def read(db: apsw.Connection) -> list[tuple[str, str]]:
        sql = "SELECT substr(name, 5), value FROM facts WHERE name LIKE 'key:%'"
        return [(row[0], row[1]) for row in db.execute(sql)]

    found = service.database.read(read)
    shape = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig"}
    return {"keys": [shape | {"kid": kid, "x": x} for kid, x in found]}


def _checkpoint(service: ConfirmService) -> dict[str, Any]:
    row = service.database.read_one(
        "SELECT size, head, at, key_id, signature FROM checkpoints ORDER BY size DESC LIMIT 1", ()
    )
    names = ("size", "head", "at", "key_id", "signature")
    return dict(zip(names, row, strict=True)) if row else {"size": 0}


def _dead_letters(db: apsw.Connection) -> list[dict[str, Any]]:
    sql = (
        "SELECT id, request_id, url, status, attempts, error, created_at FROM callbacks"
        " WHERE status != 'delivered' ORDER BY id DESC LIMIT ?"
    )
    names = ("id", "request_id", "url", "status", "attempts", "error", "created_at")
    return [dict(zip(names, row, strict=True)) for row in db.execute(sql, (_LISTED,))]
