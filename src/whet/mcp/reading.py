"""Read a server's resources and prompts with two tools of our own, which pass the gate like the server's
tools. Called without a name, each lists its items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from whet.contract.errors import BadInput, ToolError
from whet.contract.texts import as_object
from whet.contract.tools import ToolSpec
from whet.foreign_text import clean

_MAX_ROWS = 200
_WORDS_CHARS = 200
_TEXT: dict[str, Any] = {"type": "string"}
READERS = {
    "read_resource": ToolSpec(
        "read_resource",
        "Read a resource (file, record, page) of this server. Without uri: list them, and the templates of"
        " their addresses.",
        {"type": "object", "properties": {"uri": _TEXT}},
    ),
    "get_prompt": ToolSpec(
        "get_prompt",
        "Get a prompt that this server keeps, when the person asks for it. Without name: list them with their"
        " arguments.",
        {
            "type": "object",
            "properties": {"name": _TEXT, "arguments": {"type": "object", "additionalProperties": _TEXT}},
        },
    ),
}
"""The tools, by their name on every server."""
LISTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "resources": (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
    "prompts": (("prompts/list", "prompts"),),
}
"""The methods that list resources and prompts, and the key of the list in each answer."""


class ServerCalls(Protocol):
    """Sends calls to a server."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method. Raises ToolError."""
        ...

    async def list_all(self, method: str, key: str) -> list[object]:
        """Return all pages of a list. Raises ToolError."""
        ...


async def run_reader(server: ServerCalls, reader: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run one of READERS and return a result in the form of tools/call. Raises BadInput, ToolError."""
    return await _RUN[reader](server, arguments)


async def _resource(server: ServerCalls, arguments: Mapping[str, Any]) -> dict[str, Any]:
    uri = _text(arguments, "uri")
    if not uri:
        return _lines([_resource_row(row) for row in await _both_lists(server)], "there are no resources")
    result = await server.ask("resources/read", {"uri": uri})
    contents: object = result.get("contents")
    parts = cast("list[object]", contents) if isinstance(contents, list) else []
    return {"content": [{"type": "resource", "resource": part} for part in parts]}


async def _both_lists(server: ServerCalls) -> list[object]:
    direct, templates = LISTS["resources"]
    rows = await server.list_all(*direct)
    try:
        return rows + await server.list_all(*templates)
    except ToolError:
        return rows  # most servers without templates answer with an error


async def _prompt(server: ServerCalls, arguments: Mapping[str, Any]) -> dict[str, Any]:
    name = _text(arguments, "name")
    if not name:
        rows = [_prompt_row(row) for row in await server.list_all(*LISTS["prompts"][0])]
        return _lines(rows, "there are no prompts")
    prompt_arguments: object = arguments.get("arguments") or {}
    if not isinstance(prompt_arguments, dict):
        raise BadInput("arguments must be an object of texts")
    filled = {key: str(value) for key, value in cast("dict[str, object]", prompt_arguments).items()}
    result = await server.ask("prompts/get", {"name": name, "arguments": filled})
    messages: object = result.get("messages")
    content: list[object] = []
    for message in cast("list[object]", messages) if isinstance(messages, list) else []:
        fields = as_object(message)
        body: object = fields.get("content")
        content.append({"type": "text", "text": f"[{_words(fields, 'role') or 'user'}]"})
        content += cast("list[object]", body) if isinstance(body, list) else [body]
    return {"content": content}


_RUN: Mapping[str, Callable[[ServerCalls, Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
    "read_resource": _resource,
    "get_prompt": _prompt,
}


def _resource_row(row: object) -> str:
    fields = as_object(row)
    address = _words(fields, "uri") or _words(fields, "uriTemplate")
    details = [_words(fields, key) for key in ("name", "mimeType", "description")]
    return f"{address}  {', '.join(part for part in details if part)}".rstrip()


def _prompt_row(row: object) -> str:
    fields = as_object(row)
    argument_rows: object = fields.get("arguments")
    names: list[str] = []
    for argument_row in cast("list[object]", argument_rows)[:20] if isinstance(argument_rows, list) else ():
        argument = as_object(argument_row)
        names.append(_words(argument, "name") + ("" if argument.get("required") is True else "?"))
    return f"{_words(fields, 'name')}({', '.join(names)})  {_words(fields, 'description')}".rstrip()


def _lines(rows: list[str], nothing: str) -> dict[str, Any]:
    more = [f"[... {len(rows) - _MAX_ROWS} more not shown]"] if len(rows) > _MAX_ROWS else []
    text = "\n".join([*rows[:_MAX_ROWS], *more]) or nothing
    return {"content": [{"type": "text", "text": text}]}


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name) or ""
    if not isinstance(value, str):
        raise BadInput(f"{name} must be text")
    return value


def _words(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return " ".join(clean(value).split())[:_WORDS_CHARS] if isinstance(value, str) else ""
