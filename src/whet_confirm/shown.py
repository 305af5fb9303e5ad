"""Prepares a request's content for people: secrets redacted, odd characters made visible, long texts cut."""

from __future__ import annotations

import fnmatch
import json
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import cast

from whet.config.secrets import is_secret_name
from whet.contract.texts import collect_texts
from whet.log import MASK, mask
from whet.visible import describe_character, find_odd_characters, visible
from whet_confirm.records import ConfirmRequest
from whet_confirm.requests import decode_details

MAX_SHOWN, MAX_TEXT = 200_000, 20_000
_MAX_NAMED, _MAX_UNCLEAR = 5, 100
_MIXED_DIRECTIONS = "letters from right to left around digits or signs, which are shown in another order"
_REORDERED = re.compile(r"R[ /]*1|R[ /]*/R")


def fit_text(text: str, limit: int) -> tuple[str, bool]:
    """Make text visible and cut it at `limit` UTF-16 units, as vendors count.

    Returns the text, and whether it was cut.
    """
    visible_text = visible(text, max(limit, 200) * 2, masking=mask)
    if count_units(visible_text) <= limit:
        return visible_text, "\n[... " in visible_text[-60:] and len(text) > max(limit, 200) * 2
    room = limit - 44
    start = visible_text.encode("utf-16-le", "surrogatepass")[: room * 2].decode("utf-16-le", "ignore")
    return f"{start}\n[... cut, {len(text):,} characters in all]", True


def count_units(text: str) -> int:
    """Count UTF-16 units, which Telegram, Discord and Slack call characters."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def one_line(text: str, limit: int) -> tuple[str, bool]:
    """Do as `fit_text` on one line; a line break becomes a symbol."""
    return fit_text(text.replace("\n", "⏎"), limit)


def redact(value: object, names: Iterable[str] = ()) -> object:
    """Replace values whose name looks secret or matches one of the `names` (with * and ?)."""
    patterns = tuple(name.lower() for name in names)
    return _redact(value, patterns)


def _redact(value: object, patterns: tuple[str, ...]) -> object:
    if isinstance(value, dict):
        items = cast("dict[str, object]", value)
        return {
            key: MASK if _is_secret(key, inner, patterns) else _redact(inner, patterns)
            for key, inner in items.items()
        }
    if isinstance(value, list):
        return [_redact(inner, patterns) for inner in cast("list[object]", value)]
    return value


def _is_secret(name: str, value: object, patterns: tuple[str, ...]) -> bool:
    lowered = name.lower()
    if any(fnmatch.fnmatchcase(lowered, pattern) for pattern in patterns):
        return True
    return isinstance(value, str) and bool(value) and is_secret_name(lowered.replace("-", "_"))


def hidden_parts(details: dict[str, object], texts: Iterable[str], names: Iterable[str] = ()) -> list[str]:
    """Describe the parts that a person does not see at first. An approver must have seen everything.

    `texts` are the other texts that are shown. Returns an empty list if everything is visible.
    """
    patterns = tuple(name.lower() for name in names)
    parts = [f"the value of {name}" for name in _redacted_names(details, patterns)]
    details_text = format_json(details)
    if mask(details_text) != details_text or any(mask(text) != text for text in texts):
        parts.append("a part that has the shape of a key")
    if len(details_text) > MAX_SHOWN or any(len(text) > MAX_TEXT for text in texts):
        parts.append("a text that is too long to be shown at once")
    return parts


def _redacted_names(value: object, patterns: tuple[str, ...]) -> list[str]:
    if isinstance(value, dict):
        names: list[str] = []
        for key, inner in cast("dict[str, object]", value).items():
            secret = _is_secret(key, inner, patterns)
            names += [one_line(key, 200)[0]] if secret else _redacted_names(inner, patterns)
        return names
    if isinstance(value, list):
        return [name for inner in cast("list[object]", value) for name in _redacted_names(inner, patterns)]
    return []


def describe_unclear(request: ConfirmRequest) -> list[str]:
    """Name the request's characters that are invisible or look like others: the first ones if there are many.

    Also warns if some are displayed in another order than they are stored.
    """
    return [
        *_name_first(_odd_characters(request), _MAX_UNCLEAR),
        *([_MIXED_DIRECTIONS] if _has_mixed_directions(request) else []),
    ]


def unclear_warning(request: ConfirmRequest) -> str:
    """Return a warning about the characters that `describe_unclear` names, or an empty string."""
    characters = ", ".join(_name_first(_odd_characters(request), _MAX_NAMED))
    warnings = [f"it holds characters that hide or look like others: {characters}"] if characters else []
    warnings += (
        [f"it holds {_MIXED_DIRECTIONS}; the JSON shows the stored order"]
        if _has_mixed_directions(request)
        else []
    )
    return f"Look closely: {'; and '.join(warnings)}" if warnings else ""


def _texts(request: ConfirmRequest) -> tuple[str, ...]:
    fields = request.action, request.description, request.requester, request.session_key
    return tuple(text[:MAX_SHOWN] for text in (*fields, request.details_json))


def _odd_characters(request: ConfirmRequest) -> list[str]:
    return sorted({character for text in _texts(request) for character in find_odd_characters(text)})


def _has_mixed_directions(request: ConfirmRequest) -> bool:
    """Return whether digits or signs are next to letters written from right to left.

    That changes the displayed order: the parts of a path change places, or a number comes before its name.
    """
    *texts, details = _texts(request)
    if not details.isascii():
        texts += collect_texts(decode_details(request.details_json))
    return any(_REORDERED.search("".join(map(_direction, text))) for text in texts if not text.isascii())


@lru_cache(maxsize=4096)
def _direction(character: str) -> str:
    if character.isspace():
        return " " if character != "\n" else "\n"
    category = unicodedata.bidirectional(character)
    return {"R": "R", "AL": "R", "L": "L", "EN": "1", "AN": "1", "NSM": ""}.get(category, "/")


def _name_first(odd: list[str], max_named: int) -> list[str]:
    more = [f"and {len(odd) - max_named} more"] if len(odd) > max_named else []
    return [*map(describe_character, odd[:max_named]), *more]


def format_editable(details: object) -> str:
    """Format details as JSON for editing: exact, and fully escaped if any of its characters is unclear."""
    text = format_json(details)
    return json.dumps(details, indent=2) if find_odd_characters(text) else text


def format_json(details: object) -> str:
    """Format details as indented JSON. `visible` later replaces invisible characters with their codes."""
    return json.dumps(details, indent=2, ensure_ascii=False, default=str)
