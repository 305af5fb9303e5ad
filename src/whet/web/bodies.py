"""Read a request's body within limits. The caller reports a body that is too large in its own format of
errors."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import Receive, Scope


class BodyTooLarge(Exception):
    """Raised if a body is larger than its limit."""


class CallerGone(Exception):
    """Raised if the client hung up before its request was complete."""


async def read_with_limit(scope: Scope, receive: Receive, limit_bytes: int, drain_bytes: int) -> bytes:
    """Return the whole body. Raises BodyTooLarge for more than `limit_bytes`, or CallerGone.

    Up to `drain_bytes` of a body that is too large are read and dropped, because a client that is still
    sending would see a broken connection instead of the answer.
    """
    if _content_length(scope) > drain_bytes:
        raise BodyTooLarge
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message["body"]
        if len(body) > limit_bytes:
            raise BodyTooLarge
        return body
    body_bytes, size = bytearray(), 0
    while message["type"] == "http.request":
        size += len(message["body"])
        if size <= limit_bytes:
            body_bytes += message["body"]
        elif size > drain_bytes:
            raise BodyTooLarge
        if not message.get("more_body"):
            if size > limit_bytes:
                raise BodyTooLarge
            return bytes(body_bytes)
        message = await receive()
    raise CallerGone


def _content_length(scope: Scope) -> int:
    value = dict(scope["headers"]).get(b"content-length", b"")
    return int(value) if value.isdigit() else 0


MAX_BYTES = 64 * 1024
_MAX_FIELDS = 32


class BadForm(Exception):
    """Raised for an invalid form. `status` is the HTTP status to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of an urlencoded body. Raises BadForm, with 413 as soon as it exceeds 64 KiB."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadForm(415, "expected a form")
    try:
        body = await read_with_limit(request.scope, request.receive, MAX_BYTES, MAX_BYTES)
    except BodyTooLarge as error:
        raise BadForm(413, "the form is too large") from error
    except CallerGone as error:
        raise BadForm(400, "the form can't be read") from error
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise BadForm(400, "the form can't be read") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadForm(400, "a field stands twice")
    return fields
