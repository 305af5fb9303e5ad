"""Inserts a value into a JSON file, and removes it again, without changing any other byte.

Some agents allow comments. Positions are found in a copy of the text whose comments are blanked out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

_decode = json.JSONDecoder().raw_decode
_BLANK = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)


class Insertion(msgspec.Struct, frozen=True):
    """A text with a piece inserted, and the piece."""

    text: str
    piece: str


def blank_comments(text: str) -> str:
    """Return a text of the same length without its `//` and `/* */` comments."""

    def blank(match: re.Match[str]) -> str:
        token = match[0]
        is_comment = token.startswith("//") or (token.startswith("/*") and token.endswith("*/", 2))
        return re.sub(r"[^\r\n]", " ", token) if is_comment else token

    return _TOKEN.sub(blank, text)


def insert_item(text: str, keys: Sequence[str], item: object, *, has_comments: bool = False) -> Insertion:
    """Append `item` to the list under `keys`. Missing lists and objects are created.

    Raises ValueError if the text is not a JSON object, or if `keys` lead to another kind of value.
    """
    plain = blank_comments(text) if has_comments else text
    insertion, at = _insert_plain(plain, keys, item)
    return Insertion(text[:at] + insertion + text[at:], insertion)


def _insert_plain(text: str, keys: Sequence[str], item: object) -> tuple[str, int]:
    """Return the piece to insert, and where."""
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")
    at, depth = _skip_blank(text, 0), 1
    value: object = [item]
    for number, key in enumerate(keys):
        member_at = _find_member(text, at, key)
        if member_at < 0:
            for name in reversed(keys[number + 1 :]):
                value = {name: value}
            return _make_piece(text, at, depth, f"{json.dumps(key)}: {_encode(value)}")
        at, depth = member_at, depth + 1
        expected = "[" if number == len(keys) - 1 else "{"
        if text[at] != expected:
            raise ValueError(f"{key!r} is not {'a list' if expected == '[' else 'an object'}")
    spans, _ = _find_items(text, at)
    if not spans:
        return _make_piece(text, at, depth, _encode(item))
    return f",\n{'  ' * depth}{_encode(item)}", spans[-1][1]


def _make_piece(text: str, at: int, depth: int, added: str) -> tuple[str, int]:
    """Return the piece to insert behind the opening bracket at `at`, and where."""
    is_empty = text[_skip_blank(text, at + 1)] in "]}"
    piece = f"\n{'  ' * depth}{added}" + (f"\n{'  ' * (depth - 1)}" if is_empty else ",")
    return piece, at + 1


def cut_items(text: str, keys: Sequence[str], is_ours: Callable[[object], bool]) -> str:
    """Remove items from the list under `keys`, each with one comma. The list and all comments stay.

    The text without its comments must be a JSON object with that list.
    """
    plain = blank_comments(text)
    at = _skip_blank(plain, 0)
    for key in keys:
        at = _find_member(plain, at, key)
    spans, commas = _find_items(plain, at)
    for number in reversed(range(len(spans))):
        start, end = spans[number]
        if not is_ours(_decode(plain, start)[0]):
            continue
        text = text[:start] + text[end:]
        if commas:
            # Each item but the last has its comma behind it, the last one before it.
            comma_at = commas.pop(min(number, len(commas) - 1))
            comma_at -= (end - start) * (comma_at > start)
            text = text[:comma_at] + text[comma_at + 1 :]
    return text


def remove_item(settings: dict[str, Any], keys: Sequence[str], items: Sequence[object]) -> None:
    """Remove the items from the list under `keys`, then the list and its parents if they are empty."""
    parents: list[dict[str, Any]] = [settings]
    for key in keys[:-1]:
        parents.append(parents[-1][key])
    values = cast("list[object]", parents[-1][keys[-1]])
    values[:] = [value for value in values if value not in items]
    for parent, key in zip(reversed(parents), reversed(keys), strict=True):
        if not parent[key]:
            del parent[key]


def _find_member(text: str, start: int, key: str) -> int:
    """Return the position of the value of `key` in the object at `start`, or -1.

    If the key is doubled, the last one counts.
    """
    at, member_at = _skip_blank(text, start + 1), -1
    while text[at] != "}":
        name, at = _decode(text, at)
        at = _skip_blank(text, _skip_blank(text, at) + 1)
        if name == key:
            member_at = at
        at = _skip_blank(text, _decode(text, at)[1])
        if text[at] == ",":
            at = _skip_blank(text, at + 1)
    return member_at


def _find_items(text: str, start: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return where the items begin and end in the list at `start`, and where its commas are."""
    at = _skip_blank(text, start + 1)
    spans: list[tuple[int, int]] = []
    commas: list[int] = []
    while text[at] != "]":
        end = _decode(text, at)[1]
        spans.append((at, end))
        at = _skip_blank(text, end)
        if text[at] == ",":
            commas.append(at)
            at = _skip_blank(text, at + 1)
    return spans, commas


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
