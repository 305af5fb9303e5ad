"""What a refusal says about the tools on offer, and what it does not."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.providers.test_adapting import Body, RuledServer, ask, other_history, running
from whet.contract.errors import BadRequest
from whet.contract.tools import ToolSpec
from whet.providers.tool_schemas import ToolCuts


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("Invalid tools: the description of 'tool_3' is too long", ["tool_3"]),
        ("Invalid type for 'messages[0].content[0].format'", []),
    ],
)
async def test_tools_that_a_refusal_does_not_name_stay_as_they_are(text: str, left_out: list[str]) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "uri"}}}
    tools = [ToolSpec(f"tool_{number}", "Do.", schema) for number in range(6)]

    def names_in(body: Body) -> list[str]:
        return [tool["function"]["name"] for tool in body["tools"]]

    async with running(RuledServer(lambda body: text if "tool_3" in names_in(body) else "")) as server:
        source = server.provider()
        with suppress(BadRequest):
            await ask(source.open("sys", tools, "s"), *other_history())
        await source.aclose()
        sent = server.bodies[-1]
        assert sorted({tool.name for tool in tools} - set(names_in(sent))) == left_out
        sent_schemas = [tool["function"]["parameters"] for tool in sent["tools"]]
        assert all("format" in schema["properties"]["at"] for schema in sent_schemas)


async def test_a_refused_schema_is_sent_in_a_plain_form_before_its_tool_is_left_out() -> None:
    """Gemini refuses an enumeration for an array: reportportal/reportportal-mcp-server#25."""
    modes = {"type": "array", "items": {"$ref": "#/$defs/mode"}, "enum": ["x"], "description": "Which."}
    choice = {"anyOf": [{"type": "null"}, {"type": ["integer", "null"], "minimum": 1}]}
    schema = {
        "type": "object",
        "properties": {"modes": modes, "count": choice, "odd": {"anyOf": [{"not": {}}]}},
        "required": ["modes"],
        "$defs": {"mode": {"type": "string", "enum": ["x", "y"]}},
    }
    text = "functionDeclaration 'look': schema type should not be ARRAY with values"

    def refuse(body: Body) -> str:
        return text if "$ref" in str(body["tools"]) else ""

    async with running(RuledServer(refuse)) as server:
        source = server.provider()
        await ask(source.open("sys", [ToolSpec("look", "Look.", schema)], "s"), *other_history())
        await source.aclose()
        parameters = server.bodies[-1]["tools"][0]["function"]["parameters"]
        assert parameters == {
            "type": "object",
            "properties": {
                "modes": {
                    "type": "array",
                    "items": {"type": "string", "enum": ["x", "y"]},
                    "description": "Which.",
                },
                "count": {"type": "integer"},
                "odd": {},
            },
            "required": ["modes"],
        }


def test_a_keyword_is_left_out_of_a_schema_of_any_depth() -> None:
    schema: Body = {"type": "object"}
    for _ in range(600):
        schema = {"type": "object", "properties": {"at": schema}}
    (kept,) = ToolCuts(keywords=("format",)).keep([ToolSpec("deep", "Do.", schema)])
    assert "at" in kept.parameters["properties"]
