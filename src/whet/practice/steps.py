"""The model `practice-steps-N`: one trivial tool call at a time until there were N results, for benchmarks.

It counts the results since the last user message, so that it needs no memory of its own. A scripted
stand-in, not a language model.
"""

from __future__ import annotations

import re

import msgspec

from whet.practice.ask import Json, Offer, PracticeCall, PracticeRequest
from whet.practice.hands import plain_value
from whet.practice.script import ScriptedReply

_PREFERRED = ("noop", "echo", "read_file", "search_files", "todo", "terminal")
_FILE = re.compile(r"[\w./-]+\.\w{1,6}\b")


def take_step(ask: PracticeRequest, steps: int) -> ScriptedReply:
    """Call a trivial tool, or say that the steps are done."""
    taken = 0
    for message in reversed(ask.heard):
        if message.role == "user":
            break
        taken += message.role == "tool"
    if taken >= steps:
        return ScriptedReply(f"Done: {taken} tool results. (A scripted stand-in, not a language model.)")
    offer = next((ask.offers[name] for name in _PREFERRED if name in ask.offers), None)
    offer = offer or next(iter(ask.offers.values()), None)
    if offer is None:
        return ScriptedReply("There is no tool to call. (A scripted stand-in, not a language model.)")
    required: list[str] = offer.parameters.get("required") or []
    arguments = {name: _value(name, offer, ask, taken + 1) for name in required}
    return ScriptedReply(tool_calls=(PracticeCall(offer.name, msgspec.json.encode(arguments).decode()),))


def _value(name: str, offer: Offer, ask: PracticeRequest, step: int) -> object:
    schema: Json = offer.properties.get(name, {})
    if "path" in name or "file" in name:
        found = _FILE.search(ask.last_user)
        return plain_value(schema, found[0] if found else "README.md")
    return plain_value(schema, "true" if name == "command" else f"step {step}")
