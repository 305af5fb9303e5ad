"""OpenAI Responses: what is accepted, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import each
from whet_lab.practice.responses_rules import check
from whet_lab.practice.strict import Options, VendorRefusal

USER = {"role": "user", "content": "hi"}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "content": [{"type": "output_text", "text": "a"}],
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "good"}


def call(call_id: str, arguments: Any = "{}", **more):
    return {"type": "function_call", "call_id": call_id, "name": "noop", "arguments": arguments} | more


def output(call_id: str, text: Any = "ok"):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def body(*items, **more):
    return {"model": "m", "input": list(items)} | more


ACCEPTED = [
    {"model": "m", "input": "hi"},
    body(USER, instructions="s", store=False, include=["reasoning.encrypted_content"], stream=True),
    body({"role": "developer", "content": "s"}, USER, ANSWER, USER),
    body(USER, REASONING, call("a"), call("b"), output("b"), output("a")),
    body(USER, call("a", id="fc_1", status="completed"), output("a", [{"type": "input_text", "text": "x"}])),
    body({"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}),
    body(USER, tools=[{"type": "function", "name": "noop", "parameters": {"type": "object"}}]),
]

REFUSED = [
    ({"model": "m"}, "Missing required parameter: 'input'"),
    (body(), "Invalid 'input': empty array"),
    ({"model": "m", "input": 5}, "Invalid type for 'input'"),
    (body(USER, messages=[]), "Unknown parameter: 'messages'"),
    (body(USER, previous_response_id="resp_1"), "Previous response with id 'resp_1' not found"),
    (body({"role": "developer", "content": "s"}), "role 'user' is required"),
    (body({"role": "tool", "content": "s"}), "Invalid value: 'tool'"),
    (body({"role": "user", "content": ""}), "empty string"),
    (body({"role": "user"}), "Missing required parameter: 'input[0].content'"),
    (body({"role": "user", "content": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
    (
        body(USER, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        "Invalid value: 'input_text'",
    ),
    (body(USER, call("a")), "No tool output found for function call a."),
    (body(USER, output("a")), "No tool call found for function call output with call_id a."),
    (body(USER, call("a"), output("a"), output("a")), "No tool call found"),
    (body(USER, call("a"), call("a"), output("a")), "Duplicate function call with call_id 'a'"),
    (body(USER, call("a", "{"), output("a")), "not a valid JSON object"),
    (body(USER, call("a", {}), output("a")), "expected a string, but got an object"),
    (body(USER, call("a", id="call_1"), output("a")), "Expected an ID that begins with 'fc'"),
    (body(USER, call("a"), output("a", None)), "Invalid type for 'input[2].output'"),
    (body(USER, {"type": "item_reference", "id": "msg_1"}), "Invalid value: 'item_reference'"),
    (body(USER | {"name": "me"}), "Unknown parameter: 'input[0].name'"),
    (body(USER, REASONING, USER), "was provided without its required following item"),
    (body(USER, REASONING), "was provided without its required following item"),
    (body(USER, REASONING | {"encrypted_content": "bad"}, ANSWER), "could not be verified"),
    (
        body(USER, tools=[{"type": "function", "function": {"name": "noop"}}]),
        "Missing required parameter: 'tools[0].name'",
    ),
]


def is_good(item_id, sealed):
    return (item_id, sealed) == ("rs_1", "good")


@pytest.mark.parametrize("request_body", ACCEPTED)
def test_accepts(request_body):
    check(request_body, Options(), is_good)


@each(("request_body", "complaint"), REFUSED)
def test_refuses(request_body, complaint):
    with pytest.raises(VendorRefusal) as caught:
        check(request_body, Options(), is_good)
    assert complaint in caught.value.message


def test_reasoning_that_is_only_named_is_not_found():
    named = {key: value for key, value in REASONING.items() if key != "encrypted_content"}
    with pytest.raises(VendorRefusal, match="Items are not persisted when `store` is set to false") as caught:
        check(body(USER, named, ANSWER), Options(), is_good)
    assert caught.value.status == 404
