"""Chat Completions: what is accepted, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import each
from whet_lab.practice.chat_rules import check
from whet_lab.practice.strict import Options, VendorRefusal


def user(content: Any = "hi"):
    return {"role": "user", "content": content}


def calls(*ids: str, arguments: Any = "{}", **more):
    rows = [{"id": i, "type": "function", "function": {"name": "noop", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": rows} | more


def result(call_id: str, content: Any = "ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(name="noop", parameters=None, **more):
    schema = {"type": "object", "properties": {}} if parameters is None else parameters
    return {"type": "function", "function": {"name": name, "parameters": schema} | more}


def body(*messages, **more):
    return {"model": "m", "messages": list(messages)} | more


ACCEPTED = [
    body(user()),
    body({"role": "system", "content": "s"}, user(), {"role": "assistant", "content": "a"}, user()),
    body({"role": "developer", "content": "s"}, user()),
    body(user(), calls("a", "b"), result("b"), result("a")),
    body(user(), calls("a"), result("a"), calls("b"), result("b"), user()),
    body(
        user(),
        calls("a", content="I look.", reasoning_content="hm"),
        result("a", [{"type": "text", "text": "ok"}]),
    ),
    body(user(), {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}),
    body(user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}])),
    body(
        user(), tools=[tool()], tool_choice="auto", parallel_tool_calls=True, stream=True, stream_options={}
    ),
    body(
        user(),
        tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array", "items": {}}}})],
    ),
    body(user(), max_completion_tokens=5, temperature=0, metadata={}, reasoning_effort="low"),
]

REFUSED = [
    (body(), "Invalid 'messages': empty array"),
    ({"model": "m"}, "Missing required parameter: 'messages'"),
    ({"messages": [user()]}, "you must provide a model parameter"),
    (
        {"model": "m", "messages": {}},
        "Invalid type for 'messages': expected an array of objects, but got an object",
    ),
    (body(user(), top_k=5), "Unknown parameter: 'top_k'"),
    (body(user(), stream="yes"), "Invalid type for 'stream': expected a boolean, but got a string"),
    (body(user(), stream_options={"include_usage": True}), "only allowed when 'stream' is enabled"),
    (body(user(), tool_choice="auto"), "'tool_choice' is only allowed when 'tools' are specified"),
    (body(user(), parallel_tool_calls=True), "only allowed when 'tools' are specified"),
    (body(user(), max_tokens=1, max_completion_tokens=1), "at the same time is not supported"),
    (body("hi"), "Invalid type for 'messages[0]': expected an object, but got a string"),
    (body({"role": "human", "content": "x"}), "Invalid value: 'human'. Supported values are"),
    (body({"role": "system", "content": "s"}), "at least one message with role 'user' is required"),
    (body(user("")), "empty string"),
    (body(user(None)), "expected a string, got null"),
    (body(user([])), "empty array"),
    (body(user([{"type": "text"}])), "Missing required parameter: 'messages[0].content[0].text'"),
    (body(user([{"type": "image", "source": {}}])), "Invalid value: 'image'"),
    (body(user([{"type": "image_url", "image_url": {"url": "/tmp/a.png"}}])), "Invalid image URL"),
    (body(user(), {"role": "assistant", "content": None}), "expected a string, got null"),
    (body(user(), {"role": "assistant", "content": ""}), "either content or tool_calls"),
    (body(user(), {"role": "assistant", "content": "x", "tool_calls": []}), "empty array"),
    (body(user(), calls("a")), "did not have response messages: a"),
    (body(user(), calls("a", "b"), result("a")), "did not have response messages: b"),
    (body(user(), calls("a"), user(), result("a")), "did not have response messages: a"),
    (body(user(), calls("a"), result("a"), result("a")), "must be a response to a preceeding message"),
    (body(user(), result("a")), "must be a response to a preceeding message"),
    (
        body(user(), calls("a"), result("a"), user(), result("a")),
        "must be a response to a preceeding message",
    ),
    (body(user(), calls("a", "a"), result("a")), "Duplicate value for 'tool_call_id' of 'a'"),
    (body(user(), calls("a"), result("a"), calls("a"), result("a")), "Duplicate value for 'tool_call_id'"),
    (
        body(user(), calls("a"), {"role": "tool", "content": "x"}),
        "Missing required parameter: 'messages[2].tool_call_id'",
    ),
    (body(user(), calls("a"), result("a", None)), "expected a string, got null"),
    (
        body(user(), calls("a"), result("a") | {"tool_name": "noop"}),
        "Unknown parameter: 'messages[2].tool_name'",
    ),
    (body(user() | {"id": 1}), "Unknown parameter: 'messages[0].id'"),
    (body(user(), calls("a", arguments='{"a": '), result("a")), "not a valid JSON object"),
    (body(user(), calls("a", arguments="[]"), result("a")), "not a valid JSON object"),
    (body(user(), calls("a", arguments={}), result("a")), "expected a string, but got an object"),
    (body(user(), calls(""), result("")), "Missing required parameter: 'messages[1].tool_calls[0].id'"),
    (body(user(), tools=[]), "Invalid 'tools': empty array"),
    (body(user(), tools={}), "expected an array of objects"),
    (body(user(), tools=[tool(), tool()]), "Duplicate function name"),
    (body(user(), tools=[tool("a b")]), "string does not match pattern"),
    (body(user(), tools=[tool("x" * 65)]), "string does not match pattern"),
    (
        body(user(), tools=[{"type": "function", "name": "noop"}]),
        "Missing required parameter: 'tools[0].function'",
    ),
    (body(user(), tools=[{"type": "custom"}]), "Supported values are: 'function'"),
    (body(user(), tools=[tool(parameters={})]), "schema must be a JSON Schema of 'type: \"object\"'"),
    (
        body(user(), tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]),
        "missing items",
    ),
    (body(user(), tools=[tool(parameters={"type": "object", "required": ["a"]})]), "which is not a property"),
    (body(user(), tools=[tool(strict=True)]), "'additionalProperties' is required"),
]


@pytest.mark.parametrize("request_body", ACCEPTED)
def test_accepts(request_body):
    check(request_body, Options())


@each(("request_body", "complaint"), REFUSED)
def test_refuses(request_body, complaint):
    with pytest.raises(VendorRefusal) as caught:
        check(request_body, Options())
    assert complaint in caught.value.message
    assert caught.value.status == 400


def test_arguments_need_not_be_json_where_the_server_is_told_so():
    check(body(user(), calls("a", arguments="{"), result("a")), Options(require_json_arguments=False))


def test_extra_keys_can_be_allowed():
    check(body(user(), top_k=5), Options(extra_keys=("top_k",)))
