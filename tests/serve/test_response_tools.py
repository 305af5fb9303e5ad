"""Tools as coding agents send them to `/v1/responses`: in namespaces, taking text, beside the vendor's own.

The requests have the shape that Codex 0.171 sends: everything in each, nothing stored, fields of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serve.conftest import Api
from tests.serve.test_openai import row_of, sent
from whet.contract.messages import ToolCall
from whet.serve.response_tools import read_tools
from whet.serve.wire import ApiError
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

_TARGET = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
_COMMAND = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
_GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "BEGIN" line+ "END"'}
_FUNCTION = {"type": "function", "strict": False}
TOOLS: list[dict[str, Any]] = [
    {**_FUNCTION, "name": "exec_command", "description": "Runs a command.", "parameters": _COMMAND},
    {"type": "custom", "name": "apply_patch", "description": "Changes files.", "format": _GRAMMAR},
    {
        "type": "namespace",
        "name": "agents",
        "description": "Other agents.",
        "tools": [{**_FUNCTION, "name": "close", "description": "Closes one.", "parameters": _TARGET}],
    },
    {"type": "tool_search", "execution": "client", "description": "Finds more.", "parameters": _COMMAND},
    {"type": "web_search", "external_web_access": False},
]


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return {"type": "message", "id": f"msg_{len(text)}", "role": role, "content": content}


def _begun(question: str) -> list[dict[str, Any]]:
    text = "<environment_context>\n  <cwd>/srv/work</cwd>\n</environment_context>"
    return [_message("developer", "You are precise."), _message("user", text), _message("user", question)]


def _ask(api: Api, fields: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Send a request; the stream's events, and the session."""
    body = {
        "model": "whet",
        "stream": True,
        "input": fields,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "one-thread",
        "client_metadata": {"thread_id": "one-thread", "turn_id": "one-turn"},
    }
    with api.http() as http, http.stream("POST", "/v1/responses", json=body) as answer:
        text = answer.read().decode()
        assert answer.status_code == 200, text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "response.completed", events[-1]
    return events, answer.headers["x-whet-session"]


def _items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


@pytest.mark.parametrize(
    ("seen", "arguments", "shown", "streamed", "result"),
    [
        (
            "agents__close",
            '{"target":"a1"}',
            {"type": "function_call", "namespace": "agents", "name": "close", "arguments": '{"target":"a1"}'},
            "response.function_call_arguments",
            "function_call_output",
        ),
        (
            "apply_patch",
            '{"input":"BEGIN\\n+a line\\nEND"}',
            {"type": "custom_tool_call", "name": "apply_patch", "input": "BEGIN\n+a line\nEND"},
            "response.custom_tool_call_input",
            "custom_tool_call_output",
        ),
        (
            "exec_command",
            '{"cmd":"true"}',
            {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"true"}'},
            "response.function_call_arguments",
            "function_call_output",
        ),
    ],
)
def test_a_coding_agents_tools_are_called_in_their_own_shapes(
    api: Api, seen: str, arguments: str, shown: dict[str, str], streamed: str, result: str
) -> None:
    call = PracticeCall(seen, arguments, "c1")
    api.say(ScriptedReply("I do.", tool_calls=(call,)), ScriptedReply("Done."), ScriptedReply("Fine."))
    fields = _begun(f"use {seen}")
    events, session = _ask(api, fields)
    field, made = _items(events)
    assert {key: made.get(key) for key in shown} == shown
    assert ("namespace" in made) is ("namespace" in shown)
    text = shown.get("input") or shown["arguments"]
    assert [event["delta"] for event in events if event["type"] == f"{streamed}.delta"] == [text]
    assert [event["type"] for event in events].count(f"{streamed}.done") == 1
    fields += [field, made, {"type": result, "call_id": made["call_id"], "output": "it worked"}]
    events, again = _ask(api, fields)
    assert again == session and _items(events)[0]["content"][0]["text"] == "Done."
    assert "it worked" in str(sent(api)[-1]["content"])
    fields += [*_items(events), _message("user", "and now?")]
    assert _ask(api, fields)[1] == session
    assert row_of(api, session).turns == 2


def test_a_history_from_elsewhere_keeps_the_names_that_the_model_sees(api: Api) -> None:
    api.say(ScriptedReply("Go on."))
    fields = _begun("before")
    fields.append(
        {"type": "function_call", "namespace": "agents", "name": "close", "call_id": "x1", "arguments": "{}"}
    )
    fields.append({"type": "function_call_output", "call_id": "x1", "output": "closed"})
    fields.append({"type": "custom_tool_call", "name": "apply_patch", "call_id": "x2", "input": "BEGIN END"})
    fields.append({"type": "custom_tool_call_output", "call_id": "x2", "output": "patched"})
    _ask(api, [*fields, _message("assistant", "Both done."), _message("user", "go on")])
    calls = [call["function"] for one in sent(api) for call in one.get("tool_calls") or ()]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("agents__close", {}),
        ("apply_patch", {"input": "BEGIN END"}),
    ]
    assert [one["content"] for one in sent(api) if one["role"] == "tool"] == ["closed", "patched"]


def test_the_model_is_offered_one_list_and_the_grammar_of_a_text() -> None:
    tools = read_tools(TOOLS)
    assert [spec.name for spec in tools.specs] == ["exec_command", "apply_patch", "agents__close"]
    assert tools.specs[1].description.endswith('this lark grammar:\nstart: "BEGIN" line+ "END"')
    assert tools.specs[1].parameters["required"] == ["input"] and tools.specs[2].parameters == _TARGET


def test_names_that_are_too_long_together_stay_apart() -> None:
    space = "mcp__a_server_with_a_name_that_goes_on_and_on"
    inner = [
        {**_FUNCTION, "name": f"a_tool_with_a_long_name_too_{n}", "parameters": _TARGET} for n in range(3)
    ]
    tools = read_tools([{"type": "namespace", "name": space, "tools": inner}])
    names = [spec.name for spec in tools.specs]
    assert len(set(names)) == 3 and max(map(len, names)) == 64
    shown = tools.call_fields(ToolCall("c", names[1], "{}"))
    assert (shown["namespace"], shown["name"]) == (space, "a_tool_with_a_long_name_too_1")


@pytest.mark.parametrize(
    ("tool", "place"),
    [
        ({"type": "code_interpreter"}, "tools[0]"),
        ({"type": "namespace", "name": "a", "tools": [{"type": "mcp"}]}, "tools[0].tools[0]"),
        (
            {"type": "namespace", "name": "a.b", "tools": [{"type": "function", "name": "c"}]},
            "tools[0].tools[0].name",
        ),
        (
            {"type": "namespace", "name": "a", "tools": [{"type": "namespace", "name": "b"}]},
            "tools[0].tools[0]",
        ),
        ({"type": "namespace"}, "tools[0]"),
        ({"type": "custom"}, "tools[0].name"),
    ],
)
def test_a_tool_that_can_not_be_offered_is_refused_with_its_place(tool: object, place: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_tools([tool])
    assert refused.value.param == place


def test_a_text_that_the_model_did_not_wrap_is_given_as_it_stands() -> None:
    tools = read_tools(TOOLS)
    assert tools.call_fields(ToolCall("c", "apply_patch", '"BEGIN END"'))["input"] == '"BEGIN END"'
    assert tools.call_fields(ToolCall("c", "apply_patch", '{"input": 7}'))["input"] == '{"input": 7}'
