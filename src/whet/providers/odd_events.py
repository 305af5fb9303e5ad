"""Read an event that does not match its wire format, field by field.

An answer that arrived is paid for, so one wrong field must not discard it. A field of another type is
converted if its meaning is plain, else it counts as missing. Bytes that are not UTF-8 become U+DC80 to U+DCFF
and halves of a surrogate pair are kept, because the next event may contain the other half of the character
(`wire.join_pieces`). Values nested deeper than `_MAX_DEPTH` are read as null.

Loaded only after the strict decoder has failed.
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
    """Return the objects in one event's data as `kind`, usually one. Returns an empty list for a comment that
    a proxy passed on as data. Raises ValueError if the data is not JSON or contains no object."""
    text = data.decode("utf-8", "surrogateescape")
    if text.lstrip().startswith(":"):
        return []
    try:
        values = _parse_values(_limit_depth(text))
    except RecursionError as error:
        raise ValueError("the event is not JSON") from error
    events: list[T] = []
    for value in values:
        if isinstance(value, dict) and (event := _convert(value, kind)) is not _NOTHING:
            events.append(event)
    if not events:
        raise ValueError("the event is not a JSON object")
    return events


def _parse_values(text: str) -> list[Any]:
    """Return the JSON values in a text. Some servers leave out the line end between two events."""
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
    """Return the JSON text with null in place of values below `_MAX_DEPTH`, so that parsing it does not
    exceed Python's stack."""
    depth, start = 0, 0
    pieces: list[str] = []
    copied_to = 0
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark in ("[", "{"):
            depth += 1
            if depth == _MAX_DEPTH + 1:
                start = match.start()
        elif mark in ("]", "}"):
            if depth == _MAX_DEPTH + 1:
                pieces += [text[copied_to:start], "null"]
                copied_to = match.end()
            depth -= 1
    return "".join([*pieces, text[copied_to:]]) if pieces else text


def _convert(value: Any, kind: Any) -> Any:
    """Convert a value to `kind`, or return `_NOTHING` if that is impossible."""
    if kind is Any:
        return value
    if kind is msgspec.Raw:
        return msgspec.Raw(encode(value))
    if get_origin(kind) in (UnionType, Union):
        return _convert_union(value, get_args(kind))
    if kind is type(None):
        return None if value is None else _NOTHING
    if get_origin(kind) is list:
        items: Any = [value] if isinstance(value, dict) else value
        return _convert_items(items, get_args(kind)[0]) if isinstance(items, list) else _NOTHING
    if get_origin(kind) is dict:
        return cast("Any", value) if isinstance(value, dict) else _NOTHING
    if issubclass(kind, msgspec.Struct):
        return _convert_struct(value, kind)
    return _convert_plain(value, kind)


def _convert_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in sorted(kinds, key=lambda kind: not _has_type(value, kind)):
        result = _convert(value, kind)
        if result is not _NOTHING:
            return result
    return _NOTHING


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a value has the outermost type of `kind`; a dict has that of a struct."""
    outermost = get_origin(kind) or kind
    if isinstance(outermost, type) and issubclass(outermost, msgspec.Struct):
        outermost = dict
    return isinstance(outermost, type) and isinstance(value, outermost)


def _convert_items(items: Any, kind: Any) -> list[Any]:
    return [result for item in items if (result := _convert(item, kind)) is not _NOTHING]


def _convert_struct(value: Any, kind: type[msgspec.Struct]) -> Any:
    hints = _hints(kind)
    if isinstance(value, str) and "text" in hints:
        value = {"text": value}  # some servers send a bare text as a part of a message
    if not isinstance(value, dict):
        return _NOTHING
    fields = cast("dict[str, Any]", value)
    fitted: dict[str, Any] = {}
    for name, hint in hints.items():
        if name in fields and (result := _convert(fields[name], hint)) is not _NOTHING:
            fitted[name] = result
    try:
        return kind(**fitted)
    except TypeError:  # a required field is missing
        return _NOTHING


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields by name."""
    return get_type_hints(kind)


def _convert_plain(value: Any, kind: type) -> Any:
    if kind is str:
        if isinstance(value, str):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{value}" if is_number else _NOTHING
    if kind in (int, float):
        return _convert_number(value, kind)
    return value if isinstance(value, kind) else _NOTHING


def _convert_number(value: Any, kind: type) -> Any:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return _NOTHING
    if isinstance(value, bool) or not abs(number) <= _MAX_COUNT:  # false for NaN, too
        return _NOTHING
    return kind(number)
