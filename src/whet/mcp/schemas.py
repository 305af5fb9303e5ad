"""Convert the input schema of an untrusted tool to one that every vendor accepts, or refuse it with a reason.

One schema that a vendor refuses would make every request of a session fail. Malformed limits are dropped,
because the server checks its input itself. A schema that leaves the tool's arguments unclear makes the tool
unusable. Hidden characters are removed from descriptions, but refused in names and values, where they are
never an accident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from whet.foreign_text import HIDDEN, clean
from whet.providers.tool_schemas import INNER, NAMED, SEVERAL, is_sound

DESCRIPTION_CHARS = 16_384
"""Longer descriptions are cut. No known server's description is as long."""
_LARGEST_BYTES = 32_768
_MAX_DEPTH = 24
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DROPPED = (
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$recursiveRef",
)
_AT_THE_TOP = ("oneOf", "anyOf", "allOf")
"""Vendors refuse the whole request for these in the outermost schema."""


class _Unusable(Exception):
    """The reason why a schema must not be sent to a vendor or shown to a person."""


def mend_schema(raw: object) -> dict[str, Any] | str:
    """Return the schema as vendors accept it, or the reason why it can't be offered."""
    if raw is None:
        return {"type": "object", "properties": {}}
    if not isinstance(raw, dict):
        return f"its input schema is {type(raw).__name__}, no object"
    schema = dict(cast("dict[str, Any]", raw))
    try:
        _check_top_level(schema)
        mended = _mend(schema, schema)
    except _Unusable as reason:
        return str(reason)
    for key in _AT_THE_TOP:
        mended.pop(key, None)
    return mended


def _check_top_level(schema: dict[str, Any]) -> None:
    if schema.setdefault("type", "object") != "object":
        raise _Unusable(f"its input schema is of type {str(schema['type'])[:40]!r}, not object")
    if not isinstance(schema.setdefault("properties", {}), dict):
        raise _Unusable("the properties of its input schema are not an object")
    if _depth(schema) > _MAX_DEPTH:
        raise _Unusable(f"its input schema is nested more than {_MAX_DEPTH} deep")
    size = len(msgspec.json.encode(schema))
    if size > _LARGEST_BYTES:
        raise _Unusable(f"its input schema has {size:,} bytes, more than {_LARGEST_BYTES:,}")
    for name in cast("dict[str, Any]", schema["properties"]):
        if not _PROPERTY.fullmatch(name):
            raise _Unusable(f"its argument {clean(name)[:40]!r} has a name that no model can give")


def texts_of(value: object) -> list[str]:
    """Return every text in a schema, including names. Its depth must have been checked."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return [*fields, *(text for inner in fields.values() for text in texts_of(inner))]
    if isinstance(value, list):
        return [text for inner in cast("list[object]", value) for text in texts_of(inner)]
    return []


def _mend(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    parts = cast("dict[str, object]", schema)
    for key, value in parts.items():
        if key in _DROPPED or (key != "type" and not is_sound(key, value)):
            continue
        if key == "items" and isinstance(value, list):  # a tuple, as in drafts before 2020-12
            result["prefixItems"] = [_mend_inner(item, root) for item in cast("list[object]", value)]
        elif key in INNER:
            result[key] = _mend_inner(value, root)
        elif key in NAMED:
            result[key] = _mend_named(key, value, root)
        elif key in SEVERAL:
            if isinstance(value, list) and value:
                result[key] = [_mend_inner(item, root) for item in cast("list[object]", value)]
        else:
            result[key] = _leaf(key, value, root)
    return result


def _mend_named(key: str, value: object, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unusable(f"the {key} in its input schema are not an object")
    parts = cast("dict[str, object]", value)
    _refuse_hidden(list(parts))
    return {name: _mend_inner(inner, root) for name, inner in parts.items()}


def _mend_inner(value: object, root: Mapping[str, Any]) -> dict[str, Any] | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _mend(cast("dict[str, Any]", value), root)
    raise _Unusable(f"a part of its input schema is {str(value)[:40]!r}, no schema")


def _leaf(key: str, value: object, root: Mapping[str, Any]) -> object:
    """Return the value of a keyword that contains no schema. Raises _Unusable."""
    if key in ("description", "title", "$comment"):
        return clean(str(value))[:DESCRIPTION_CHARS]
    _refuse_hidden([key, *texts_of(value)])
    if key == "type" and not is_sound(key, value):
        raise _Unusable(f"its input schema names the type {str(value)[:40]!r}, which there is none of")
    if key == "$ref" and not _leads_somewhere(value, root):
        raise _Unusable(f"its input schema refers to {str(value)[:80]!r}, which is not in it")
    return value


def _leads_somewhere(reference: object, root: Mapping[str, Any]) -> bool:
    """Return whether a reference points to a part of the same schema."""
    if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
        return False
    target: object = dict(root)
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = cast("dict[str, object]", target).get(name) if isinstance(target, dict) else None
    return isinstance(target, dict | bool)


def _refuse_hidden(texts: list[str]) -> None:
    for text in texts:
        if match := HIDDEN.search(text):
            raise _Unusable(f"its input schema holds the invisible character U+{ord(match[0]):04X}")


def _depth(value: object, level: int = 0) -> int:
    if level > _MAX_DEPTH:
        return level
    if isinstance(value, dict):
        return max((_depth(v, level + 1) for v in cast("dict[str, object]", value).values()), default=level)
    if isinstance(value, list):
        return max((_depth(v, level + 1) for v in cast("list[object]", value)), default=level)
    return level
