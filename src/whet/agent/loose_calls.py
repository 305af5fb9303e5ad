"""Read calls that a model wrote nearly right: a tool's name with a prefix, arguments that are nearly JSON.

A call is changed only if its intent is plain: exactly one tool has that name without prefix and spelling, and
the arguments are one whole object in another coat (a string, a fence, raw newlines, Python's literals). A
value is changed only if it is text, its schema does not allow text, and the text is JSON of a type that it
allows; tools that convert their arguments themselves (`check`) are left out.
Arguments that were cut off stay as they are, and are refused. The changed call is what is stored, judged,
shown and sent back, so person and model read what ran.
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
_MAX_COATS = 3
_MAX_DEPTH = 8
# Possessive (`*+`): a model that loops must not make the search go back.
_FENCE = re.compile(r"```[\w-]*+(.*)```", re.DOTALL)
_REMAINDER = re.compile(r"(?:[\s}\])`;]|</?[\w|]+>)*+")
_TEXT_OR_WORD = re.compile(
    r""""(?:[^"\\]|\\.)*+(?:"|\Z)|'(?:[^'\\]|\\.)*+(?:'|\Z)|\b(?:true|false|null)\b""", re.DOTALL
)
_JSON = json.JSONDecoder(strict=False)


def mend_calls(message: Message, tools: Mapping[str, Tool]) -> Message:
    """Return the message with the calls that were plainly meant."""
    calls = tuple(_mend(call, tools) for call in message.tool_calls)
    if all(new is old for new, old in zip(calls, message.tool_calls, strict=True)):
        return message
    return msgspec.structs.replace(message, tool_calls=calls)


def _mend(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    name = call.name if call.name in tools else plain_name(call.name, tools)
    arguments = call.arguments if is_object(call.arguments or "{}") else plain_arguments(call.arguments)
    if name in tools and tools[name].check is None and len(arguments) <= _MAX_CHARS and is_object(arguments):
        values: dict[str, Any] = msgspec.json.decode(arguments)
        fitted = fit_values(values, tools[name].spec.parameters)
        arguments = arguments if fitted == values else msgspec.json.encode(fitted).decode()
    if (name, arguments) == (call.name, call.arguments):
        return call
    return msgspec.structs.replace(call, name=name, arguments=arguments)


def plain_name(name: str, tools: Collection[str]) -> str:
    """Return the only tool that a name means, or the name itself."""
    head = re.sub(r"<\|.*", "", name, flags=re.DOTALL).strip(" \t\r\n`'\"()")
    for candidate in (head, re.split(r"[.:/]", head)[-1]):
        key = _key(candidate)
        matches = [tool for tool in tools if _key(tool) == key]
        if key and len(matches) == 1:
            return matches[0]
    return name


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def plain_arguments(text: str) -> str:
    """Return the JSON object that a text plainly means, or the text itself."""
    if len(text) > _MAX_CHARS:
        return text
    value: Any = text
    for _ in range(_MAX_COATS):
        items = cast("list[Any]", value) if isinstance(value, list) else []
        value = items[0] if len(items) == 1 else cast("Any", value)
        if not isinstance(value, str):
            break
        value = _read(value)
    if value is None and (text.strip() in ("", "null", "None")):
        value = {}
    if not isinstance(value, dict):
        return text
    try:
        written = msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, RecursionError):
        return text
    return written if is_object(written) else text


def _read(text: str) -> Any:
    """Return the value in a text, or None if it is not one whole value."""
    text = text.strip()
    if fence := _FENCE.fullmatch(text):
        text = fence[1].strip()
    try:
        value, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return _read_literal(text)
    return value if _REMAINDER.fullmatch(text, end) else None


def _read_literal(text: str) -> Any:
    """Return the value of a Python literal, which also may have a comma before its end."""
    if len(text) > _MAX_LITERAL_CHARS or not text.startswith("{"):
        return None
    for words in (text, _as_python(text)):
        try:
            return ast.literal_eval(words)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _as_python(text: str) -> str:
    """Return JSON with Python's words for true, false and null outside of its texts."""
    words = {"true": "True", "false": "False", "null": "None"}
    return _TEXT_OR_WORD.sub(lambda match: words.get(match[0], match[0]), text)


def fit_values(values: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with the values that are JSON text where the schema wants another type."""
    return cast("dict[str, Any]", _fit(values, schema, schema, 0))


def _fit(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    shape = _resolve(schema, root)
    if not shape or depth > _MAX_DEPTH:
        return value
    if isinstance(value, str):
        value = _read_typed(value, _kinds(shape, root))
    if isinstance(value, dict) and isinstance(parts := shape.get("properties"), dict):
        fields, schemas = cast("dict[str, Any]", value), cast("dict[str, Any]", parts)
        return {name: _fit(inner, schemas.get(name), root, depth + 1) for name, inner in fields.items()}
    if isinstance(value, list) and "items" in shape:
        return [_fit(item, shape["items"], root, depth + 1) for item in cast("list[Any]", value)]
    return cast("Any", value)


def _read_typed(text: str, kinds: frozenset[str]) -> Any:
    """Return the value of JSON text if it has one of these types, or the text itself."""
    if not kinds or "string" in kinds or not kinds <= JSON_TYPES.keys():
        return text
    try:
        value: Any = msgspec.json.decode(text)
    except NOT_JSON:
        return text
    return value if any(is_json_type(kind, value) for kind in kinds) else text


def _kinds(shape: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema allows, or an empty set if it does not say."""
    if isinstance(kind := shape.get("type"), str):
        return frozenset((kind,))
    if isinstance(kind, list):
        return frozenset(map(str, cast("list[Any]", kind)))
    choices: Any = shape.get("anyOf") or shape.get("oneOf")
    if not isinstance(choices, list):
        return frozenset()
    shapes = [_resolve(choice, root) for choice in cast("list[Any]", choices)]
    names = [inner.get("type") for inner in shapes]
    return frozenset(map(str, names)) if all(isinstance(name, str) for name in names) else frozenset()


def _resolve(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the definition of the same document to which it refers; empty if it is neither."""
    shape: Any = schema
    if isinstance(schema, dict) and isinstance(path := cast("dict[str, Any]", schema).get("$ref"), str):
        parts = path.split("/")
        definitions: Any = root.get(parts[1]) if len(parts) == 3 and parts[0] == "#" else None
        shape = cast("dict[str, Any]", definitions).get(parts[2]) if isinstance(definitions, dict) else None
    return as_object(shape)
