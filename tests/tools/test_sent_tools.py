"""What every request says of the tools: as little as a model needs, and nothing that a call must not give."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.tools.running import context, find_tool
from whet.context.prompt import system_prompt
from whet.contract.tools import ToolSpec
from whet.lanes import ToolPool
from whet.providers.wire import sent_schema
from whet.tools.signature import make_tool
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.skills import WarmTools
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools

CODING_TOKENS = 900


def sent(tool: ToolSpec) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": sent_schema(tool)}
    return msgspec.json.encode({"type": "function", "function": function})


def test_files_search_and_shell_fit_into_900_tokens_with_the_prompt() -> None:
    pool = ToolPool(1)
    tools = [*FileTools(pool), *ShellTools(SharedProcesses())]
    prompt = system_prompt(Path("/tmp/a-workspace-of-some-length"), ["file", "terminal"])
    tokens = (sum(len(sent(tool.spec)) for tool in tools) + len(prompt) + 200) / 4
    assert len(tools) == 6 and tokens <= CODING_TOKENS
    pool.close()


def test_a_schema_is_sent_without_what_tells_a_model_nothing() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    free = {"type": "object", "additionalProperties": False}
    named = {"additionalProperties": {"type": "boolean"}, "list": {"type": "array", "items": inner}}
    either = {"anyOf": [inner, {"type": "string"}]}
    schema = {"type": "object", "properties": {**named, "free": free, "either": either}}
    whole = {**schema, "additionalProperties": False, "required": ["list"]}
    spec = ToolSpec("t", "Do it.", whole)
    listed = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}
    assert sent_schema(spec) == {
        "type": "object",
        "properties": {
            **named,
            "list": listed,
            "free": free,
            "either": {"anyOf": [listed["items"], {"type": "string"}]},
        },
        "required": ["list"],
    }
    assert spec.parameters == whole, "what the program itself checks by stays"
    assert sent_schema(ToolSpec("t", "", {"type": "object", "additionalProperties": {"type": "string"}})) == {
        "type": "object",
        "properties": {},
        "additionalProperties": {"type": "string"},
    }


@pytest.mark.parametrize("name", ["min_messages", "max_sessions", "source_filter", "tags"])
def test_arguments_that_no_request_describes_are_taken_all_the_same(name: str) -> None:
    given: list[object] = []

    async def act(ctx: object, request: object) -> dict[str, object]:
        given.append(request)
        return {"text": "done"}

    tool = find_tool(WarmTools(act), "warm_session")
    assert name in tool.spec.parameters["properties"] and name not in sent_schema(tool.spec)["properties"]
    value: dict[str, object] = {"min_messages": 3, "max_sessions": 4, "source_filter": "cli", "tags": ["a"]}
    asyncio.run(tool.run(context(), {"action": "build", "name": "n", name: value[name]}))
    asyncio.run(tool.run(context(), {"action": "build", "name": "n"}))
    assert given[0] != given[1]


def test_a_tool_of_ones_own_is_sent_whole() -> None:
    async def sum_of(a: int, b: int = 2) -> str:
        """Add."""
        return str(a + b)

    spec = make_tool(sum_of, toolset="own", effects={"read"}).spec
    assert sent_schema(spec)["properties"] == spec.parameters["properties"]
