"""The model `practice-steps-N`: one trivial tool call at a time until there were N results, for benchmarks.

It counts the results since the last user message, so that it needs no memory of its own.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from whet.practice.ask import Ask, Call, Json, Offer
from whet.practice.script import Reply

_PREFERRED = ("noop", "echo", "read_file", "search_files", "todo", "terminal")
_FILE = re.compile(r"[\w./-]+\.\w{1,6}\b")
_BLANK: dict[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}


def take_step(ask: Ask, steps: int) -> Reply:
    """Call a trivial tool, or say that the steps are done."""
    taken = 0
    for message in reversed(ask.heard):
        if message.role == "user":
            break
        taken += message.role == "tool"
    if taken >= steps:
        return Reply(f"Done: {taken} tool results. (A scripted stand-in, not a language model.)")
    offer = next((ask.offers[name] for name in _PREFERRED if name in ask.offers), None)
    offer = offer or next(iter(ask.offers.values()), None)
    if offer is None:
        return Reply("There is no tool to call. (A scripted stand-in, not a language model.)")
    arguments = _arguments(offer, ask, taken + 1)
    return Reply(tool_calls=(Call(offer.name, msgspec.json.encode(arguments).decode()),))


def _arguments(offer: Offer, ask: Ask, step: int) -> Json:
    required: list[str] = offer.parameters.get("required") or []
    return {name: _value(name, offer.properties.get(name, {}), ask, step) for name in required}


def _value(name: str, schema: Json, ask: Ask, step: int) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _BLANK:
        return _BLANK[kind]
    if "path" in name or "file" in name:
        found = _FILE.search(ask.last_user)
        return found[0] if found else "README.md"
    return "true" if name == "command" else f"step {step}"
