"""Turns an intent ("read this file") into a call of a tool that the request offers.

Argument names differ between agents; the tool's own schema decides which of the known names is used. If no
suitable tool is offered, the reply says so.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from whet_lab.practice.ask import Offer, PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply

_NAMES: dict[str, tuple[str, ...]] = {
    "command": ("command", "cmd", "code"),
    "path": ("path", "file_path", "file", "filename", "paths"),
    "content": ("content", "text", "file_text"),
    "old": ("old_string", "old_str", "old_text", "old", "search"),
    "new": ("new_string", "new_str", "new_text", "new", "replace"),
    "pattern": ("pattern", "query", "regex", "text"),
    "query": ("query", "text", "q"),
    "url": ("url", "uri"),
    "question": ("question", "text"),
    "task": ("task", "prompt", "goal", "description", "tasks"),
    "items": ("items", "todos"),
    "background": ("background",),
    "action": ("action",),
    "id": ("id", "process_id", "session_id"),
}
_BLANK: dict[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}


class ToolUse:
    """The tools of one request."""

    def __init__(self, request: PracticeRequest) -> None:
        self._offers = request.offers

    def has(self, name: str) -> bool:
        """Return whether the tool is offered."""
        return name in self._offers

    def use(self, tool: str, say: str = "", **intent: object) -> ScriptedReply:
        """Call `tool` with `intent` under its own argument names, or reply that the tool is missing."""
        offer = self._offers.get(tool)
        if offer is None:
            have = ", ".join(sorted(self._offers)) or "none"
            return ScriptedReply(
                f"I would need the tool `{tool}` for that; the tools on offer here are: {have}."
            )
        arguments = msgspec.json.encode(fill_arguments(offer, intent)).decode()
        return ScriptedReply(say, tool_calls=(PracticeCall(tool, arguments),))

    def shell(self, command: str, say: str = "") -> ScriptedReply:
        """Run a command."""
        return self.use("terminal", say, command=command)


def fill_arguments(offer: Offer, intent: dict[str, object]) -> dict[str, object]:
    """Return the arguments under the names of the tool's schema, and plain values for other required ones."""
    properties = offer.properties
    arguments: dict[str, object] = {}
    for meaning, value in intent.items():
        name = next((n for n in _NAMES[meaning] if n in properties), _NAMES[meaning][0])
        if properties.get(name, {}).get("type") == "array" and not isinstance(value, list):
            value = [value]
        arguments[name] = value
    required: list[str] = offer.parameters.get("required") or []
    for name in required:
        if name not in arguments:
            arguments[name] = plain_value(properties.get(name, {}), "")
    return arguments


def plain_value(schema: dict[str, Any], text: str) -> object:
    """Return a harmless value of the schema's type, or `text` if it is a string."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    return _BLANK[kind] if isinstance(kind, str) and kind in _BLANK else text


_INDEX_LINE = re.compile(r"^\W*([a-z0-9][a-z0-9-]*)\W*[:—–-]+ +(.+)$", re.M)


def list_skills(request: PracticeRequest) -> list[tuple[str, str]]:
    """Return the name and description in each line of the prompt that looks like one of a skill index."""
    return _INDEX_LINE.findall(request.system) if "skill_view" in request.offers else []


def find_unopened_skills(request: PracticeRequest, start: int, words: re.Pattern[str]) -> list[str]:
    """Return the skills whose name or description matches `words` and that were not opened since `start`."""
    opened = {
        call.arguments.get("name")
        for call in request.completed_calls
        if call.index > start and call.name == "skill_view"
    }
    return [
        name
        for name, description in list_skills(request)
        if words.search(f"{name} {description}") and name not in opened
    ]


def open_skill(name: str) -> PracticeCall:
    """Return the call that opens a skill."""
    return PracticeCall("skill_view", msgspec.json.encode({"name": name}).decode())
