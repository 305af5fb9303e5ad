"""Read requests and write answers: bounded bodies, strict JSON, one shape of error.

JSON here is stricter than most: UTF-8, no duplicate keys, no NaN, nothing nested deeper than 64, because what
a person approves must have one meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec

from whet.contract.errors import WhetError
from whet.web.line import WebConnection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

BODY_LIMIT_BYTES = 1024 * 1024
DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
DEPTH_LIMIT = 64
_JSON = (b"content-type", b"application/json")
encode = msgspec.json.Encoder().encode


class HttpRefusal(WhetError):
    """An answer that ends a request: a status, a line for the caller, and more fields where useful."""

    def __init__(
        self, status: int, message: str, *, more: dict[str, object] | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.more = more or {}
        self.headers = headers


class ClientGone(WhetError):
    """The client hung up before its request was whole."""


async def answer(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send a whole JSON answer."""
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Give the whole body. Raises Refusal (413) for one that is too large, ClientGone.

    Up to 16 MiB of a body that is too large are read and dropped, because a client that is still sending
    would see a broken connection instead of the answer.
    """
    declared = header(scope, b"content-length")
    if declared and declared.isdigit() and int(declared) > DRAIN_LIMIT_BYTES:
        raise _too_large()
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body = message["body"]
        if len(body) > BODY_LIMIT_BYTES:
            raise _too_large()
        return body
    parts = bytearray()
    size = 0
    while message["type"] == "http.request":
        size += len(message["body"])
        if size <= BODY_LIMIT_BYTES:
            parts += message["body"]
        elif size > DRAIN_LIMIT_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            if size > BODY_LIMIT_BYTES:
                raise _too_large()
            return bytes(parts)
        message = await receive()
    raise ClientGone("the client hung up")


def _too_large() -> HttpRefusal:
    return HttpRefusal(413, "the body is larger than 1 MiB", headers=[(b"connection", b"close")])


def line_of(scope: Scope) -> WebConnection:
    """Give the caller's connection, which `protocol.py` puts into the scope."""
    return cast("WebConnection", scope["extensions"]["whet.line"])


def header(scope: Scope, name: bytes) -> str:
    """Give a header's value, "" where it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return ""


def query(scope: Scope) -> dict[str, str]:
    """Give the query's parameters; of one that stands twice the last."""
    text = scope["query_string"]
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises Refusal (400) that says what is wrong."""
    try:
        value: object = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise HttpRefusal(400, "Invalid JSON body: not UTF-8") from error
    except RecursionError as error:
        raise HttpRefusal(400, f"Invalid JSON body: nested deeper than {DEPTH_LIMIT}") from error
    except ValueError as error:
        raise HttpRefusal(400, f"Invalid JSON body: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise HttpRefusal(400, "Invalid JSON body: not an object")
    found = cast("dict[str, Any]", value)
    if body.count(b"{") + body.count(b"[") > DEPTH_LIMIT and _is_deeper(found, DEPTH_LIMIT):
        raise HttpRefusal(400, f"Invalid JSON body: nested deeper than {DEPTH_LIMIT}")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant)


def _is_deeper(value: object, limit: int) -> bool:
    level: list[object] = [value]
    for _ in range(limit):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(cast("dict[str, object]", item).values())
            elif isinstance(item, list):
                below.extend(cast("list[object]", item))
        if not below:
            return False
        level = below
    return any(isinstance(item, dict | list) for item in level)


def text_field(body: dict[str, Any], name: str, default: str, limit: int) -> str:
    """Give a string of a body. Raises Refusal (400) where it is something else, too long or unprintable."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise HttpRefusal(400, f"{name} must be a string")
    if len(value) > limit:
        raise HttpRefusal(400, f"{name} is longer than {limit} characters")
    if "\0" in value:
        raise HttpRefusal(400, f"{name} must not hold NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise HttpRefusal(400, f"{name} is not valid Unicode: a lone surrogate") from error
    return value
