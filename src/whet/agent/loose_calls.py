"""Correct calls that a model wrote nearly right: a tool's name with a prefix, arguments that are nearly JSON.

A name is corrected if exactly one tool has it apart from prefix, case and punctuation. Arguments are
corrected if they are one complete object that is wrapped in a string or a fence, or uses raw newlines or
Python's literals. A value is corrected only if it is text, its schema does not allow text, and the text is
JSON of a type that the schema allows; tools that convert their arguments themselves (`check`) are left out.
Arguments that were cut off are not changed, and are refused. The corrected call is stored, judged, shown and
sent back, so person and model read what ran.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec

from whet.contract.messages import Message, ToolCall
from whet.contract.texts import NOT_JSON, as_object, is_object
from whet.contract.tools import JSON_TYPES, Tool, is_json_type

_MAX_CHARS = 1_000_000
_MAX_LITERAL_CHARS = 100_000
_MAX_WRAPPERS = 3
_MAX_DEPTH = 8
# Possessive (`*+`): a model that loops must not make the search go back.
_FENCE = re.compile(r"```[\w-]*+(.*)```", re.DOTALL)
_REMAINDER = re.compile(r"(?:[\s}\])`;]|</?[\w|]+>)*+")
_TEXT_OR_WORD = re.compile(
    r""""(?:[^"\\]|\\.)*+(?:"|\Z)|'(?:[^'\\]|\\.)*+(?:'|\Z)|\b(?:true|false|null)\b""", re.DOTALL
)
_JSON = json.JSONDecoder(strict=False)


def mend_calls(message: Message, tools: Mapping[str, Tool]) -> Message:
    """Return the message with its calls corrected."""
    calls = tuple(_correct_call(call, tools) for call in message.tool_calls)
    if all(new is old for new, old in zip(calls, message.tool_calls, strict=True)):
        return message
    return msgspec.structs.replace(message, tool_calls=calls)


def _correct_call(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    name = call.name if call.name in tools else match_tool(call.name, tools)
    arguments = call.arguments if is_object(call.arguments or "{}") else unwrap_object(call.arguments)
    if name in tools and tools[name].check is None and len(arguments) <= _MAX_CHARS and is_object(arguments):
        values: dict[str, Any] = msgspec.json.decode(arguments)
        fitted = fit_values(values, tools[name].spec.parameters)
        arguments = arguments if fitted == values else msgspec.json.encode(fitted).decode()
    if (name, arguments) == (call.name, call.arguments):
        return call
    return msgspec.structs.replace(call, name=name, arguments=arguments)


def match_tool(name: str, tools: Collection[str]) -> str:
    """Return the only tool whose name matches apart from prefix, case and punctuation, else the name."""
    head = re.sub(r"<\|.*", "", name, flags=re.DOTALL).strip(" \t\r\n`'\"()")
    for candidate in (head, re.split(r"[.:/]", head)[-1]):
        key = _key(candidate)
        matches = [tool for tool in tools if _key(tool) == key]
        if key and len(matches) == 1:
            return matches[0]
    return name


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def unwrap_object(text: str) -> str:
    """Return the JSON object that a text contains in another notation, or the text itself."""
    if len(text) > _MAX_CHARS:
        return text
    value: Any = text
    for _ in range(_MAX_WRAPPERS):
        items = cast("list[Any]", value) if isinstance(value, list) else []
        value = items[0] if len(items) == 1 else cast("Any", value)
        if not isinstance(value, str):
            break
        value = _parse(value)
    if value is None and text.strip() in ("", "null", "None"):
        value = {}
    if not isinstance(value, dict):
        return text
    try:
        written = msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, RecursionError):
        return text
    return written if is_object(written) else text


def _parse(text: str) -> Any:
    """Return the value in a text, or None if it is not one complete value."""
    text = text.strip()
    if fence := _FENCE.fullmatch(text):
        text = fence[1].strip()
    try:
        value, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return _parse_literal(text)
    return value if _REMAINDER.fullmatch(text, end) else None


def _parse_literal(text: str) -> Any:
    """Return the value of a Python dict literal or of JSON with a trailing comma, or None."""
    if len(text) > _MAX_LITERAL_CHARS or not text.startswith("{"):
        return None
    for source in (text, _to_python(text)):
        try:
            return ast.literal_eval(source)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _to_python(text: str) -> str:
    """Return JSON with Python's words for true, false and null outside of its strings."""
    words = {"true": "True", "false": "False", "null": "None"}
    return _TEXT_OR_WORD.sub(lambda match: words.get(match[0], match[0]), text)


def fit_values(values: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in which text is parsed as JSON wherever the schema wants another type."""
    return cast("dict[str, Any]", _fit(values, schema, schema, 0))


def _fit(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    resolved = _resolve(schema, root)
    if not resolved or depth > _MAX_DEPTH:
        return value
    if isinstance(value, str):
        value = _parse_typed(value, _list_types(resolved, root))
    if isinstance(value, dict) and isinstance(properties := resolved.get("properties"), dict):
        fields, schemas = cast("dict[str, Any]", value), cast("dict[str, Any]", properties)
        return {name: _fit(inner, schemas.get(name), root, depth + 1) for name, inner in fields.items()}
    if isinstance(value, list) and "items" in resolved:
        return [_fit(item, resolved["items"], root, depth + 1) for item in cast("list[Any]", value)]
    return cast("Any", value)


def _parse_typed(text: str, types: frozenset[str]) -> Any:
    """Return the value of JSON text if it has one of these types, or the text itself."""
    if not types or "string" in types or not types <= JSON_TYPES.keys():
        return text
    try:
        value: Any = msgspec.json.decode(text)
    except NOT_JSON:
        return text
    return value if any(is_json_type(name, value) for name in types) else text


def _list_types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema allows, or an empty set if it names none."""
    if isinstance(type_name := schema.get("type"), str):
        return frozenset((type_name,))
    if isinstance(type_name, list):
        return frozenset(map(str, cast("list[Any]", type_name)))
    choices: Any = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(choices, list):
        return frozenset()
    names = [_resolve(choice, root).get("type") for choice in cast("list[Any]", choices)]
    return frozenset(map(str, names)) if all(isinstance(name, str) for name in names) else frozenset()


def _resolve(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the definition in the same document that it refers to; empty if there is none."""
    resolved: Any = schema
    if isinstance(schema, dict) and isinstance(path := cast("dict[str, Any]", schema).get("$ref"), str):
        parts = path.split("/")
        is_local = len(parts) == 3 and parts[0] == "#"
        resolved = as_object(root.get(parts[1])).get(parts[2]) if is_local else None
    return as_object(resolved)
