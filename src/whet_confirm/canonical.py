"""Canonical JSON (RFC 8785) and the digest that binds a decision to exactly one action.

Floats are printed as ECMAScript prints them. Integers keep every digit, also beyond 2^53, where RFC 8785
is silent and rounding could make two actions share a digest. Values that are not JSON (NaN, lone
surrogates) raise ValueError.
"""

from __future__ import annotations

import hashlib
import math
from json.encoder import encode_basestring
from typing import cast

# Only string encoding comes from the standard library's encoder: it escapes as RFC 8785 requires.
_quote = encode_basestring
_LOWEST_POWER, _HIGHEST_POWER = -6, 20


def canonical(value: object) -> bytes:
    """Encode a JSON value (dicts, lists, strings, numbers, True, False, None) canonically as UTF-8."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode("utf-8")


def request_digest(
    request_id: str, action: str, details: object, requester: str, session_key: str, expiry_s: float
) -> str:
    """Return the digest that a decision is bound to. `expiry_s` is the record's `expires_at`."""
    text = canonical(details).decode()
    return stored_digest(request_id, action, text, requester, session_key, expiry_s)


def stored_digest(
    request_id: str, action: str, details_json: str, requester: str, session_key: str, expiry_s: float
) -> str:
    """Return the digest of details that are already canonical text, as stored.

    The text is not encoded again, so the digest stays the same whichever version wrote it.
    """
    text = (
        f'{{"action":{_quote(action)},"details":{details_json},"expiry":{_number(expiry_s)},'
        f'"id":{_quote(request_id)},"requester":{_quote(requester)},"session_key":{_quote(session_key)}}}'
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _write(value: object, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(_quote(value))
    elif value is None or isinstance(value, bool):
        parts.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, int):
        parts.append(str(value))
    elif isinstance(value, float):
        parts.append(_number(value))
    elif isinstance(value, dict):
        _write_object(cast("dict[str, object]", value), parts)
    elif isinstance(value, list | tuple):
        _write_array(cast("list[object]", value), parts)
    else:
        raise ValueError(f"{type(value).__name__} is not JSON")


def _write_object(value: dict[str, object], parts: list[str]) -> None:
    separator = "{"
    for key in sorted(value) if all(map(str.isascii, value)) else sorted(value, key=_utf16):
        item = value[key]
        if type(item) is str:  # the usual kinds, without a call for each
            parts.append(f"{separator}{_quote(key)}:{_quote(item)}")
        elif type(item) is int:
            parts.append(f"{separator}{_quote(key)}:{item}")
        else:
            parts.append(f"{separator}{_quote(key)}:")
            _write(item, parts)
        separator = ","
    parts.append("}" if value else "{}")


def _write_array(value: list[object], parts: list[str]) -> None:
    parts.append("[")
    for index, item in enumerate(value):
        if index:
            parts.append(",")
        _write(item, parts)
    parts.append("]")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _number(value: float) -> str:
    """Format a float as ECMAScript does: an exponent only below 1e-6 and from 1e21 on."""
    if not math.isfinite(value):
        raise ValueError("NaN and infinities are not JSON")
    if value == 0:
        return "0"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    power = int(exponent)
    if power < _LOWEST_POWER or power > _HIGHEST_POWER:
        return f"{mantissa.removesuffix('.0')}e{'+' if power > 0 else '-'}{abs(power)}"
    sign = "-" if value < 0 else ""
    digits = mantissa.removeprefix("-").removesuffix(".0").replace(".", "")
    if power > 0:  # from 1e16 on: no digit follows the point
        return f"{sign}{digits.ljust(power + 1, '0')}"
    return f"{sign}0.{'0' * (-power - 1)}{digits}"
