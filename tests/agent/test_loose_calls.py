"""Calls that a model wrote nearly right: those that are plainly meant run, no other does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls, rig
from whet.agent.loose_calls import fit_values, match_tool, unwrap_object
from whet.contract.events import ToolFinished, ToolStarted
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet_lab.practice.script import ScriptedReply

OBJECT = {"path": "a", "n": 1}
TEXT = '{"path": "a", "n": 1}'
TOOLS = ("read_file", "write_file", "mcp__t__get", "todo")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(TEXT),
        json.dumps(json.dumps(TEXT)),
        f"```json\n{TEXT}\n```",
        f"  ```\n{TEXT}```\n",
        f"[{TEXT}]",
        '{"path": "a", "n": 1,}',
        "{'path': 'a', 'n': 1}",
        TEXT + "}",
        TEXT + "</tool_call>",
        TEXT + "<|call|>",
        json.dumps(f"```json\n{TEXT}\n```"),
    ],
)
def test_an_object_in_another_coat_is_that_object(text: str):
    assert json.loads(unwrap_object(text)) == OBJECT


@pytest.mark.parametrize(
    "text",
    ['{"html": "' + '<a href=\\"x\\">' * 60_000, TEXT + "<|im_end|>" * 60_000 + "!", "```" + " " * 600_000],
    ids=["cut in a text", "a loop of marks", "a fence without an end"],
)
def test_a_call_that_is_not_whole_is_left_as_it_is_in_time_that_grows_with_its_length(text: str):
    assert unwrap_object(text) == text


def test_a_raw_line_break_and_words_of_two_languages_are_read():
    assert json.loads(unwrap_object('{"content": "l1\nl2\t\n"}')) == {"content": "l1\nl2\t\n"}
    mixed = "{'a': True, \"b\": false, 'c': null, 'd': 'it is true'}"
    assert json.loads(unwrap_object(mixed)) == {"a": True, "b": False, "c": None, "d": "it is true"}
    assert unwrap_object(" ") == unwrap_object("null") == "{}"


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a", "content": "half of',
        "```json\n" + '{"path": "a',
        "[1, 2]",
        "7",
        "rm -rf /",
        f"{TEXT}, and then {TEXT}",
        f"{TEXT}{TEXT[:-2]}2}}",
        '{"a": "\\ud83d"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "{'a': open('x')}",
        '{"a": NaN}x',
    ],
)
def test_arguments_that_are_cut_or_doubtful_stay_as_they_are(text: str):
    assert unwrap_object(text) == text


@pytest.mark.parametrize(
    "name",
    [" read_file", "functions.read_file", "default_api:read_file", "`read_file`", "Read_File", "read-file",
     "readFile", "read_file()", "read_file<|channel|>commentary", "tools/read_file\n"],
)  # fmt: skip
def test_a_name_with_a_prefix_or_another_spelling_is_the_tool(name: str):
    assert match_tool(name, TOOLS) == "read_file"


@pytest.mark.parametrize("name", ["file", "get", "read", "", ".", "read_files", "delete.everything"])
def test_another_name_is_no_tool(name: str):
    assert match_tool(name, TOOLS) == name
    assert match_tool("To_Do", (*TOOLS, "to_do")) == "To_Do", "two tools may be meant"


async def test_a_mended_call_is_shown_and_stored_as_it_runs(tmp_path: Path) -> None:
    wanted = calls(("functions.put", '```json\n{"what":"x"}\n```'), ("put", '{"what": "half'))
    async with rig(tmp_path, [wanted, ScriptedReply("Done.")]) as r:
        await r.turn("go")
        assert [(event.name, event.arguments) for event in r.seen(ToolStarted)] == [("put", '{"what":"x"}')]
        assert [event.error_kind for event in r.seen(ToolFinished)] == ["", "bad_input"]
        sent = json.loads(r.server.requests[-1].body)["messages"]
        (asked,) = [message for message in sent if message["role"] == "assistant"]
        assert asked["tool_calls"][0]["function"] == {"name": "put", "arguments": '{"what":"x"}'}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "paths": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "integer"},
        "all": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "query": {"$ref": "#/$defs/Query"},
        "text": {"type": "string"},
        "either": {"type": ["string", "array"]},
        "open": {},
    },
    "$defs": {"Query": {"type": "object", "properties": {"limit": {"type": "number"}}}},
}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"paths": '["a.png", "[b]"]'}, {"paths": ["a.png", "[b]"]}),
        ({"size": "200000", "all": "true"}, {"size": 200_000, "all": True}),
        ({"all": "null", "query": '{"limit": "2.5"}'}, {"all": None, "query": {"limit": 2.5}}),
        ({"query": {"limit": "7"}}, {"query": {"limit": 7}}),
    ],
)
def test_a_value_that_is_json_text_gets_the_type_of_its_schema(given: Any, wanted: Any) -> None:
    """https://github.com/tashfeenahmed/freellmapi/pull/193"""
    assert fit_values(given, SCHEMA) == wanted


@pytest.mark.parametrize(
    "values",
    [
        {"text": '["a"]', "either": "[1]", "open": "{}", "unknown": "[]"},
        {"paths": "a.png", "size": "many", "all": "yes", "query": "[1]"},
        {"paths": '{"a": 1}', "size": "2.5", "query": '{"limit": 1'},
        {"paths": "[" * 100_000, "size": True},
    ],
)
def test_text_that_may_be_meant_as_text_stays_text(values: Any) -> None:
    assert fit_values(values, SCHEMA) == values
    assert fit_values(values, {"properties": {name: {"$ref": "#/$defs/None"} for name in values}}) == values


async def test_a_value_is_converted_before_the_call_is_judged_and_stored(tmp_path: Path) -> None:
    ran: list[dict[str, Any]] = []

    async def run(_context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        ran.append(arguments)
        return ToolOutput("ok")

    foreign = Tool(ToolSpec("mcp__s__send", "Send.", SCHEMA), "mcp", frozenset({"network"}), run)
    wanted = calls(("mcp__s__send", '{"paths": "[\\"secrets/x\\"]", "text": "[1]"}'))
    async with rig(tmp_path, [wanted, ScriptedReply("Done.")], more_tools=[foreign]) as r:
        await r.turn("go")
        assert ran == [{"paths": ["secrets/x"], "text": "[1]"}]
        assert [event.arguments for event in r.seen(ToolStarted)] == ['{"paths":["secrets/x"],"text":"[1]"}']
