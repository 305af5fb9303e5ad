"""Answer MCP requests for resources (the owner's memory and skills) and prompts (the skills).

Secrets are masked. A skill that is read is recorded as loaded. This module does not know how calls arrive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.log import mask
from whet.memory.service import LearningService
from whet.rpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, BadCall
from whet.tools.toolsets.skills import SKILL_VIEW

_MARKDOWN = "text/markdown"
_ABOUT = {"memory": "What Whet remembers of the work.", "user": "What Whet remembers of its owner."}
_URI = re.compile(r"whet://(?:memory/(?P<notes>memory|user)|skills/(?P<skill>[^/]+)(?:/(?P<file>.+))?)")


async def list_resources(learning: LearningService) -> dict[str, Any]:
    """Return the answer to resources/list: both notes files and each usable skill."""
    rows = [
        {"uri": f"whet://memory/{name}", "name": name, "description": description, "mimeType": _MARKDOWN}
        for name, description in _ABOUT.items()
    ]
    rows += [
        {
            "uri": f"whet://skills/{skill.name}",
            "name": skill.name,
            "description": mask(skill.description),
            "mimeType": _MARKDOWN,
        }
        for skill in await learning.skills.list_infos()
        if not skill.problem
    ]
    return {"resources": rows}


async def list_prompts(learning: LearningService) -> dict[str, Any]:
    """Return the answer to prompts/list: each usable skill, with an argument for the task."""
    task = {"name": "task", "description": "What to do with it.", "required": False}
    rows = [
        {"name": skill.name, "description": mask(skill.description), "arguments": [task]}
        for skill in await learning.skills.list_infos()
        if not skill.problem
    ]
    return {"prompts": rows}


async def get_prompt(learning: LearningService, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to prompts/get: the skill's text as a user message. Raises BadCall."""
    arguments: object = params.get("arguments") or {}
    task: object = cast("dict[str, object]", arguments).get("task", "") if isinstance(arguments, dict) else ""
    text = mask(await _view_skill(learning, str(params.get("name")), "", INVALID_PARAMS))
    if isinstance(task, str) and task.strip():
        text = f"{text}\n\nTask: {task.strip()}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


async def read_resource(learning: LearningService, uri: object) -> dict[str, Any]:
    """Return the answer to resources/read. Raises BadCall."""
    match = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if match is None:
        raise BadCall(
            RESOURCE_NOT_FOUND, f"there is no resource {str(uri)[:200]!r}; resources/list names all"
        )
    text = await (
        _read_notes(learning, match["notes"])
        if match["notes"]
        else _view_skill(learning, match["skill"], match["file"] or "", RESOURCE_NOT_FOUND)
    )
    return {"contents": [{"uri": uri, "mimeType": _MARKDOWN, "text": mask(text)}]}


async def _read_notes(learning: LearningService, target: str) -> str:
    reader = learning.reader
    return next(reader.shorten(file) for file in await reader.read_notes() if file.target == target)


async def _view_skill(learning: LearningService, skill: str, file: str, code: int) -> str:
    origin = Origin("foreground", platform="mcp", tool_name=SKILL_VIEW)
    try:
        outcome = await learning.skills.view(skill, file, origin, "mcp")
    except WhetError as error:
        raise BadCall(code, mask(error.message)) from error
    if not outcome.ok:
        raise BadCall(code, mask(outcome.text))
    return outcome.text
