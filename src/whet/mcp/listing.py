"""Check a server's tool list and prepare it for a model: names, descriptions, schemas.

A tool that can't be offered is left out with a reason. Descriptions are untrusted text: hidden characters
are removed, and a tool whose text reads like orders to the assistant is left out unless the settings allow
it by name. Hints (annotations) are only the server's claims.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from whet.config.permission_settings import McpServerSettings
from whet.contract.texts import as_object
from whet.contract.tools import ToolSpec
from whet.foreign_text import clean, find_orders
from whet.mcp.reading import READERS
from whet.mcp.schemas import DESCRIPTION_CHARS, mend_schema, texts_of

MAX_NAME_CHARS = 64
SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,29}(?<!_)")
"""A server's name. Two underscores separate the parts of a tool's full name."""
_MAX_NAMED = 8
_MAX_TOOLS = 256
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
# The server's list that each tool of `READERS` reads.
_LISTS_OF_READERS = {"read_resource": "resources", "get_prompt": "prompts"}
CHARS_PER_TOKEN = 4
_FULL_LISTING_CHARS = 160_000


class Catalogue(msgspec.Struct, frozen=True):
    """A server's tools as it describes them, and `offers`: "resources" and "prompts", if it has any."""

    tools: list[Any] = []
    offers: tuple[str, ...] = ()


class Hints(msgspec.Struct, frozen=True):
    """A server's claims about a tool. A claim that it does not make is None."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class Offered(msgspec.Struct, frozen=True):
    """A tool as it is offered. `own_name` is the server's name for it, `spec.name` the model's.

    `output_schema` is empty if the server declares none. `reads`: set if this is a tool of our own that reads
    the server's "resources" or "prompts".
    """

    own_name: str
    spec: ToolSpec
    hints: Hints = Hints()
    output_schema: dict[str, Any] = {}
    reads: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A tool that is not offered, and the reason."""

    own_name: str
    reason: str


class Listing(msgspec.Struct, frozen=True):
    """The result of checking a server's tools: those offered, those left out, and how many the settings deny.

    `idle` are the patterns of the settings that match no tool, such as `deny: del_*`.
    """

    offered: tuple[Offered, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    denied: int = 0
    idle: tuple[str, ...] = ()


def name_tools(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the model's name for each of a server's tools: letters, digits, _ and -, at most 64 characters.

    A changed name ends with a digest of the tool's own name if it is too long or another tool would have the
    same name.
    """
    names = {tool: f"mcp__{server}__{_OTHER_CHARACTERS.sub('_', tool)}" for tool in tools}
    counts = Counter(names.values())
    return {
        tool: name
        if len(name) <= MAX_NAME_CHARS and (counts[name] == 1 or not _OTHER_CHARACTERS.search(tool))
        else name[: MAX_NAME_CHARS - 9] + "_" + hashlib.sha256(tool.encode()).hexdigest()[:8]
        for tool, name in names.items()
    }


def read_listing(server: str, settings: McpServerSettings, catalogue: Catalogue) -> Listing:
    """Check a server's list. Never raises."""
    offered: dict[str, Offered] = {}
    left_out: list[LeftOut] = []
    tools, remaining_chars = sort_tools(catalogue.tools), _FULL_LISTING_CHARS
    denied = 0
    readers = [name for name in READERS if _LISTS_OF_READERS[name] in catalogue.offers]
    # also the names of tools that are not offered, so that settings never change a tool's name
    own_names = [name for raw in tools if isinstance(name := as_object(raw).get("name"), str)]
    names = name_tools(server, [*readers, *own_names])
    for raw in tools:
        entry = _read_tool(names, settings, raw, is_full=len(offered) >= _MAX_TOOLS)
        if entry is None:
            denied += 1
        elif isinstance(entry, LeftOut):
            left_out.append(entry)
        elif (existing := offered.get(entry.spec.name)) is not None:
            reason = f"its name {entry.spec.name} is that of {existing.own_name!r} too"
            left_out.append(LeftOut(_display_name(entry.own_name), reason))
        elif (size := size_chars(entry.spec)) > remaining_chars:
            reason = "the server's tools fill what one server may take up; choose some with allow"
            left_out.append(LeftOut(_display_name(entry.own_name), reason))
        else:
            offered[entry.spec.name] = entry
            remaining_chars -= size
    for own_name in readers:
        spec = msgspec.structs.replace(READERS[own_name], name=names[own_name])
        if spec.name not in offered:
            if is_enabled(settings, own_name):
                offered[spec.name] = Offered(
                    own_name, spec, Hints(read_only=True), reads=_LISTS_OF_READERS[own_name]
                )
            else:
                denied += 1
    idle = tuple(
        f"{kind} {pattern}"
        for kind, patterns in (("allow", settings.allow), ("deny", settings.deny))
        for pattern in patterns
        if names and not any(fnmatch.fnmatchcase(own_name, pattern) for own_name in names)
    )
    return Listing(tuple(offered.values()), tuple(left_out), denied, idle)


def describe_idle(server: str, listing: Listing) -> str:
    """Return the line for the person about patterns in a server's settings that match no tool."""
    names = ", ".join(tool.own_name for tool in listing.offered[:_MAX_NAMED]) or "none"
    patterns = ", ".join(listing.idle)
    return f"mcp.servers.{server}: {patterns} names no tool, so it holds nothing (offered are: {names})"


def sort_tools(tools: list[Any]) -> list[Any]:
    """Return a server's tools sorted by name. Many servers list them in another order at each start, which
    would invalidate the prompt cache."""
    return sorted(tools, key=lambda raw: str(as_object(raw).get("name")))


def content_of(offered: Offered) -> str:
    """Return a tool's hints, description and schema as lines, to compare and to show."""
    schema = msgspec.json.format(msgspec.json.encode(offered.spec.parameters, order="sorted"), indent=1)
    claims = f"read only: {offered.hints.read_only}", f"destructive: {offered.hints.destructive}"
    return "\n".join([*claims, f"description: {offered.spec.description}", schema.decode()])


def size_chars(spec: ToolSpec) -> int:
    """Return the size of a tool in a prompt, in characters."""
    return len(msgspec.json.encode(spec))


def is_enabled(settings: McpServerSettings, tool: str) -> bool:
    """Return whether the settings allow a tool. Deny patterns take precedence."""
    if any(fnmatch.fnmatchcase(tool, pattern) for pattern in settings.deny):
        return False
    return not settings.allow or any(fnmatch.fnmatchcase(tool, pattern) for pattern in settings.allow)


def _read_tool(
    names: Mapping[str, str], settings: McpServerSettings, raw: object, *, is_full: bool
) -> Offered | LeftOut | None:
    """Check one tool. Returns it as it is offered, or why it is left out, or None if the settings deny it.
    `is_full`: the server already has as many tools as it may."""
    fields = as_object(raw)
    name = fields.get("name")
    if not isinstance(name, str) or not name.strip():
        return LeftOut("(no name)", "it has no name")
    if not is_enabled(settings, name):
        return None
    if is_full:
        return LeftOut(
            _display_name(name), f"{_MAX_TOOLS} of its tools are offered; choose others with allow"
        )
    if as_object(fields.get("execution")).get("taskSupport") == "required":
        return LeftOut(_display_name(name), "it runs only as a task, which this host does not start")
    schema = mend_schema(fields.get("inputSchema"))
    if isinstance(schema, str):
        return LeftOut(_display_name(name), schema)
    description = _description(fields)
    all_text = "\n".join((name, description, *texts_of(schema)))
    if name not in settings.allow and (order := find_orders(all_text)):
        return LeftOut(_display_name(name), f"its description reads like orders to the assistant: {order!r}")
    spec = ToolSpec(names[name], description, schema)
    return Offered(name, spec, _read_hints(fields.get("annotations")), as_object(fields.get("outputSchema")))


def _display_name(name: str) -> str:
    return " ".join(clean(name).split())[:80]


def _description(fields: dict[str, Any]) -> str:
    for key in ("description", "title"):
        if isinstance(text := fields.get(key), str) and (words := clean(text).strip()):
            return words if len(words) <= DESCRIPTION_CHARS else words[:DESCRIPTION_CHARS] + " [...]"
    return ""


def _read_hints(annotations: object) -> Hints:
    fields = as_object(annotations)
    claims = (fields.get(name) for name in ("readOnlyHint", "destructiveHint", "openWorldHint"))
    return Hints(*(claim if isinstance(claim, bool) else None for claim in claims))
