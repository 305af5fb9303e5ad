"""What a server says its tools are, checked, and made fit for a model: names, descriptions, schemas.

A tool that can't be offered is left out with the reason. Descriptions are a stranger's words: hidden
characters are taken out, and a tool whose words read like orders to the assistant is left out unless the
settings allow it by its name. Hints (annotations) are kept as what they are: claims.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from whet.config.schema import McpServer
from whet.contract.tools import ToolSpec

LONGEST_NAME = 64
SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,29}(?<!_)")
"""A server's name; two underscores separate the parts of a tool's full name."""
_MOST_TOOLS = 256
_DESCRIPTION_CHARS = 1_024
_SCHEMA_CHARS = 32_768
_DEEPEST = 24
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad\U000e0000-\U000e0fff]"
)
_ORDERS = re.compile(
    r"ignore (?:all |any |the |your )*(?:previous|prior|above|earlier|other) (?:\w+ ){0,2}"
    r"(?:instruction|rule|prompt)"
    r"|(?:do not|don'?t|never|without) (?:ever )?(?:tell|telling|inform|informing|mention|mentioning|reveal"
    r"|notify|notifying|ask|asking) (?:\w+ ){0,2}(?:the )?(?:user|person|human|owner)\b"
    r"|<\s*/?\s*(?:system|important|instructions?|secret)\s*>|<\|[a-z_]+\|>"
    r"|before (?:using|calling|you (?:use|call)) (?:any|this|the) [^.\n]{0,60}(?:read|send|include|pass)\b"
    r"[^.\n]{0,80}(?:\.ssh|id_rsa|\.env\b|credential|api key|password|secret|config|history|conversation)",
    re.IGNORECASE,
)


class Hints(msgspec.Struct, frozen=True):
    """What a server claims of a tool; None where it claims nothing."""

    read_only: bool | None = None
    destructive: bool | None = None


class Offered(msgspec.Struct, frozen=True):
    """A tool as it is offered: `own_name` is the server's, `spec.name` the model's. `output_schema` is empty
    where the server promises nothing."""

    own_name: str
    spec: ToolSpec
    hints: Hints = Hints()
    output_schema: dict[str, Any] = {}


class LeftOut(msgspec.Struct, frozen=True):
    """A tool that is not offered, and why."""

    own_name: str
    reason: str


class Listing(msgspec.Struct, frozen=True):
    """A server's tools: those offered in its own order, those left out, and how many the settings deny."""

    offered: tuple[Offered, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    denied: int = 0


def full_name(server: str, tool: str) -> str:
    """Give the name that the model calls: letters, digits, _ and -, at most 64 of them."""
    name = f"mcp__{server}__" + re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if len(name) <= LONGEST_NAME:
        return name
    return name[: LONGEST_NAME - 9] + "_" + hashlib.sha256(tool.encode()).hexdigest()[:8]


def read_listing(server: str, settings: McpServer, tools: Sequence[object]) -> Listing:
    """Check what a server listed. Raises nothing, whatever it listed."""
    offered: dict[str, Offered] = {}
    left_out: list[LeftOut] = []
    denied = 0
    for raw in tools[:_MOST_TOOLS]:
        found = _read(server, settings, raw)
        if found is None:
            denied += 1
        elif isinstance(found, LeftOut):
            left_out.append(found)
        elif (taken := offered.get(found.spec.name)) is not None:
            both = f"its name {found.spec.name} is that of {taken.own_name!r} too"
            left_out.append(LeftOut(found.own_name, both))
        else:
            offered[found.spec.name] = found
    if len(tools) > _MOST_TOOLS:
        left_out.append(LeftOut("(more)", f"{len(tools)} tools are listed; {_MOST_TOOLS} are read"))
    return Listing(tuple(offered.values()), tuple(left_out), denied)


def is_wanted(settings: McpServer, tool: str) -> bool:
    """Whether the settings let the model have a tool; deny wins."""
    if any(fnmatch.fnmatchcase(tool, pattern) for pattern in settings.deny):
        return False
    return not settings.allow or any(fnmatch.fnmatchcase(tool, pattern) for pattern in settings.allow)


def _read(server: str, settings: McpServer, raw: object) -> Offered | LeftOut | None:
    fields = _fields(raw)
    name = fields.get("name")
    if not isinstance(name, str) or not name.strip():
        return LeftOut("(no name)", "it has no name")
    shown = _HIDDEN.sub("", name)[:80]
    if not is_wanted(settings, name):
        return None
    given = fields.get("inputSchema")
    schema = _schema(given)
    if isinstance(schema, str):
        return LeftOut(shown, schema)
    description = _described(fields)
    if name not in settings.allow and (found := _orders_in(description, schema)):
        return LeftOut(shown, f"its description reads like orders to the assistant: {found!r}")
    spec = ToolSpec(full_name(server, name), description, schema)
    return Offered(name, spec, _hints(fields.get("annotations")), _fields(fields.get("outputSchema")))


def _described(fields: dict[str, Any]) -> str:
    for key in ("description", "title"):
        if isinstance(text := fields.get(key), str) and text.strip():
            clean = _HIDDEN.sub("", text).strip()
            return clean if len(clean) <= _DESCRIPTION_CHARS else clean[:_DESCRIPTION_CHARS] + " [...]"
    return ""


def _orders_in(description: str, schema: dict[str, Any]) -> str:
    for text in (description, *_texts(schema)):
        if found := _ORDERS.search(text):
            return found[0][:80]
    return ""


def _texts(value: object) -> list[str]:
    """Give every text of a schema; its depth is known to be small."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).values()
        return [text for item in items for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in cast("list[object]", value) for text in _texts(item)]
    return []


def _schema(given: object) -> dict[str, Any] | str:
    """Give the schema as vendors take it, or why it can't be offered."""
    if given is None:
        return {"type": "object", "properties": {}}
    if not isinstance(given, dict):
        return f"its input schema is {type(given).__name__}, no object"
    schema = dict(cast("dict[str, Any]", given))
    if schema.setdefault("type", "object") != "object":
        return f"its input schema is of type {str(schema['type'])[:40]!r}, not object"
    if not isinstance(schema.setdefault("properties", {}), dict):
        return "the properties of its input schema are no object"
    if not isinstance(schema.get("required", []), list):
        return "what its input schema requires is no list"
    for key in ("$schema", "oneOf", "anyOf", "allOf"):
        schema.pop(key, None)  # vendors refuse the whole request for these at the top
    if _depth(schema) > _DEEPEST:
        return f"its input schema is nested more than {_DEEPEST} deep"
    size = len(msgspec.json.encode(schema))
    return (
        schema
        if size <= _SCHEMA_CHARS
        else f"its input schema has {size:,} bytes, more than {_SCHEMA_CHARS:,}"
    )


def _depth(value: object, level: int = 0) -> int:
    if level > _DEEPEST:
        return level
    if isinstance(value, dict):
        return max((_depth(v, level + 1) for v in cast("dict[str, object]", value).values()), default=level)
    if isinstance(value, list):
        return max((_depth(v, level + 1) for v in cast("list[object]", value)), default=level)
    return level


def _hints(given: object) -> Hints:
    fields = _fields(given)
    read_only, destructive = fields.get("readOnlyHint"), fields.get("destructiveHint")
    return Hints(
        read_only if isinstance(read_only, bool) else None,
        destructive if isinstance(destructive, bool) else None,
    )


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
