"""Find out which part of the offered tools a server refused: one tool, a keyword of the schemas, a long
description, or the number of tools. Loaded after a refusal only. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from whet.contract.errors import BadRequest, ContextOverflow, ModelRefused, ProviderError
from whet.contract.texts import plural
from whet.providers.refusals import is_named, locate, read_positions
from whet.providers.tool_schemas import ToolCuts, keywords_of, plain_schema

_TOOLS = r"(?i)\b(?:tools|functions|function_declarations)\b"
_TOO_MANY = r"(?i)too (?:many|long|large)|at most|maximum|limit|exceed|more than|up to"
# A schema without these keywords would describe nothing.
_NEEDED = frozenset({"type", "properties", "items", "description", "required"})
# Keywords that a server may not be able to express in the grammar that it makes of the schemas.
_CONSTRAINTS = ("pattern", "format", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum")
_GRAMMAR = r"(?i)\bgrammar\b"
_UNNAMED = (
    r"(?i)\b(?:invalid|unsupported|bad|wrong|malformed)\b.{0,20}\b(?:parameter|schema|argument|function|tool)"
)
_EMPTY = r"(?i)properties\b.{0,20}\b(?:non-?empty|must not be empty|cannot be empty)"
_LENGTH = r"(?i)\bdescription\b.*?(?:max\w*|at most|up to|exceed\w*)\D{0,40}(\d{2,6})"


def read_cuts(failure: ProviderError, body: bytes, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts that avoid a refusal of the tools' number, their descriptions or a keyword in their
    schemas, and the notice for the person. Returns None if the refusal is about something else."""
    positions = read_positions(failure.detail)
    if type(failure) is not BadRequest or any(steps[0] != "tools" for steps in positions):
        return None
    tools = _read_tools(body)
    if change := _cut_empty(failure.detail, cuts) or _cut_descriptions(failure.detail, tools, cuts):
        return change
    keywords = _find_keywords(failure.detail, tools, cuts)
    if keywords:
        changed = msgspec.structs.replace(cuts, keywords=(*cuts.keywords, *keywords))
        words = ", ".join(keywords)
        return changed, f"the model's server refused {words} in the schemas of tools, so it is left out"
    max_tools = _find_limit(failure.detail, len(tools))
    if not max_tools or locate(failure, body).tool:
        return None
    left_out = plural(len(tools) - max_tools, "tool")
    notice = f"the model's server refused {plural(len(tools), 'tool')} as too many, so the last {left_out}"
    return msgspec.structs.replace(cuts, max_tools=max_tools), f"{notice} are left out"


def read_refused_tool(failure: ProviderError, body: bytes, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts that avoid the refusal of a tool, and the notice for the person, or None.

    The tool gets a plain schema, or is left out if its schema is plain already. If the refusal names no tool,
    all tools get plain schemas.
    """
    if not isinstance(failure, BadRequest | ContextOverflow | ModelRefused):
        return None
    tool = locate(failure, body).tool
    if not tool or tool in cuts.names:
        return _read_unnamed(failure, body, cuts)
    schemas = (fields.get("parameters") or fields.get("input_schema") for fields in _read_tools(body, tool))
    if tool not in cuts.plain and not cuts.all_plain and any(map(_is_reducible, schemas)):
        notice = f"the model's server refused the schema of the tool {tool}, so a plain one is sent"
        return msgspec.structs.replace(cuts, plain=(*cuts.plain, tool)), notice
    notice = f"the model's server refused the tool {tool}, so it is left out"
    return msgspec.structs.replace(cuts, names=(*cuts.names, tool)), notice


def _read_unnamed(failure: ProviderError, body: bytes, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts with plain schemas for all tools, and the notice for the person. Returns None if the
    refusal is not about a schema, names a part or a tool, or if all schemas are plain."""
    if type(failure) is not BadRequest or cuts.all_plain or not re.search(_UNNAMED, failure.detail):
        return None
    schemas = (tool.get("parameters") or tool.get("input_schema") for tool in _read_tools(body))
    if failure.part or failure.tool or not any(map(_is_reducible, schemas)):  # `locate` sets both
        return None
    notice = "the model's server refused something that it does not name, so plain schemas of tools are sent"
    return msgspec.structs.replace(cuts, all_plain=True), notice


def _is_reducible(schema: object) -> bool:
    return isinstance(schema, dict) and plain_schema(cast("dict[str, Any]", schema)) != schema


def _read_tools(body: bytes, name: str = "") -> list[dict[str, Any]]:
    """Return the tools of a request, or the one called `name`, each as the object with its schema."""
    request: object = msgspec.json.decode(body)
    tools = cast("dict[str, Any]", request).get("tools") if isinstance(request, dict) else None
    all_fields = [tool.get("function") or tool for tool in cast("list[dict[str, Any]]", tools or [])]
    return [fields for fields in all_fields if not name or fields.get("name") == name]


def _cut_empty(text: str, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts that avoid a refusal of schemas without arguments."""
    if cuts.empty or not re.search(_EMPTY, text):
        return None
    notice = "the model's server refused schemas without arguments, so those tools are sent without one"
    return msgspec.structs.replace(cuts, empty=True), notice


def _cut_descriptions(
    text: str, tools: Sequence[dict[str, Any]], cuts: ToolCuts
) -> tuple[ToolCuts, str] | None:
    """Return the cuts that avoid a refusal of long descriptions."""
    limit = re.search(_LENGTH, text)
    chars = int(limit[1]) if limit else 0
    if not chars or all(len(str(tool.get("description") or "")) <= chars for tool in tools):
        return None
    notice = (
        f"the model's server refused descriptions of tools over {plural(chars, 'character')}, so they end"
    )
    return msgspec.structs.replace(cuts, description_chars=chars), f"{notice} there"


def _find_keywords(text: str, tools: Sequence[dict[str, Any]], cuts: ToolCuts) -> list[str]:
    """Return the keyword that a refusal names or, if it is about a grammar, all constraints in the
    schemas."""
    schemas = [tool.get("parameters") or tool.get("input_schema") for tool in tools]
    keywords = keywords_of(schemas) - _NEEDED - set(cuts.keywords)
    named = next((word for word in sorted(keywords) if _is_keyword_named(text, word)), "")
    if named or not re.search(_GRAMMAR, text):
        return [named] if named else []
    return [word for word in _CONSTRAINTS if word in keywords]


def _is_keyword_named(text: str, keyword: str) -> bool:
    return is_named(text, keyword) or bool(re.search(rf"(?im)^{re.escape(keyword)} must\b", text))


def _find_limit(text: str, count: int) -> int:
    """Return how many of `count` tools the server accepts, or half of them if it names no number. Returns 0
    if the refusal is about something else."""
    is_grammar = bool(re.search(_GRAMMAR, text))  # the schemas together are too large for a grammar
    is_limit = bool(re.search(_TOOLS, text) and re.search(_TOO_MANY, text))
    if count < 2 or read_positions(text) or not (is_limit or is_grammar):
        return 0
    numbers = [int(digits) for digits in re.findall(r"\b\d{1,6}\b", text)]
    return max((number for number in numbers if 0 < number < count), default=count // 2)
