"""Rewrite a tool's schema so that every vendor accepts it.

Vendors refuse every request of a session if one schema has an array without `items`, a choice between schemas
at the top, a required argument that is not described, or a limit of the wrong type. Such parts are left out;
the tool itself checks its arguments when it is called. `additionalProperties: false` is left out, too: it
does not help a model and took six percent of the tools' bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec

from whet.contract.texts import as_object
from whet.contract.tools import JSON_TYPES, ToolSpec

_MAX_DEPTH = 40
_LEFT_OUT: Any = object()
_CHOICES = ("allOf", "anyOf", "oneOf")
_NOT_AT_TOP = (*_CHOICES, "not", "if", "then", "else", "enum", "const", "$schema", "$id")
INNER = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SEVERAL = (*_CHOICES, "prefixItems")
_SUBSCHEMAS = (*INNER, *SEVERAL)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTED = ("Length", "Items", "Properties", "Contains")
_COUNTS = tuple(f"{end}{name}" for end in ("min", "max") for name in _COUNTED)
_FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")
_TEXTS = ("pattern", "format", "title", "description", "$comment")


NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})
"""The schema of a tool without arguments, for a server that refuses an empty schema."""


class ToolCuts(msgspec.Struct, frozen=True):
    """The parts of the offered tools that a server refused."""

    names: tuple[str, ...] = ()
    """Tools that are left out."""
    keywords: tuple[str, ...] = ()
    """Keywords that are left out of all schemas."""
    max_tools: int = msgspec.field(default=0, name="most")
    """How many tools are sent, the first ones; 0: all."""
    description_chars: int = 0
    """How long a tool's description may be; 0: any length."""
    empty: bool = False
    """Whether the server refused schemas without arguments."""
    plain: tuple[str, ...] = ()
    """Tools whose schemas hold only keywords that every server takes."""
    all_plain: bool = False
    """Whether all schemas are such plain ones."""

    def keep(self, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
        """Return the tools that the server accepts, with their schemas and descriptions cut."""
        kept = [tool for tool in tools if tool.name not in self.names]
        kept = kept[: self.max_tools] if self.max_tools else kept
        if self == ToolCuts(self.names, max_tools=self.max_tools):
            return kept
        return [self._cut(tool) for tool in kept]

    def _cut(self, tool: ToolSpec) -> ToolSpec:
        schema = tool.parameters
        if self.all_plain or tool.name in self.plain:
            schema = plain_schema(schema)
        parameters: Mapping[str, Any] = self._without_keywords(schema, 0)
        if self.empty and not parameters.get("properties"):
            parameters = NO_PARAMETERS
        description = tool.description
        if self.description_chars and len(description) > self.description_chars:
            description = description[: self.description_chars - 1] + "…"
        return msgspec.structs.replace(tool, parameters=parameters, description=description)

    def _without_keywords(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        if depth > _MAX_DEPTH:
            return kept
        for key, value in schema.items():
            if key in self.keywords:
                continue
            if key in NAMED:
                kept[key] = {name: self._inner(inner, depth) for name, inner in as_object(value).items()}
            else:
                kept[key] = self._inner(value, depth) if key in _SUBSCHEMAS else value
        return kept

    def _inner(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return self._without_keywords(cast("dict[str, Any]", value), depth + 1)
        if isinstance(value, list):
            return [self._inner(part, depth + 1) for part in cast("list[Any]", value)]
        return value


NO_CUTS = ToolCuts()


def keywords_of(schema: object, depth: int = 0) -> set[str]:
    """Return the keywords in a schema, at any depth."""
    if isinstance(schema, list):
        return {key for part in cast("list[Any]", schema) for key in keywords_of(part, depth)}
    keywords: set[str] = set()
    if depth <= _MAX_DEPTH:
        for key, value in as_object(schema).items():
            keywords.add(key)
            inner = list(as_object(value).values()) if key in NAMED else value if key in _SUBSCHEMAS else None
            keywords |= keywords_of(inner, depth + 1)
    return keywords


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with only the keywords that every server accepts: types, arguments, descriptions and
    enumerations of texts. A choice is replaced by its first schema with a type, a reference by its target."""
    return _plain(accepted_schema(schema), schema, 0)


def _plain(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        return {}
    fields = dict(schema)
    for key in _CHOICES:
        choices = (_resolve(as_object(part), root) for part in _list(fields.get(key)))
        typed: Iterator[dict[str, Any]] = (part for part in choices if part.get("type") not in (None, "null"))
        fields = next(typed, dict[str, Any]()) | fields
    fields = _resolve(fields, root) | fields
    result = {key: fields[key] for key in ("type", "description", "required") if key in fields}
    if isinstance(kinds := fields.get("type"), list):
        result["type"] = next((kind for kind in cast("list[Any]", kinds) if kind != "null"), "string")
    if result.get("type") == "object" or "properties" in fields:
        properties = as_object(fields.get("properties")).items()
        result["properties"] = {name: _plain(as_object(inner), root, depth + 1) for name, inner in properties}
    if result.get("type") == "array":
        result["items"] = _plain(as_object(fields.get("items")), root, depth + 1) or {"type": "string"}
    words = _list(fields.get("enum"))
    if result.get("type", "string") == "string" and words and all(isinstance(word, str) for word in words):
        result |= {"type": "string", "enum": words}
    return result


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target of a reference into the same schema, or the schema if it is no reference."""
    value: Any = root
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return dict(schema)
    for step in reference[2:].split("/"):
        value = as_object(value).get(step)
    return as_object(value)


def accepted_schema(schema: Mapping[str, Any], unsent: Sequence[str] = ()) -> dict[str, Any]:
    """Return the schema of a tool's arguments as it is sent, without the arguments in `unsent`."""
    top = _merge_choices(schema) if any(key in schema for key in _NOT_AT_TOP) else dict(schema)
    if top.get("type") != "object":
        top["type"] = "object"
    if not isinstance(top.get("properties"), dict):
        top["properties"] = {}
    sent = _accepted(top, 0)
    for name in unsent:
        sent["properties"].pop(name, None)
    return sent


def _merge_choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outermost schema with the arguments of all its choices instead of the choices."""
    properties: dict[str, Any] = {}
    required = _names(schema.get("required"))
    for key in _CHOICES:
        for part in _list(schema.get(key)):
            if isinstance(part, dict):
                fields = cast("dict[str, Any]", part)
                properties |= as_object(fields.get("properties"))
                required += _names(fields.get("required")) if key == "allOf" else []
    top = {key: value for key, value in schema.items() if key not in _NOT_AT_TOP}
    top["properties"] = properties | as_object(schema.get("properties"))
    return top | ({"required": list(dict.fromkeys(required))} if required else {})


def _accepted(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        return {}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "items" and isinstance(value, list):  # a tuple, as in drafts before 2020-12
            result["prefixItems"] = [_inner(item, depth) for item in cast("list[Any]", value)]
        elif (kept := _keyword(key, value, schema, depth)) is not _LEFT_OUT:
            result[key] = kept
    if "array" in _list(schema.get("type"), schema.get("type")) and "items" not in result:
        result["items"] = {}
    return result


def _keyword(key: str, value: Any, schema: Mapping[str, Any], depth: int) -> Any:
    """Return the value of a keyword, or `_LEFT_OUT`."""
    if key == "additionalProperties" and isinstance(value, bool):
        return _LEFT_OUT if value is False and "properties" in schema else value
    if key in INNER:
        return _inner(value, depth)
    if key in NAMED:
        return {name: _inner(inner, depth) for name, inner in as_object(value).items()}
    if key in SEVERAL:
        return [_inner(part, depth) for part in _list(value)] or _LEFT_OUT
    if key == "required":
        properties = as_object(schema.get("properties"))
        return [name for name in _names(value) if name in properties] or _LEFT_OUT
    return value if is_sound(key, value) else _LEFT_OUT


def _inner(value: object, depth: int) -> dict[str, Any]:
    return _accepted(cast("dict[str, Any]", value), depth + 1) if isinstance(value, dict) else {}


def is_sound(key: str, value: object) -> bool:
    """Return whether the vendors' validators allow this value of a keyword that contains no schema."""
    if key in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if key in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in _FLAGS:
        return isinstance(value, bool)
    if key in _TEXTS:
        return isinstance(value, str)
    if key in ("enum", "examples"):
        return bool(_list(value))
    if key == "required":
        return isinstance(value, list) and _names(cast("object", value)) == value
    if key == "type":
        kinds = _list(value, value)
        return bool(kinds) and all(isinstance(kind, str) and kind in JSON_TYPES for kind in kinds)
    return True


def _list(value: object, single: object = None) -> list[Any]:
    """Return the value if it is a list. Otherwise returns [single], or [] if `single` is None."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if single is None else [single]


def _names(value: object) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]
