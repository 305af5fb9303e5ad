"""Find the part of a request that a server's refusal points to.

Vendors word their refusals in their own ways, but most name a position: `messages.3.content.1`,
`input[2].content[0].image_url`, `["body", "messages", 3, "content"]`, a `param` beside the message. The
position is looked up in the bytes that were sent, so this module needs neither a vendor's words nor a codec's
layout. Loaded after a failure only. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from whet.contract.errors import ProviderError, UnknownModel

_MAX_DEPTH = 12
_JOINED = re.compile(r"\s*(?:->|,)\s*")
_NOT_PATH = re.compile(r"\W+")
_POSITION = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*\.\d+(?:\.\w+)*")
_QUOTED = re.compile(r"[\"'`\[]([\w-]{2,64})[\"'`\]]")

# The values of the request that pydantic repeats in its text, without the errors after them.
_ECHO = re.compile(r"(?m)([\"'])input\1: ?.*?(?=[{,] ?([\"'])loc\2:|$)|\binput_value=.*?(?=, input_type=|$)")


def locate(error: ProviderError, body: bytes) -> ProviderError:
    """Set `part` or `tool` of a refusal to the part or tool of the request's `body` that it names. Returns
    the error."""
    if isinstance(error, UnknownModel):
        return error
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return error
    if not isinstance(request, dict):
        return error
    sent = cast("dict[str, Any]", request)
    for steps in read_positions(error.detail):
        if steps[0] == "tools":
            error.tool = error.tool or _tool_at(sent, steps)
        elif not error.part and (part := _part_at(sent, steps)) is not None:
            error.part = msgspec.json.encode(part).decode()
    if not error.part and not error.tool:
        names = _tool_names(sent)
        error.tool = next((name for name in _QUOTED.findall(error.detail) if name in names), "")
    return error


def is_named(text: str, name: str) -> bool:
    """Return whether a text names a field. The words of `max_tokens` may be joined in any way; a name of one
    word counts only in quotes, after a colon or as a part of a path."""
    if "_" in name:
        words = "[_ ]?".join(map(re.escape, name.split("_")))
        return bool(re.search(rf"(?i)(?<![A-Za-z0-9_]){words}(?![A-Za-z0-9_])", text))
    return bool(re.search(rf"(?m)(?:[\"'`./]|: |^){re.escape(name)}(?:[\"'`.:\[]|$)", text))


def drop_echo(text: str) -> str:
    """Return a refusal's text without the values of the request that a validation error repeats."""
    return _ECHO.sub("", text)


def texts_in(value: object, depth: int = 0) -> list[str]:
    """Return every text in an error object. A list of keys and indexes becomes one dotted position. The
    values of the request that a validation error repeats are left out."""
    if isinstance(value, str):
        return [value]
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, object]", value)
        is_echo = "loc" in inner
        return [
            text
            for key, item in inner.items()
            if not (is_echo and key == "input")
            for text in texts_in(item, depth + 1)
        ]
    if isinstance(value, Sequence):
        items = cast("Sequence[object]", value)
        if items and all(isinstance(item, str | int) for item in items):
            return [".".join(map(str, items))]
        return [text for item in items for text in texts_in(item, depth + 1)]
    return []


def read_positions(detail: str) -> list[list[str]]:
    """Return the positions in a text, each as its keys and indexes, beginning with messages, input or
    tools."""
    positions: list[list[str]] = []
    for word in _JOINED.sub(".", detail).split():
        for match in _POSITION.finditer(_NOT_PATH.sub(".", word).strip(".")):
            steps = match[0].split(".")
            starts = [at for at, step in enumerate(steps) if step in ("messages", "input", "tools")]
            if starts and len(steps) > starts[0] + 1:
                positions.append(steps[starts[0] :])
    return positions


def _part_at(request: dict[str, Any], steps: Sequence[str]) -> dict[str, Any] | None:
    """Return the innermost object on the path to a position, or None if the path leads to no object."""
    value: Any = request
    innermost: dict[str, Any] | None = None
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = cast("dict[str, Any]", value)[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(step)]
        else:
            break
        if isinstance(value, dict):
            innermost = cast("dict[str, Any]", value)
    return innermost


def _tool_at(request: dict[str, Any], steps: Sequence[str]) -> str:
    """Return the name of the tool at a position such as tools.3.function or, for Gemini,
    tools.0.function_declarations.3, or an empty string."""
    tools = request.get("tools")
    if not isinstance(tools, list) or not tools or not steps[1].isdecimal():
        return ""
    declared = cast("list[dict[str, Any]]", tools)
    index = int(steps[1])
    if len(steps) > 3 and steps[2] not in declared[0] and steps[3].isdecimal():
        index = int(steps[3])
    return _name_of(declared[index]) if index < len(declared) else ""


def _tool_names(request: dict[str, Any]) -> set[str]:
    tools = request.get("tools")
    return (
        {_name_of(tool) for tool in cast("list[dict[str, Any]]", tools)} if isinstance(tools, list) else set()
    )


def _name_of(tool: dict[str, Any]) -> str:
    function = cast("dict[str, Any]", tool.get("function") or tool)
    return str(function.get("name") or "")
