"""POST /confirm: turn a body into a submission, field by field as the contract specifies."""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from msgspec import UNSET

from whet_confirm.addresses import AddressRefused, split_callback_url
from whet_confirm.canonical import canonical
from whet_confirm.http.answers import build_answer
from whet_confirm.http.exchange import Answer, Exchange
from whet_confirm.http.guard import retry_after
from whet_confirm.http.shapes import AllowedAnswer, PendingAnswer, SubmitBody
from whet_confirm.http.wire import HttpRefusal
from whet_confirm.service import run_off_loop
from whet_confirm.submit import DEFAULT_TIMEOUT_S, WINDOW_S, Submission, SubmissionResult

_KEY = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")


async def submit(call: Exchange, body: SubmitBody) -> Answer:
    """Submit an action. Raises HttpRefusal."""
    key = idempotency_key(call)
    body_hash = b""
    if key:
        body_hash = await run_off_loop(call.size_bytes, _hash, call.fields)
    submission = _build_submission(call, body, key, body_hash)
    try:
        result = await call.service.submit(call.caller, submission)
    except ValueError as error:
        raise HttpRefusal(400, f"details can't be encoded: {error}") from error
    return _answer(result, call.backend.page_url)


def idempotency_key(call: Exchange) -> str:
    """Return the Idempotency-Key header, or an empty string. Raises HttpRefusal (400) if it is malformed."""
    key = call.header(b"idempotency-key")
    if key and not _KEY.fullmatch(key):
        raise HttpRefusal(400, "Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def _build_submission(call: Exchange, body: SubmitBody, key: str, body_hash: bytes) -> Submission:
    action, description = body.action.strip(), body.description.strip()
    if not action or not description:
        raise HttpRefusal(400, "action and description are required")
    details: object = body.details or {}
    if not isinstance(details, dict):
        raise HttpRefusal(400, "details must be an object")
    if body.callback_url:
        _check_address(body.callback_url)
    return Submission(
        action=action,
        description=description,
        details=cast("dict[str, Any]", details),
        requester="agent" if body.requester is None else body.requester,
        session_key=body.session_key or "",
        timeout_s=_read_timeout(call.fields),
        callback_url=body.callback_url or "",
        accepts_edits=body.accepts_edits is True,
        idempotency_key=key,
        body_hash=body_hash,
        size_bytes=call.size_bytes,
    )


def _check_address(url: str) -> None:
    try:
        split_callback_url(url)
    except AddressRefused as error:
        raise HttpRefusal(400, "callback_url must be an http or https address") from error


def _read_timeout(fields: dict[str, Any]) -> int | None:
    """Return the timeout, or None if the body has none. A value that int() refuses means the default, as the
    contract specifies."""
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


def _answer(result: SubmissionResult, page_url: str) -> Answer:
    request = result.request
    replayed = [(b"idempotent-replay", b"true")] if result.is_replay else []
    if result.kind in ("limited", "too_many_pending"):
        message = f"rate limit: {result.refused}" if result.kind == "limited" else result.refused
        more: dict[str, object] = {"remaining": 0, "window_seconds": WINDOW_S}
        raise HttpRefusal(429, message, more=more, headers=[retry_after(result.retry_after_s)])
    if request is None:
        raise HttpRefusal(422, result.refused)
    if result.kind == "denied":
        more = {"id": request.id, "action": request.action, "digest": request.digest, "status": "denied"}
        raise HttpRefusal(403, f"denied: {request.reason}", more=more, headers=replayed)
    if result.kind == "auto_approved":
        return 200, build_answer(AllowedAnswer, request, message=request.reason or "whitelisted"), replayed
    pending = PendingAnswer(
        id=request.id,
        action=request.action,
        digest=request.digest,
        status="pending",
        timeout_seconds=request.timeout_seconds,
        expires_at=request.expires_at,
        message="waiting for a person to decide",
        approve_url=f"/confirm/{request.id}/approve",
        deny_url=f"/confirm/{request.id}/deny",
        page_url=f"{page_url}/r/{request.id}" if page_url else UNSET,
    )
    return 202, pending, replayed
