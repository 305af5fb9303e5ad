"""POST /confirm: a body becomes a submission, field by field as the contract reads them."""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from whet.confirm.canonical import canonical
from whet.confirm.http.guard import need, retry_after
from whet.confirm.http.wire import HttpRefusal, Scope, header, parse_object, text_field
from whet.confirm.records import Caller
from whet.confirm.service import ConfirmService
from whet.confirm.submit import DEFAULT_TIMEOUT_S, WINDOW_S, Submission, Submitted

_KEY = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
_LONGEST_ACTION, _LONGEST_KEY, _LONGEST_TEXT, _LONGEST_URL = 256, 1024, 65_536, 2048


async def submit(
    service: ConfirmService, who: Caller, scope: Scope, body: bytes
) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
    """Store a submission; gives status, body and headers of the answer. Raises Refusal."""
    need(who, "submit")
    submission = parse(body, idempotency_key(scope))
    try:
        done = await service.submit(who, submission)
    except ValueError as error:
        raise HttpRefusal(400, f"details can't be encoded: {error}") from error
    return _answer(done)


def idempotency_key(scope: Scope) -> str:
    """Give the Idempotency-Key header, "" for none. Raises Refusal (400) for an odd one."""
    key = header(scope, b"idempotency-key")
    if key and not _KEY.fullmatch(key):
        raise HttpRefusal(400, "Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def parse(body: bytes, key: str = "") -> Submission:
    """Read the body of a submission. Raises Refusal (400)."""
    fields = parse_object(body)
    action = text_field(fields, "action", "", _LONGEST_ACTION).strip()
    description = text_field(fields, "description", "", _LONGEST_TEXT).strip()
    if not action or not description:
        raise HttpRefusal(400, "action and description are required")
    details: object = fields.get("details") or {}
    if not isinstance(details, dict):
        raise HttpRefusal(400, "details must be an object")
    callback = text_field(fields, "callback_url", "", _LONGEST_URL)
    if callback and not callback.startswith(("https://", "http://")):
        raise HttpRefusal(400, "callback_url must be an http or https address")
    return Submission(
        action=action,
        description=description,
        details=cast("dict[str, Any]", details),
        requester=text_field(fields, "requester", "agent", _LONGEST_KEY),
        session_key=text_field(fields, "session_key", "", _LONGEST_KEY),
        timeout_s=_timeout(fields),
        callback_url=callback,
        accepts_edits=fields.get("accepts_edits") is True,
        idempotency_key=key,
        body_hash=_hash(fields) if key else b"",
    )


def _timeout(fields: dict[str, Any]) -> int | None:
    """Read the timeout as the contract does: what int() takes is a number, all else reads as 300."""
    if "timeout_seconds" not in fields:
        return None
    try:
        return int(fields["timeout_seconds"])
    except (TypeError, ValueError, OverflowError):
        return DEFAULT_TIMEOUT_S


def _hash(fields: dict[str, Any]) -> bytes:
    try:
        return hashlib.sha256(canonical(fields)).digest()
    except ValueError as error:
        raise HttpRefusal(400, f"the body can't be encoded: {error}") from error


def _answer(done: Submitted) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
    request = done.request
    replayed = [(b"idempotent-replay", b"true")] if done.is_replay else []
    if done.kind == "limited":
        more: dict[str, object] = {"remaining": 0, "window_seconds": WINDOW_S}
        raise HttpRefusal(
            429, f"rate limit: {done.refused}", more=more, headers=[retry_after(done.retry_after_s)]
        )
    if done.kind == "too_many_pending":
        more = {"remaining": 0, "window_seconds": WINDOW_S}
        raise HttpRefusal(429, done.refused, more=more, headers=[retry_after(done.retry_after_s)])
    if request is None:
        raise HttpRefusal(422, done.refused)
    shown: dict[str, Any] = {"id": request.id, "action": request.action, "digest": request.digest}
    if done.kind == "auto_approved":
        return 200, shown | {"status": "auto_approved", "message": request.reason or "whitelisted"}, replayed
    if done.kind == "denied":
        return 403, shown | {"status": "denied", "error": f"denied: {request.reason}"}, replayed
    return (
        202,
        shown
        | {
            "status": "pending",
            "timeout_seconds": request.timeout_seconds,
            "expires_at": request.expires_at,
            "message": "waiting for a person to decide",
            "approve_url": f"/confirm/{request.id}/approve",
            "deny_url": f"/confirm/{request.id}/deny",
        },
        replayed,
    )
