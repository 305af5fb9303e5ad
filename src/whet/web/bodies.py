"""A request's body, read with bounds. What is too large is said by the caller, in its own shape of error."""

from __future__ import annotations

from starlette.types import Receive, Scope


class BodyTooLarge(Exception):
    """There was more than may be read."""


class CallerGone(Exception):
    """The client hung up before its request was whole."""


async def read_bounded(scope: Scope, receive: Receive, limit_bytes: int, drain_bytes: int) -> bytes:
    """Give the whole body. Raises BodyTooLarge for more than `limit_bytes`, CallerGone.

    Up to `drain_bytes` of a body that is too large are read and dropped, because a client that is still
    sending would see a broken connection instead of the answer.
    """
    if _declared(scope) > drain_bytes:
        raise BodyTooLarge
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message["body"]
        if len(body) > limit_bytes:
            raise BodyTooLarge
        return body
    parts, size = bytearray(), 0
    while message["type"] == "http.request":
        size += len(message["body"])
        if size <= limit_bytes:
            parts += message["body"]
        elif size > drain_bytes:
            raise BodyTooLarge
        if not message.get("more_body"):
            if size > limit_bytes:
                raise BodyTooLarge
            return bytes(parts)
        message = await receive()
    raise CallerGone


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
