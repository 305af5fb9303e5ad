"""Read an event that does not have the shape of its wire format, field by field.

An answer is paid for once it arrives, so one odd field must not discard it: a field of another type is
converted if its meaning is plain, else it counts as missing. Bytes that are not UTF-8 become U+DC80 to U+DCFF
and halves of a surrogate pair stay as they are, because the next event may hold the rest of the character
(`wire.join_pieces`). Values nested deeper than `_MAX_DEPTH` are read as null.

Loaded only after the strict decoder has failed. Knows no wire format.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from whet.providers.wire import encode

T = TypeVar("T")
_MAX_DEPTH = 100
_MAX_COUNT = 2**53
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_JSON = json.JSONDecoder(strict=False)
_NOTHING: Any = object()


def read_around(data: bytes, kind: type[T]) -> list[T]:
    """Return the objects in one event's data as `kind`, mostly one; an empty list for a comment that a proxy
    sent on as data. Raises ValueError if it is not JSON, or holds no object."""
    text = data.decode("utf-8", "surrogateescape")
    if text.lstrip().startswith(":"):
        return []
    values: list[T] = []
    try:
        parsed = _values(_limit_depth(text))
    except RecursionError as error:  # nested without end
        raise ValueError("the event is not JSON") from error
    for value in parsed:
        if isinstance(value, dict) and (event := _fit(value, kind)) is not _NOTHING:
            values.append(event)
    if not values:
        raise ValueError("the event is not a JSON object")
    return values


def _values(text: str) -> list[Any]:
    """Return the JSON values in a text. Some servers leave out the line between two events."""
    values: list[Any] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif values and text.startswith("[DONE]", at):
            break
        else:
            value, at = _JSON.raw_decode(text, at)
            values.append(value)
    return values


def _limit_depth(text: str) -> str:
    """Return JSON with null in place of what is nested too deeply. The stack is not the measure."""
    depth, start = 0, 0
    pieces: list[str] = []
    kept_to = 0
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark in ("[", "{"):
            depth += 1
            if depth == _MAX_DEPTH + 1:
                start = match.start()
        elif mark in ("]", "}"):
            if depth == _MAX_DEPTH + 1:
                pieces += [text[kept_to:start], "null"]
                kept_to = match.end()
            depth -= 1
    return "".join([*pieces, text[kept_to:]]) if pieces else text


def _fit(value: Any, kind: Any) -> Any:
    """Return a value as `kind`, or `_NOTHING` if it can't be one."""
    if kind is Any:
        return value
    if kind is msgspec.Raw:
        return msgspec.Raw(encode(value))
    if get_origin(kind) in (UnionType, Union):
        return _fit_union(value, get_args(kind))
    if kind is type(None):
        return None if value is None else _NOTHING
    if get_origin(kind) is list:
        items: Any = [value] if isinstance(value, dict) else value
        return _fit_items(items, get_args(kind)[0]) if isinstance(items, list) else _NOTHING
    if get_origin(kind) is dict:
        return cast("Any", value) if isinstance(value, dict) else _NOTHING
    if issubclass(kind, msgspec.Struct):
        return _fit_struct(value, kind)
    return _fit_plain(value, kind)


def _fit_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    fitting = (_fit(value, kind) for kind in sorted(kinds, key=lambda kind: not _is_of(value, kind)))
    return next((result for result in fitting if result is not _NOTHING), _NOTHING)


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is already of that kind, on its surface."""
    surface = get_origin(kind) or kind
    if isinstance(surface, type) and issubclass(surface, msgspec.Struct):
        surface = dict
    return isinstance(surface, type) and isinstance(value, surface)


def _fit_items(items: Any, kind: Any) -> list[Any]:
    return [result for item in items if (result := _fit(item, kind)) is not _NOTHING]


def _fit_struct(value: Any, kind: type[msgspec.Struct]) -> Any:
    hints = _hints(kind)
    if isinstance(value, str) and "text" in hints:
        value = {"text": value}  # a part of a message that is only its text
    if not isinstance(value, dict):
        return _NOTHING
    fields = cast("dict[str, Any]", value)
    fitted: dict[str, Any] = {}
    for name, hint in hints.items():
        if name in fields and (result := _fit(fields[name], hint)) is not _NOTHING:
            fitted[name] = result
    try:
        return kind(**fitted)
    except TypeError:  # a required field is missing
        return _NOTHING


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields by name."""
    return get_type_hints(kind)


def _fit_plain(value: Any, kind: type) -> Any:
    if kind is str:
        if isinstance(value, str):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{value}" if is_number else _NOTHING
    if kind in (int, float):
        return _fit_number(value, kind)
    return value if isinstance(value, kind) else _NOTHING


def _fit_number(value: Any, kind: type) -> Any:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return _NOTHING
    if isinstance(value, bool) or not abs(number) <= _MAX_COUNT:  # also for what is not a number
        return _NOTHING
    return kind(number)
