"""Whet's memory and skills as MCP resources, for hosts whose person chooses what their model reads.

They are the owner's, secrets masked; reading a skill leaves a receipt as every load does. It does not know
how calls arrive.
"""

from __future__ import annotations

import re
from typing import Any

from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.log import mask
from whet.memory.desk import LearningService
from whet.rpc import RESOURCE_NOT_FOUND, BadCall

_MARKDOWN = "text/markdown"
_ABOUT = {"memory": "What Whet remembers of the work.", "user": "What Whet remembers of its owner."}
_URI = re.compile(r"whet://(?:memory/(?P<notes>memory|user)|skills/(?P<skill>[^/]+)(?:/(?P<file>.+))?)")


async def listed(desk: LearningService) -> dict[str, Any]:
    """Give the answer to resources/list: both notes files and each usable skill."""
    rows = [
        {"uri": f"whet://memory/{name}", "name": name, "description": about, "mimeType": _MARKDOWN}
        for name, about in _ABOUT.items()
    ]
    rows += [
        {
            "uri": f"whet://skills/{skill.name}",
            "name": skill.name,
            "description": mask(skill.description),
            "mimeType": _MARKDOWN,
        }
        for skill in await desk.skills()
        if not skill.problem
    ]
    return {"resources": rows}


async def read(desk: LearningService, uri: object) -> dict[str, Any]:
    """Give the answer to resources/read. Raises BadCall."""
    found = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        raise BadCall(
            RESOURCE_NOT_FOUND, f"there is no resource {str(uri)[:200]!r}; resources/list names all"
        )
    text = await (_notes(desk, found["notes"]) if found["notes"] else _skill(desk, found))
    return {"contents": [{"uri": uri, "mimeType": _MARKDOWN, "text": mask(text)}]}


async def _notes(desk: LearningService, target: str) -> str:
    return next(one.text for one in await desk.notes() if one.target == target)


async def _skill(desk: LearningService, found: re.Match[str]) -> str:
    origin = Origin("foreground", platform="mcp", tool_name="skill_view")
    try:
        outcome = await desk.skill_view(found["skill"], found["file"] or "", origin, "mcp")
    except WhetError as error:
        raise BadCall(RESOURCE_NOT_FOUND, mask(error.message)) from error
    if not outcome.ok:
        raise BadCall(RESOURCE_NOT_FOUND, mask(outcome.text))
    return outcome.text
