"""Read requests and write answers: bounded bodies, strict JSON, one format of errors.

JSON here is stricter than usual: UTF-8, no duplicate keys, no NaN, no nesting deeper than 64, because a
text that a person approves must have one meaning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from whet.contract.errors import WhetError
from whet.contract.texts import from_values
from whet.web.bodies import BodyTooLarge, read_with_limit
from whet_confirm.names import DIGEST_PATTERN, ID_PATTERN

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

T = TypeVar("T", bound=msgspec.Struct)
BODY_LIMIT_BYTES = 1024 * 1024
DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
DEPTH_LIMIT = 64
_JSON = (b"content-type", b"application/json")
# msgspec's message for a text that does not match a field's pattern, and the one for a person.
_FORMS = {
    f"Expected `str` matching regex {ID_PATTERN!r}": "not a request's id, which has 22 letters and digits",
    f"Expected `str` matching regex {DIGEST_PATTERN!r}": "not a digest, which has 64 digits: 0 to 9, a to f",
}
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


class HttpRefusal(WhetError):
    """Raised to answer a request with an error: a status, a message and perhaps `more` fields."""

    def __init__(
        self, status: int, message: str, *, more: dict[str, object] | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.more: dict[str, object] = more or {}
        self.headers = headers


async def answer(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send a whole answer, as JSON unless `headers` begin with another content type."""
    length = (b"content-length", str(len(body)).encode())
    kind = () if headers and headers[0][0] == b"content-type" else (_JSON,)
    start = {"type": "http.response.start", "status": status, "headers": [*kind, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Read the whole body. Raises HttpRefusal (413) if it is too large, or CallerGone."""
    try:
        return await read_with_limit(scope, receive, BODY_LIMIT_BYTES, DRAIN_LIMIT_BYTES)
    except BodyTooLarge as error:
        close = [(b"connection", b"close")]
        raise HttpRefusal(413, "the body is larger than 1 MiB", headers=close) from error


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value, the first if it repeats, or an empty string if it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


def query(scope: Scope) -> dict[str, str]:
    """Return the query's parameters; if one repeats, its last value."""
    text = scope["query_string"]
    return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)) if text else {}


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises HttpRefusal (400) that describes the problem."""
    try:
        value: object = DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise HttpRefusal(400, "Invalid JSON body: not UTF-8") from error
    except RecursionError as error:
        raise HttpRefusal(400, f"Invalid JSON body: nested deeper than {DEPTH_LIMIT}") from error
    except ValueError as error:
        raise HttpRefusal(400, f"Invalid JSON body: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise HttpRefusal(400, "Invalid JSON body: not an object")
    fields = cast("dict[str, Any]", value)
    if body.count(b"{") + body.count(b"[") > DEPTH_LIMIT and _is_deeper(fields, DEPTH_LIMIT):
        raise HttpRefusal(400, f"Invalid JSON body: nested deeper than {DEPTH_LIMIT}")
    return fields


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return members


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_float=_float, parse_constant=_constant)


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


def read_as(fields: dict[str, Any], shape: type[T]) -> T:
    """Convert an object to a type. Raises HttpRefusal (400) that names the field.

    A key that is spelled almost like a field is refused too, because it would otherwise be silently
    ignored.
    """
    try:
        result = from_values(fields, shape)
    except msgspec.ValidationError as error:
        problem, _, location = str(error).partition(" - at `$.")
        problem = _FORMS.get(problem, problem)
        raise HttpRefusal(400, f"{location.rstrip('`')}: {problem}" if location else problem) from error
    field_names = shape.__struct_fields__
    for name, value in fields.items():
        if name not in field_names:
            _check_name(name, field_names)
        elif type(value) is str:
            _check_text(name, value)
    return result


def _check_name(name: str, field_names: Sequence[str]) -> None:
    folded = name.strip().lower().replace("-", "_")
    if folded in field_names or folded in [field.replace("_", "") for field in field_names]:
        raise HttpRefusal(400, f"{name[:60]!r} is not a field; did you mean {folded}?")


def _check_text(name: str, value: str) -> None:
    """Refuse (400) text that can't be stored or shown."""
    if "\0" in value:
        raise HttpRefusal(400, f"{name} must not hold NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise HttpRefusal(400, f"{name} is not valid Unicode: a lone surrogate") from error
