"""Check a value, such as a model's answer, against a JSON Schema, and check that a schema is valid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.contract.texts import NOT_JSON
from whet.contract.tools import JSON_TYPES, is_json_type

_FENCED = re.compile(r"\A\s*```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_MAX_DEPTH = 100
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


def find_json_mismatch(text: str, schema: Mapping[str, Any], fits_pattern: Callable[[str, str], bool]) -> str:
    """Return why an answer is not JSON that matches the schema, or "" if it is. A code fence around it is
    ignored.

    `fits_pattern(pattern, text)` matches a string against a `pattern` of the schema. The model may have
    written the pattern, so matching must be bounded in time.
    """
    try:
        value = msgspec.json.decode(strip_fence(text))
    except NOT_JSON as error:
        return f"it is not JSON ({error})"
    return find_mismatch(value, schema, fits_pattern)


def find_mismatch(
    value: object, schema: Mapping[str, Any], fits_pattern: Callable[[str, str], bool] | None = None
) -> str:
    """Return why a value does not match the schema, or "" if it does.

    Checks `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `allOf`,
    `anyOf`, `oneOf`, references into the schema itself, the limits of numbers and lengths, and, with
    `fits_pattern`, `pattern`. Ignores other keywords.
    """
    return _Check(schema, fits_pattern).find_mismatch(value, schema, "the answer", 0)


def find_schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why a schema is invalid, with the position of the fault, or an empty string if the schema is
    valid."""
    pending: list[tuple[str, object]] = [("$", schema)]
    while pending:
        where, subschema = pending.pop()
        if isinstance(subschema, bool):
            continue
        if not isinstance(subschema, Mapping):
            return f"{where} must be an object"
        keywords = cast("Mapping[str, Any]", subschema)
        if why := _find_wrong_keyword(keywords, schema, where):
            return why
        for name in (*_PARTS, *_CHOICES, "items", "additionalProperties"):
            inner: Any = keywords.get(name)
            if name in _PARTS and inner:
                pending += [(f"{where}.{name}.{key}", item) for key, item in inner.items()]
            elif isinstance(inner, list):
                items = cast("list[Any]", inner)
                pending += [(f"{where}.{name}[{index}]", item) for index, item in enumerate(items)]
            elif inner is not None:
                pending.append((f"{where}.{name}", inner))
    return ""


def _find_wrong_keyword(keywords: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
    for name, kinds in _KINDS.items():
        value = keywords.get(name)
        if value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return f"{where}.{name} can't be {str(value)[:40]!r}"
    for kind in _list_types(keywords):
        if not isinstance(kind, str) or kind not in JSON_TYPES:
            return f"{where}.type: there is no type {str(kind)[:40]!r}"
    reference = keywords.get("$ref")
    if reference is not None and not isinstance(_resolve_reference(root, reference), Mapping | bool):
        return f"{where}.$ref leads nowhere in the schema: {reference[:80]!r}"
    return ""


def strip_fence(text: str) -> str:
    """Return an answer without the code fence around it."""
    match = _FENCED.match(text)
    return match[1] if match else text.strip()


class _Check:
    """Checks values against one schema. Each pair of value and subschema is checked once, so that checking a
    schema that contains itself ends."""

    def __init__(self, root: Mapping[str, Any], fits_pattern: Callable[[str, str], bool] | None) -> None:
        self._root = root
        self._fits_pattern = fits_pattern
        self._mismatches: dict[tuple[int, int], str] = {}

    def find_mismatch(self, value: object, schema: object, where: str, depth: int) -> str:
        """Return why the value does not fit, or an empty string."""
        if schema is False:
            return f"{where} may not be there"
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return ""
        pair = (id(value), id(cast("object", schema)))
        if pair not in self._mismatches:
            self._mismatches[pair] = ""
            self._mismatches[pair] = self._check_value(value, cast("Mapping[str, Any]", schema), where, depth)
        return self._mismatches[pair]

    def _check_value(self, value: object, keywords: Mapping[str, Any], where: str, depth: int) -> str:
        if "$ref" in keywords and (
            why := self.find_mismatch(
                value, _resolve_reference(self._root, keywords["$ref"]), where, depth + 1
            )
        ):
            return why
        kinds = _list_types(keywords)
        if kinds and not any(is_json_type(str(kind), value) for kind in kinds):
            return f"{where} must be {' or '.join(map(str, kinds))}"
        if "const" in keywords and value != keywords["const"]:
            return f"{where} must be {keywords['const']!r}"
        if "enum" in keywords and value not in _list_keyword(keywords, "enum"):
            return f"{where} must be one of {keywords['enum']}"
        for part in _list_keyword(keywords, "allOf"):
            if why := self.find_mismatch(value, part, where, depth + 1):
                return why
        for name in ("anyOf", "oneOf"):
            choices = _list_keyword(keywords, name)
            if choices and all(self.find_mismatch(value, choice, where, depth + 1) for choice in choices):
                return f"{where} fits none of the shapes that it may have"
        return self._check_members(value, keywords, where, depth)

    def _check_members(self, value: object, keywords: Mapping[str, Any], where: str, depth: int) -> str:
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            if missing := [name for name in _list_keyword(keywords, "required") if name not in fields]:
                return f"{where} lacks {', '.join(map(str, missing))}"
            properties: object = keywords.get("properties")
            schemas = cast("dict[str, Any]", properties if isinstance(properties, dict) else {})
            other_schema = keywords.get("additionalProperties", True)
            for name, child in fields.items():
                schema = schemas.get(name, other_schema)
                if why := self.find_mismatch(child, schema, f"{where}.{name}", depth + 1):
                    return why
            return ""
        if isinstance(value, list):
            items = cast("list[object]", value)
            if why := _check_range(len(items), keywords, ("minItems", "maxItems"), f"the length of {where}"):
                return why
            schema = keywords.get("items", True)
            for index, child in enumerate(items):
                if why := self.find_mismatch(child, schema, f"{where}[{index}]", depth + 1):
                    return why
            return ""
        return self._check_scalar(value, keywords, where)

    def _check_scalar(self, value: object, keywords: Mapping[str, Any], where: str) -> str:
        if isinstance(value, str):
            pattern = keywords.get("pattern")
            if self._fits_pattern and isinstance(pattern, str) and not self._fits_pattern(pattern, value):
                return f"{where} must match {pattern}"
            return _check_range(len(value), keywords, ("minLength", "maxLength"), f"the length of {where}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _check_range(value, keywords, ("minimum", "maximum"), where)
        return ""


def _list_types(keywords: Mapping[str, Any]) -> list[Any]:
    types: object = keywords.get("type")
    return [types] if isinstance(types, str) else _list_keyword(keywords, "type")


def _list_keyword(keywords: Mapping[str, Any], name: str) -> list[Any]:
    values: object = keywords.get(name)
    return cast("list[Any]", values) if isinstance(values, list) else []


def _resolve_reference(root: Mapping[str, Any], reference: object) -> object:
    """Return the part of the schema that a `$ref` names, or None if the schema has no such part."""
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


def _check_range(number: float, keywords: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    minimum, maximum = (keywords.get(name) for name in names)
    if isinstance(minimum, int | float) and number < minimum:
        return f"{where} must be at least {minimum}"
    if isinstance(maximum, int | float) and number > maximum:
        return f"{where} must be at most {maximum}"
    return ""
