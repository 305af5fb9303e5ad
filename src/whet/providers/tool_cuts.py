"""Read from a server's refusal what it does not take of the tools on offer: one tool, a keyword of the
schemas, or so many tools. Loaded after a refusal only. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from whet.contract.errors import BadRequest, ContextOverflow, ModelRefused, ProviderError
from whet.contract.texts import plural
from whet.providers.refusals import is_named, locate, read_positions
from whet.providers.tool_schemas import ToolCuts, keywords_of

_TOOLS = r"(?i)\b(?:tools|functions|function_declarations)\b"
_TOO_MANY = r"(?i)too (?:many|long|large)|at most|maximum|limit|exceed|more than|up to"
# Without these a schema says nothing.
_NEEDED = frozenset({"type", "properties", "items", "description", "required"})


def read_cuts(failure: ProviderError, body: bytes, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts that avoid a refusal about the number of the tools or a keyword of their schemas, and
    the notice for the person; None if the refusal is about something else."""
    if type(failure) is not BadRequest:
        return None
    tools = _read_tools(body)
    keyword = _find_keyword(failure.detail, tools, cuts)
    if keyword:
        changed = msgspec.structs.replace(cuts, keywords=(*cuts.keywords, keyword))
        return changed, f"the model's server refused {keyword} in the schemas of tools, so it is left out"
    most = _find_limit(failure.detail, len(tools))
    if not most:
        return None
    left_out = plural(len(tools) - most, "tool")
    notice = f"the model's server refused {plural(len(tools), 'tool')} as too many, so the last {left_out}"
    return msgspec.structs.replace(cuts, most=most), f"{notice} are left out"


def read_refused_tool(failure: ProviderError, body: bytes, cuts: ToolCuts) -> tuple[ToolCuts, str] | None:
    """Return the cuts without the tool that a refusal names, and the notice for the person; None if the
    failure names none."""
    if not isinstance(failure, BadRequest | ContextOverflow | ModelRefused):
        return None
    tool = locate(failure, body).tool
    if not tool or tool in cuts.names:
        return None
    notice = f"the model's server refused the tool {tool}, so it is left out"
    return msgspec.structs.replace(cuts, names=(*cuts.names, tool)), notice


def _read_tools(body: bytes) -> list[dict[str, Any]]:
    """Return the tools of a request, each as the object that holds its schema."""
    request: object = msgspec.json.decode(body)
    tools = cast("dict[str, Any]", request).get("tools") if isinstance(request, dict) else None
    return [tool.get("function") or tool for tool in cast("list[dict[str, Any]]", tools or [])]


def _find_keyword(text: str, tools: Sequence[dict[str, Any]], cuts: ToolCuts) -> str:
    schemas = [tool.get("parameters") or tool.get("input_schema") for tool in tools]
    keywords = keywords_of(schemas) - _NEEDED - set(cuts.keywords)
    return next((keyword for keyword in sorted(keywords) if is_named(text, keyword)), "")


def _find_limit(text: str, count: int) -> int:
    """Return how many of so many tools a server takes, half of them if it does not name a number; 0 if the
    text is about something else."""
    if count < 2 or read_positions(text) or not re.search(_TOOLS, text) or not re.search(_TOO_MANY, text):
        return 0
    numbers = [int(digits) for digits in re.findall(r"\b\d{1,6}\b", text)]
    return max((number for number in numbers if 0 < number < count), default=count // 2)
