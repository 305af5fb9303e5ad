"""A session goes from one kind of model server to another and back: no request is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import pytest

from tests.agent.refusing_server import Body, Refusal, Rule, items_of, refusing, says
from tests.agent.rig import rig
from whet.contract.messages import ImagePart
from whet.contract.tools import ToolContext, ToolOutput
from whet.tools.signature import tool
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply


def rows_with_calls(body: Body) -> list[tuple[int, Body]]:
    return [(at, row) for at, row in enumerate(items_of(body)) if row.get("tool_calls")]


def fields_of(*allowed: str) -> Rule:
    """Refuse fields of messages that this vendor doesn't know."""
    texts = {"role", "content", "tool_calls", "tool_call_id", "name", *allowed}

    def rule(wire: str, body: Body) -> Refusal | None:
        for at, row in enumerate(items_of(body)):
            for name in row.keys() - texts:
                return says(f"Extra inputs are not permitted, field: 'messages[{at}].{name}'")
        return None

    return rule


def wants_short_ids(wire: str, body: Body) -> Refusal | None:
    for _, row in rows_with_calls(body):
        for call in row["tool_calls"]:
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                return says(
                    f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9.",
                    status=422,
                )
    return None


def wants_reasoning(wire: str, body: Body) -> Refusal | None:
    for at, row in rows_with_calls(body):
        if not row.get("reasoning_content"):
            return says(f"reasoning_content is missing in assistant tool call message at index {at}")
    return None


def wants_signatures(wire: str, body: Body) -> Refusal | None:
    """Gemini's: each call since the last message of the user has a signature."""
    rows = items_of(body)
    last = max(at for at, row in enumerate(rows) if row["role"] == "user")
    for at, row in rows_with_calls(body):
        if at > last and "extra_content" not in row["tool_calls"][0]:
            return says("Function call is missing a thought_signature in functionCall parts.")
    return None


def refuses_null(wire: str, body: Body) -> Refusal | None:
    for at, row in enumerate(items_of(body)):
        if "content" in row and row["content"] is None:
            return says(f"body.messages.{at}.content: Input should be a valid string")
    return None


class Kind(NamedTuple):
    """A kind of server: its name in the settings (empty: only its address is known), its wire format, its
    rules, the shape of its call ids, and the fields of its answers."""

    provider: str
    wire: str
    rules: tuple[Rule, ...]
    call_id: str
    extra: Mapping[str, Any] = MappingProxyType({})
    is_strict: bool = False


CHAT = "chat_completions"
KINDS = {
    "openai": Kind("openai", "responses", (), "call_{}" + "x" * 24, is_strict=True),
    "openai_chat": Kind("openai", CHAT, (fields_of(),), "call_" + "x" * 24),
    "anthropic": Kind("anthropic", "anthropic_messages", (), "toolu_{}" + "y" * 22, is_strict=True),
    "mistral": Kind("mistral", CHAT, (wants_short_ids, fields_of()), "aB3dE5gH{}"),
    "deepseek": Kind(
        "deepseek",
        CHAT,
        (wants_reasoning, fields_of("reasoning_content")),
        "call_00_{}" + "z" * 20,
        {"reasoning_content": "I look."},
    ),
    "gemini": Kind(
        "gemini",
        CHAT,
        (wants_signatures, fields_of()),
        "function-call-{}1234567890123456789",
        {"tool_calls": [{"index": 0, "extra_content": {"google": {"thought_signature": "SIG"}}}]},
    ),
    "openrouter": Kind(
        "openrouter",
        CHAT,
        (fields_of("reasoning_details"),),
        "toolu_bdrk_{}" + "w" * 20,
        {
            "reasoning": "I look.",
            "reasoning_details": [{"type": "reasoning.text", "text": "I look.", "signature": "S"}],
        },
    ),
    "groq": Kind("groq", CHAT, (fields_of(),), "fc_{}-aaaa-bbbb", {"reasoning": "I look."}),
    "fireworks": Kind(
        "fireworks",
        CHAT,
        (fields_of("reasoning_content"),),
        "functions.see:{}",
        {"reasoning_content": "I look."},
    ),
    "kimi": Kind("", CHAT, (wants_reasoning,), "functions.see:{}", {"reasoning_content": "I look."}),
    "vllm": Kind(
        "",
        CHAT,
        (refuses_null, fields_of("reasoning")),
        "chatcmpl-tool-{}" + "v" * 30,
        {"reasoning": "I look."},
    ),
    "claude_proxy": Kind("", "anthropic_messages", (), "toolu_{}_odd", is_strict=True),
}


@tool(toolset="x", effects={"read"})
async def see(ctx: ToolContext) -> ToolOutput:
    """See a picture."""
    return ToolOutput("a picture", images=(ImagePart("image/gif", "R0lGODlhAQABAAAAACw="),))


def plan_for(kind: Kind, numbers: count[int]) -> Any:
    """Two calls at once after each message of the user, then the answer."""

    def plan(request: PracticeRequest) -> ScriptedReply:
        if request.messages[-1].role == "tool" or "Images from" in request.last_user:
            return ScriptedReply("All done.", reasoning="I know it.")
        practice_calls = [
            PracticeCall(name, "{}", kind.call_id.replace("{}", str(next(numbers) % 10)))
            for name in ("see", "look")
        ]
        return ScriptedReply("", reasoning="I think.", tool_calls=tuple(practice_calls))

    return plan


async def switch(folder: Path, first: Kind, second: Kind) -> list[str]:
    """Return what the servers refused in a session of three turns: first, second, first again."""
    numbers = count()
    async with refusing(seed=1) as refusing_server, refusing(seed=1 if first is second else 2) as other:
        session_id = ""
        for kind, server in ((first, refusing_server), (second, other), (first, refusing_server)):
            server.rules, server.plan = list(kind.rules), plan_for(kind, numbers)
            server.is_strict, server.call_fields = kind.is_strict, dict(kind.extra)
            async with rig(
                folder,
                server=cast("Any", server),
                wire=kind.wire,
                session_id=session_id,
                more_tools=[see],
                provider_name=kind.provider,
            ) as r:
                end = await r.turn("go")
                refused = [text for each in (refusing_server, other) for _, text in each.refused]
                assert (end.reason, end.text) == ("answered", "All done."), (end.error, refused)
                session_id = r.session.id
        return refused


FAST = {"anthropic-claude_proxy", "openrouter-fireworks", "openai-mistral", "gemini-deepseek", "vllm-kimi"}
PAIRS = [
    pytest.param(kind, other, marks=() if f"{kind}-{other}" in FAST else pytest.mark.slow)
    for kind in KINDS
    for other in KINDS
]
LEARNED = {"kimi": 1, "vllm": 2}
"""How often a server of which only the address is known may refuse before its rules are known."""


@pytest.mark.fast_rows("anthropic-", "gemini-")
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_session_changes_its_server_and_back(tmp_path: Path, first: str, second: str) -> None:
    refused = asyncio.run(switch(tmp_path, KINDS[first], KINDS[second]))
    assert len(refused) <= LEARNED.get(first, 0) * 2 + LEARNED.get(second, 0), refused
