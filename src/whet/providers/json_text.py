"""JSON as bytes, made piece by piece so that what a model sent is spliced and never re-spaced.

Ids and names that a vendor would reject are mapped here, always to the same replacement, because the wire
bytes of a message must not change between requests. Knows no vendor: the allowed forms come in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

ENCODER = msgspec.json.Encoder()
_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]")


def quote(text: str) -> bytes:
    """Write a JSON string; a lone surrogate (a file name that was no UTF-8) becomes U+FFFD."""
    try:
        return ENCODER.encode(text)
    except UnicodeEncodeError:
        return ENCODER.encode(text.encode("utf-8", "replace").decode())


def encode(value: Any) -> bytes:
    """Write any value as JSON, with lone surrogates replaced."""
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return ENCODER.encode(_clean(value))


def is_object(text: str) -> bool:
    """Whether `text` is one whole JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def object_or_empty(text: str) -> str:
    """Give `text` itself where it is a JSON object, else `{}`: no vendor takes unreadable arguments back."""
    return text if is_object(text) else "{}"


def wire_name(name: str) -> str:
    """Give a tool name that every vendor accepts in a history: letters, digits, _ and -, at most 64."""
    if _NAME.fullmatch(name):
        return name
    return _NOT_NAME.sub("_", name)[:64] or "unnamed"


def wire_id(call_id: str, allowed: re.Pattern[str], length: int) -> str:
    """Give `call_id` where `allowed` matches it, else `length` letters and digits made from it."""
    if allowed.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 36)
        digits.append("0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return "".join(digits)


def unique_ids(ids: Sequence[str], taken: Iterable[str]) -> list[str]:
    """Give each call an id of its own: missing ones are numbered, repeated ones get `_2`, `_3`, ...

    `taken` holds the ids of earlier messages, which vendors want different as well.
    """
    seen = set(taken)
    fresh: list[str] = []
    for position, wanted in enumerate(ids):
        base = candidate = wanted or f"call_{position}"
        count = 1
        while candidate in seen:
            count += 1
            candidate = f"{base}_{count}"
        seen.add(candidate)
        fresh.append(candidate)
    return fresh


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value
