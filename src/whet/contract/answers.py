"""Whether a value fits a JSON Schema, in the words that answers are asked for with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.contract.texts import NOT_JSON
from whet.contract.tools import is_json_type

_FENCED = re.compile(r"\A\s*```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_DEEPEST = 40


def misfit(text: str, schema: Mapping[str, Any]) -> str:
    """Say why an answer is not JSON that fits a schema; empty where it does. A fence around it is no matter.

    `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf` and the limits
    of numbers, lengths and patterns are held; other keywords are not looked at."""
    try:
        value = msgspec.json.decode(plain(text))
    except NOT_JSON as error:
        return f"it is no JSON ({error})"
    return _misfit(value, schema, "the answer", 0)


def plain(text: str) -> str:
    """Give an answer without the fence around it."""
    found = _FENCED.match(text)
    return found[1] if found else text.strip()


def _misfit(value: object, schema: object, where: str, depth: int) -> str:
    if schema is False or depth > _DEEPEST:
        return f"{where} may not be there"
    if not isinstance(schema, Mapping):
        return ""
    known = cast("Mapping[str, Any]", schema)
    kinds = known.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_json_type(str(kind), value) for kind in kinds):
        return f"{where} must be {' or '.join(map(str, kinds))}"
    if "const" in known and value != known["const"]:
        return f"{where} must be {known['const']!r}"
    if "enum" in known and value not in known["enum"]:
        return f"{where} must be one of {known['enum']}"
    if (one_of := known.get("anyOf")) and all(_misfit(value, one, where, depth + 1) for one in one_of):
        return f"{where} fits none of the shapes that it may have"
    if isinstance(value, dict):
        return _misfit_object(cast("dict[str, object]", value), known, where, depth)
    if isinstance(value, list):
        return _misfit_list(cast("list[object]", value), known, where, depth)
    return _beyond(value, known, where)


def _misfit_object(value: dict[str, object], known: Mapping[str, Any], where: str, depth: int) -> str:
    if missing := [name for name in known.get("required", ()) if name not in value]:
        return f"{where} lacks {', '.join(map(str, missing))}"
    properties = known.get("properties", {})
    for name, inner in value.items():
        rule = properties.get(name, known.get("additionalProperties", True))
        if why := _misfit(inner, rule, f"{where}.{name}", depth + 1):
            return why
    return ""


def _misfit_list(value: list[object], known: Mapping[str, Any], where: str, depth: int) -> str:
    if why := _out_of(len(value), known, ("minItems", "maxItems"), f"the length of {where}"):
        return why
    inside = (
        _misfit(one, known.get("items", True), f"{where}[{at}]", depth + 1) for at, one in enumerate(value)
    )
    return next((why for why in inside if why), "")


def _beyond(value: object, known: Mapping[str, Any], where: str) -> str:
    if isinstance(value, str):
        pattern = known.get("pattern")
        if isinstance(pattern, str) and not _found(pattern, value):
            return f"{where} must match {pattern}"
        return _out_of(len(value), known, ("minLength", "maxLength"), f"the length of {where}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _out_of(value, known, ("minimum", "maximum"), where)
    return ""


def _out_of(number: float, known: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    least, most = (known.get(name) for name in names)
    if isinstance(least, int | float) and number < least:
        return f"{where} must be at least {least}"
    return f"{where} must be at most {most}" if isinstance(most, int | float) and number > most else ""


def _found(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True
