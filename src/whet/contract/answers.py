"""Check values against a JSON Schema, and check that a schema is valid. Covers the keywords that answers are
requested with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.contract.texts import NOT_JSON
from whet.contract.tools import JSON_TYPES, is_json_type

_FENCED = re.compile(r"\A\s*```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_DEEPEST = 100
_PARTS = ("properties", "$defs", "definitions")
_CHOICES = ("allOf", "anyOf", "oneOf")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum")
_KINDS: dict[str, tuple[type, ...]] = {
    "type": (str, list),
    "enum": (list,),
    "required": (list,),
    "$ref": (str,),
    "items": (dict, list, bool),
    "additionalProperties": (dict, bool),
    **dict.fromkeys(_PARTS, (dict,)),
    **dict.fromkeys(_CHOICES, (list,)),
    **dict.fromkeys(_SIZES, (int, float)),
}


def misfit(text: str, schema: Mapping[str, Any], fits_pattern: Callable[[str, str], bool]) -> str:
    """Return why an answer is not JSON that fits a schema, or "" if it is; it may have a fence around it.

    `fits_pattern` decides whether a string matches a `pattern` of the schema, which the model wrote.
    """
    try:
        value = msgspec.json.decode(plain(text))
    except NOT_JSON as error:
        return f"it is no JSON ({error})"
    return misfit_of(value, schema, fits_pattern)


def misfit_of(
    value: object, schema: Mapping[str, Any], fits_pattern: Callable[[str, str], bool] | None = None
) -> str:
    """Return why a value does not fit a schema, or "" if it does.

    `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `allOf`, `anyOf`,
    `oneOf`, references into the schema itself and the limits of numbers and lengths are held; other keywords
    are not looked at. `pattern` is checked with `fits_pattern`, and ignored without it.
    """
    return _Check(schema, fits_pattern).misfit(value, schema, "the answer", 0)


def unsound(schema: Mapping[str, Any]) -> str:
    """Return why a schema is invalid, with the position of the fault, or an empty string if the schema is
    valid."""
    pending: list[tuple[str, object]] = [("$", schema)]
    while pending:
        where, part_schema = pending.pop()
        if isinstance(part_schema, bool):
            continue
        if not isinstance(part_schema, Mapping):
            return f"{where} must be an object"
        keywords = cast("Mapping[str, Any]", part_schema)
        if why := _wrong_keyword(keywords, schema, where):
            return why
        for name in (*_PARTS, *_CHOICES, "items", "additionalProperties"):
            inner: Any = keywords.get(name)
            if name in _PARTS and inner:
                pending += [(f"{where}.{name}.{key}", part) for key, part in inner.items()]
            elif isinstance(inner, list):
                pending += [
                    (f"{where}.{name}[{at}]", part) for at, part in enumerate(cast("list[Any]", inner))
                ]
            elif inner is not None:
                pending.append((f"{where}.{name}", inner))
    return ""


def _wrong_keyword(known: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
    for name, kinds in _KINDS.items():
        value = known.get(name)
        if value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return f"{where}.{name} can't be {str(value)[:40]!r}"
    for kind in _types(known):
        if not isinstance(kind, str) or kind not in JSON_TYPES:
            return f"{where}.type: there is no type {str(kind)[:40]!r}"
    reference = known.get("$ref")
    if reference is not None and not isinstance(_pointed(root, reference), Mapping | bool):
        return f"{where}.$ref leads nowhere in the schema: {reference[:80]!r}"
    return ""


def plain(text: str) -> str:
    """Return an answer without the code fence around it."""
    match = _FENCED.match(text)
    return match[1] if match else text.strip()


class _Check:
    """Checks values against the parts of a schema. Each pair is checked once, so a schema that contains
    itself ends."""

    def __init__(self, root: Mapping[str, Any], fits_pattern: Callable[[str, str], bool] | None) -> None:
        self._root = root
        self._fits_pattern = fits_pattern
        self._told: dict[tuple[int, int], str] = {}

    def misfit(self, value: object, schema: object, where: str, depth: int) -> str:
        """Return why the value does not fit, or an empty string."""
        if schema is False:
            return f"{where} may not be there"
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return ""
        pair = (id(value), id(cast("object", schema)))
        if pair not in self._told:
            self._told[pair] = ""
            self._told[pair] = self._looked_at(value, cast("Mapping[str, Any]", schema), where, depth)
        return self._told[pair]

    def _looked_at(self, value: object, known: Mapping[str, Any], where: str, depth: int) -> str:
        if "$ref" in known and (
            why := self.misfit(value, _pointed(self._root, known["$ref"]), where, depth + 1)
        ):
            return why
        kinds = _types(known)
        if kinds and not any(is_json_type(str(kind), value) for kind in kinds):
            return f"{where} must be {' or '.join(map(str, kinds))}"
        if "const" in known and value != known["const"]:
            return f"{where} must be {known['const']!r}"
        if "enum" in known and value not in _listed(known, "enum"):
            return f"{where} must be one of {known['enum']}"
        for part in _listed(known, "allOf"):
            if why := self.misfit(value, part, where, depth + 1):
                return why
        for name in ("anyOf", "oneOf"):
            choices = _listed(known, name)
            if choices and all(self.misfit(value, choice, where, depth + 1) for choice in choices):
                return f"{where} fits none of the shapes that it may have"
        return self._inside(value, known, where, depth)

    def _inside(self, value: object, known: Mapping[str, Any], where: str, depth: int) -> str:
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            if missing := [name for name in _listed(known, "required") if name not in fields]:
                return f"{where} lacks {', '.join(map(str, missing))}"
            properties: object = known.get("properties")
            rules = cast("dict[str, Any]", properties if isinstance(properties, dict) else {})
            other_rule = known.get("additionalProperties", True)
            inside = (
                self.misfit(child, rules.get(name, other_rule), f"{where}.{name}", depth + 1)
                for name, child in fields.items()
            )
            return next((why for why in inside if why), "")
        if isinstance(value, list):
            items = cast("list[object]", value)
            if why := _out_of(len(items), known, ("minItems", "maxItems"), f"the length of {where}"):
                return why
            rule = known.get("items", True)
            inside = (self.misfit(child, rule, f"{where}[{at}]", depth + 1) for at, child in enumerate(items))
            return next((why for why in inside if why), "")
        return self._beyond(value, known, where)

    def _beyond(self, value: object, known: Mapping[str, Any], where: str) -> str:
        if isinstance(value, str):
            pattern = known.get("pattern")
            if self._fits_pattern and isinstance(pattern, str) and not self._fits_pattern(pattern, value):
                return f"{where} must match {pattern}"
            return _out_of(len(value), known, ("minLength", "maxLength"), f"the length of {where}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _out_of(value, known, ("minimum", "maximum"), where)
        return ""


def _types(known: Mapping[str, Any]) -> list[Any]:
    types: object = known.get("type")
    return [types] if isinstance(types, str) else _listed(known, "type")


def _listed(known: Mapping[str, Any], name: str) -> list[Any]:
    values: object = known.get(name)
    return cast("list[Any]", values) if isinstance(values, list) else []


def _pointed(root: Mapping[str, Any], reference: object) -> object:
    """Return the part of the schema that a reference names, or None if it does not exist or lies outside the
    schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    part: object = root
    for name in reference.removeprefix("#").split("/")[1:]:
        if isinstance(part, list) and name.isdecimal() and int(name) < len(cast("list[object]", part)):
            part = cast("list[object]", part)[int(name)]
            continue
        if not isinstance(part, Mapping):
            return None
        part = cast("Mapping[str, object]", part).get(name.replace("~1", "/").replace("~0", "~"))
    return part


def _out_of(number: float, known: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    least, most = (known.get(name) for name in names)
    if isinstance(least, int | float) and number < least:
        return f"{where} must be at least {least}"
    return f"{where} must be at most {most}" if isinstance(most, int | float) and number > most else ""
