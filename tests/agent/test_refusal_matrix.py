"""Three wire formats times fourteen refusals: the turn goes on, and so does the session, without a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from msgspec.structs import replace

from tests.agent.refusing_server import (
    ANSWER,
    THOUGHTS,
    Body,
    Refusal,
    Rule,
    items_of,
    objects_in,
    refusing,
    says,
)
from tests.agent.rig import Rig, rig
from whet.context.repair import AS_TEXT, SHORTENED
from whet.contract.events import Notice, Retry
from whet.contract.messages import ImagePart, Message, VendorReplay
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.providers.backoff import Backoff
from whet.tools.signature import tool
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply

WIRES = ["chat_completions", "anthropic_messages", "responses"]
PICTURE = "R0lGODlhBADBAD"
AT_ONCE = Backoff(2, uniform=lambda low, high: 0.0)
TAIL = {"chat_completions": "]}", "anthropic_messages": "]}]}", "responses": "]}"}


class Case(NamedTuple):
    """What a server refuses, and what a session has that it refuses. `call`: the tool that the model uses."""

    rule: Callable[[], Rule]
    call: str = "look"
    thought: str = ""


def holding(text: str, message: str, *, status: int = 400, names: bool = True, **fields: Any) -> Rule:
    """Refuse a request with an object that holds a text as one of its values."""

    def rule(wire: str, body: Body) -> Refusal | None:
        for path, item in objects_in(body):
            if any(isinstance(value, str) and text in value for value in item.values()):
                return says(f"{path}: {message}" if names else message, status=status, **fields)
        return None

    return rule


def without_field(name: str) -> Rule:
    """Refuse a request with a field, as the vendors do."""

    def rule(wire: str, body: Body) -> Refusal | None:
        for path, item in objects_in(body):
            if name in item:
                return says(f"Unknown name \"{name}\" at '{path}': Cannot find field.")
        return None

    return rule


def rule_for_schemas(wire: str, body: Body) -> Refusal | None:
    """Refuse a keyword of JSON Schema, and name no tool."""
    if any("minLength" in item for _, item in objects_in(body.get("tools", []))):
        return says("Invalid tool schema: the keyword 'minLength' is not supported")
    return None


def call_ids(body: Body) -> list[tuple[str, str]]:
    keys = ("tool_call_id", "tool_use_id", "call_id")
    rows = [
        (path, item["id"])
        for path, item in objects_in(body)
        if item.get("type") in ("function", "tool_use") and "id" in item
    ]
    return [(path, item[key]) for path, item in objects_in(body) for key in keys if key in item] + rows


def rule_for_ids(wire: str, body: Body) -> Refusal | None:
    for path, call_id in call_ids(body):
        if not (len(call_id) == 9 and call_id.isalnum()):
            return says(f"{path}: tool_call_id {call_id} must be a-z, A-Z, 0-9, with a length of 9.")
    return None


def rule_for_names(wire: str, body: Body) -> Refusal | None:
    """Names in the history are held to a stricter rule than those of the tools on offer."""
    for path, item in objects_in(items_of(body)):
        name = item.get("name")
        if name == "look-again" and item.get("type") != "text":
            return says(f"messages{path}.name: must match ^[a-zA-Z_][a-zA-Z0-9_]*$")
    return None


def rule_for_roles(wire: str, body: Body) -> Refusal | None:
    """No results of tools, as in templates of models that know none."""
    kinds = ("tool", "tool_result", "function_call_output")
    for _, item in objects_in(items_of(body)):
        if item.get("role") in kinds or item.get("type") in kinds:
            return says("Only user and assistant roles are supported!", status=400)
    return None


def rule_for_empty(wire: str, body: Body) -> Refusal | None:
    for path, item in objects_in(items_of(body)):
        for key in ("content", "output"):
            if (
                key in item
                and item[key] in ("", [], None)
                and (item.get("role") == "tool" or "output" in item)
            ):
                return says(f"message {path}: content must not be empty")
        if item.get("type") == "tool_result" and not item.get("content"):
            return says(f"messages{path}: tool_result content must be non-empty")
    return None


def rule_for_length(wire: str, body: Body) -> Refusal | None:
    size = len(json.dumps(items_of(body)))
    if size > 12_000:
        return says(
            f"This model's maximum context length is 3000 tokens, you sent {size // 4}",
            code="context_length_exceeded",
        )
    return None


def rule_for_tool_count(wire: str, body: Body) -> Refusal | None:
    count = len(body.get("tools", []))
    if count > 5:
        return says(
            f"Invalid 'tools': array too long. Expected an array with maximum length 5, but got an array with"
            f" length {count} instead.",
            param="tools",
            code="array_above_max_length",
        )
    return None


def rule_for_tool_count_unsaid(wire: str, body: Body) -> Refusal | None:
    return says("Too many tools are defined.") if len(body.get("tools", [])) > 5 else None


def rule_for_calls(wire: str, body: Body) -> Refusal | None:
    """Something about the calls of the history, and nothing is named."""
    kinds = ("tool_use", "function_call")
    has_calls = any(
        "tool_calls" in item or item.get("type") in kinds for _, item in objects_in(items_of(body))
    )
    return (400, "Bad Request") if has_calls else None


def rule_for_turns(wire: str, body: Body) -> Refusal | None:
    """Turns alternate, as templates of local models want it: calls and results don't count."""
    last = ""
    for item in items_of(body):
        role = item.get("role", "")
        is_result = isinstance(item.get("content"), list) and item["content"][0].get("type") == "tool_result"
        if role not in ("user", "assistant") or item.get("tool_calls") or is_result:
            continue
        if role == last == "user":
            return says("Conversation roles must alternate user/assistant/user/assistant/...", status=500)
        last = role
    return None


def rule_for_fields(name: str) -> Rule:
    """Refuse a field inside of messages or tools, by its path."""

    def rule(wire: str, body: Body) -> Refusal | None:
        for path, item in objects_in(body):
            if name in item:
                return says(f"{path}.{name}: Extra inputs are not permitted")
        return None

    return rule


def rule_for_thinking(wire: str, body: Body) -> Refusal | None:
    """Thoughts of this kind are no longer taken, and the position is the message's."""
    for path, item in objects_in(body):
        if any(
            "SIG" in str(value)
            for key, value in item.items()
            if key in ("signature", "encrypted_content", "data", "reasoning_details")
        ):
            return says(f"{'.'.join(path.split('.')[:2])}: Expected `text`, found a thinking block")
    return None


LARGE = says("image exceeds 8000 pixels, got 9216")
CASES: dict[str, Case] = {
    "picture too big": Case(
        lambda: holding(PICTURE, "At least one of the image dimensions exceeds 8000 pixels"), "see"
    ),
    "picture of an unknown format": Case(
        lambda: holding(PICTURE, "Could not process image", names=False), "see"
    ),
    "picture incomplete": Case(
        lambda: holding(PICTURE, "cannot identify image file <_io.BytesIO>", names=False, status=500), "see"
    ),
    "image in tool result": Case(
        lambda: holding(PICTURE, "Input should be a valid string", status=422), "see"
    ),
    "document": Case(lambda: holding("%PDF-1.7", "The PDF specified is password protected."), "read_pdf"),
    "signature": Case(lambda: holding("SIG", "Invalid `signature` in `thinking` block"), thought="SIG"),
    "thinking block": Case(lambda: rule_for_thinking, thought="SIG"),
    "schema keyword, named": Case(lambda: without_field("minLength")),
    "schema keyword, no tool named": Case(lambda: rule_for_schemas),
    "ids": Case(lambda: rule_for_ids),
    "parameter": Case(lambda: without_field("stream_options")),
    "parameter of all": Case(lambda: without_field("cache_control")),
    "include": Case(lambda: without_field("include")),
    "role": Case(lambda: rule_for_roles),
    "turns": Case(lambda: rule_for_turns, "see"),
    "field of a tool": Case(lambda: rule_for_fields("strict")),
    "field of a picture": Case(lambda: rule_for_fields("detail"), "see"),
    "field of a result": Case(lambda: rule_for_fields("is_error"), "fail"),
    "empty": Case(lambda: rule_for_empty, "nothing"),
    "length": Case(lambda: rule_for_length, "long"),
    "tools too many": Case(lambda: rule_for_tool_count),
    "tools too many, unsaid": Case(lambda: rule_for_tool_count_unsaid),
    "name in the history": Case(lambda: rule_for_names, "look-again"),
    "bare 400": Case(lambda: rule_for_calls),
    "413": Case(lambda: holding(PICTURE, "<html>413</html>", status=413, names=False), "see"),
    "422": Case(lambda: holding(PICTURE, "unprocessable", status=422, names=False), "see"),
}


def tools_for_cases() -> list[Tool]:
    @tool(toolset="x", effects={"read"})
    async def see(ctx: ToolContext) -> ToolOutput:
        """See a picture."""
        return ToolOutput("a picture", images=(ImagePart("image/gif", PICTURE),))

    @tool(toolset="x", effects={"read"})
    async def read_pdf(ctx: ToolContext) -> str:
        """Read a document."""
        return "%PDF-1.7 ..."

    @tool(toolset="x", effects={"read"})
    async def nothing(ctx: ToolContext) -> str:
        """Return nothing."""
        return ""

    @tool(toolset="x", effects={"read"}, output_cap_chars=40_000)
    async def long(ctx: ToolContext) -> str:
        """Return much."""
        return "word " * 6_000

    return [see, read_pdf, nothing, long]


def with_keyword(tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools with one whose schema has a limit, and one with a hyphen in its name."""
    schema = {"type": "object", "properties": {"at": {"type": "string", "minLength": 1}}}
    limited = replace(tools[2], spec=replace(tools[2].spec, name="limited", parameters=schema))
    again = replace(tools[2], spec=replace(tools[2].spec, name="look-again"))
    return [*tools, limited, again]


def plan_for(case: Case) -> Callable[[PracticeRequest], ScriptedReply]:
    """One call of the case's tool, then the answer."""
    texts: list[str] = []

    def plan(request: PracticeRequest) -> ScriptedReply:
        if texts:
            return ANSWER
        texts.append(case.call)
        return ScriptedReply("I call.", tool_calls=(PracticeCall(case.call, "{}", "call_abcdefghijk"),))

    return plan


def lines_shown(r: Rig) -> list[str]:
    return [event.text for event in r.events if isinstance(event, Notice)] + [
        event.reason for event in r.events if isinstance(event, Retry)
    ]


def pairs() -> list[Any]:
    """Return each case with each wire format; in the fast run each case has one format."""
    return [
        pytest.param(name, wire, marks=() if at % 3 == number else pytest.mark.slow)
        for at, name in enumerate(CASES)
        for number, wire in enumerate(WIRES)
    ]


@pytest.mark.fast_rows(
    "413-",
    "bare 400",
    "ids-",
    "include-",
    "parameter-",
    "picture too big",
    "role-",
    "signature-",
    "length-",
    "schema keyword, named",
)
@pytest.mark.parametrize(("name", "wire"), pairs())
async def test_a_refusal_ends_neither_the_turn_nor_the_session(tmp_path: Path, name: str, wire: str) -> None:
    case = CASES[name]
    async with refusing([case.rule()], plan_for(case)) as server:

        def session(session_id: str = "") -> AbstractAsyncContextManager[Rig]:
            tools = with_keyword(tools_for_cases())
            practice = cast("Any", server)
            return rig(
                tmp_path, server=practice, wire=wire, session_id=session_id, more_tools=tools, backoff=AT_ONCE
            )

        async with session() as r:
            if case.thought:
                await keep_thought(r, wire)
            end = await r.turn("go")
            assert (end.reason, end.text) == ("answered", "All done."), end.error
            refused = len(server.refused)
            assert refused <= 8
            assert not refused or lines_shown(r)
            assert (await r.turn("more")).text == "All done."
            assert len(server.refused) == refused, server.refused[-1]
            session_id = r.session.id
        async with session(session_id) as r:
            assert (await r.turn("and more")).text == "All done."
            assert len(server.refused) - refused <= 2
        first, second, third = (body.decode() for body in server.bodies[-3:])
        assert second.startswith(first.removesuffix(TAIL[wire]))
        assert third.startswith(second.removesuffix(TAIL[wire]))


@pytest.mark.parametrize("name", ["length", "bare 400"])
async def test_the_transcript_keeps_what_was_shortened_or_sent_as_text(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    async with refusing([case.rule()], plan_for(case)) as server:
        practice, tools = cast("Any", server), tools_for_cases()
        async with rig(tmp_path, server=practice, more_tools=tools, backoff=AT_ONCE) as r:
            await r.turn("go")
            rows = r.database.read_now(
                lambda db: db.execute("SELECT content, extra FROM messages").fetchall()
            )
            assert {"length": "word " * 6_000, "bare 400": "call_abcdefghijk"}[name] in str(rows)
            sent = server.bodies[-1].decode()
            assert SHORTENED in sent if name == "length" else AS_TEXT in sent


async def keep_thought(r: Rig, wire: str) -> None:
    turn = await r.session.log.begin_turn(Message("user", "hi"))
    replay = VendorReplay(wire, THOUGHTS[wire])  # type: ignore[arg-type]
    message = Message("assistant", "Said.", reasoning="hm", replay=replay)
    await r.session.log.append_reply(turn, message, r.session.usage, "practice")
    await r.session.log.end_turn(turn, "answered", "")
