"""The vendors' own clients talk to the practice server: plain, streaming, tools, models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.practice.clients import USER, answer_of, complete, converse
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

NOOP = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CHAT_TOOLS = [{"type": "function", "function": {"name": "noop", "parameters": NOOP}}]
CLAUDE_TOOLS = [{"name": "noop", "input_schema": NOOP}]
RESPONSES_TOOLS = [{"type": "function", "name": "noop", "parameters": NOOP}]
TWO_CALLS = ScriptedReply(
    "I look.",
    tool_calls=(PracticeCall("noop", '{"n": 1}', "call_a"), PracticeCall("noop", '{"n":2}')),
    reasoning="Hm, größer.",
    pieces=3,
)


def test_chat_answers_plain_and_streamed_alike(serve, chat):
    client = chat(serve(TWO_CALLS, TWO_CALLS))
    whole = complete(client, tools=CHAT_TOOLS)
    message = whole.choices[0].message
    assert (message.content, whole.choices[0].finish_reason) == ("I look.", "tool_calls")
    sent = [(call.id, call.function.arguments) for call in message.tool_calls]
    assert sent == [("call_a", '{"n": 1}'), ("call_2", '{"n":2}')]
    with client.chat.completions.stream(
        model="any", messages=USER, tools=CHAT_TOOLS, stream_options={"include_usage": True}
    ) as stream:
        streamed = stream.get_final_completion()
    again = streamed.choices[0].message
    assert again.content == message.content
    assert [(c.id, c.function.arguments) for c in again.tool_calls] == [
        (c.id, c.function.arguments) for c in message.tool_calls
    ]
    assert streamed.choices[0].finish_reason == "tool_calls"
    assert streamed.usage.completion_tokens == whole.usage.completion_tokens > 0
    assert streamed.usage.prompt_tokens_details.cached_tokens == streamed.usage.prompt_tokens


def test_chat_streams_reasoning_and_leaves_usage_out_unless_asked(serve, chat):
    client = chat(serve(TWO_CALLS))
    chunks = list(complete(client, stream=True))
    reasoning = [c.choices[0].delta.model_extra.get("reasoning_content", "") for c in chunks if c.choices]
    assert "".join(reasoning) == "Hm, größer."
    assert all(c.usage is None and c.choices for c in chunks)


def test_claude_answers_plain_and_streamed_alike(serve, claude):
    client = claude(serve(TWO_CALLS, TWO_CALLS))
    asked = {"model": "any", "max_tokens": 100, "messages": USER, "tools": CLAUDE_TOOLS}
    whole = converse(client, **asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    kinds = [block.type for block in whole.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert [b.to_dict() for b in streamed.content] == [b.to_dict() for b in whole.content]
    assert whole.content[3].input == {"n": 2}
    assert streamed.stop_reason == whole.stop_reason == "tool_use"
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 1


def test_responses_answers_plain_and_streamed_alike(serve, chat):
    client = chat(serve(TWO_CALLS, TWO_CALLS))
    whole = client.responses.create(model="any", input="hi", tools=RESPONSES_TOOLS, store=False)
    assert whole.output_text == "I look."
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    with client.responses.stream(model="any", input="hi", tools=RESPONSES_TOOLS, store=False) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        streamed = stream.get_final_response()
    assert "".join(deltas) == "I look." and len(deltas) == 3
    assert [c.arguments for c in streamed.output if c.type == "function_call"] == ['{"n": 1}', '{"n":2}']
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_chat_tools_go_round(serve, chat):
    client = chat(serve())
    messages: list[Any] = list(USER)
    for _ in range(3):
        answer = complete(client, model="practice-steps-3", messages=messages, tools=CHAT_TOOLS)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": c.id, "content": "ok"} for c in message.tool_calls]
    last = complete(client, model="practice-steps-3", messages=messages, tools=CHAT_TOOLS)
    ids = [message["tool_calls"][0]["id"] for message in messages if message.get("tool_calls")]
    assert ids == ["call_1", "call_2", "call_3"]
    assert last.choices[0].finish_reason == "stop"
    assert last.choices[0].message.content.startswith("Done: 3 tool results")


def test_claude_tools_and_thinking_go_round(serve, claude):
    client = claude(serve(TWO_CALLS, ScriptedReply("done")))
    asked = {"model": "any", "max_tokens": 4000, "tools": CLAUDE_TOOLS}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    first = converse(client, thinking=thinking, **asked)
    ids = [block.id for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": number, "content": "ok"} for number in ids]
    messages = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    assert converse(client, messages=messages, thinking=thinking, **asked).content[0].text == "done"


def test_responses_tools_and_reasoning_go_round(serve, chat):
    client = chat(serve(TWO_CALLS, ScriptedReply("done")))
    items = [{"role": "user", "content": "hi"}]
    first = client.responses.create(model="any", input=items, tools=RESPONSES_TOOLS, store=False)
    items += [item.to_dict() for item in first.output]
    items += [
        {"type": "function_call_output", "call_id": c.call_id, "output": "ok"}
        for c in first.output
        if c.type == "function_call"
    ]
    second = client.responses.create(model="any", input=items, tools=RESPONSES_TOOLS, store=False)
    assert second.output_text == "done"


def test_stops_are_named_as_each_vendor_does(serve, chat, claude):
    server = serve(*[ScriptedReply("half", stop="length")] * 3)
    completion = complete(chat(server))
    assert completion.choices[0].finish_reason == "length"
    assert converse(claude(server)).stop_reason == "max_tokens"
    response = chat(server).responses.create(model="any", input="hi")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_an_empty_reply_is_empty(serve, chat, claude):
    server = serve(ScriptedReply(), ScriptedReply(), ScriptedReply())
    assert answer_of(chat(server)) == ""
    assert converse(claude(server)).content == []
    assert chat(server).responses.create(model="any", input="hi").output == []


def test_a_script_can_set_usage(serve, chat, claude):
    usages = {"prompt_tokens": 7}, {"cache_read_input_tokens": 9}
    server = serve(*(ScriptedReply("x", usage=usage) for usage in usages))
    assert complete(chat(server)).usage.prompt_tokens == 7
    usage = converse(claude(server)).usage
    assert usage.cache_read_input_tokens == 9


def test_models_are_listed_in_each_vendors_shape(serve, chat, claude):
    server = serve()
    ours = [model.id for model in chat(server).models.list()]
    assert ours == [model.id for model in claude(server).models.list()]
    assert "practice" in ours
    assert chat(server).models.retrieve("practice-steps-7").owned_by == "whet-practice"
    assert "not a language model" in claude(server).models.retrieve("practice").display_name


def test_images_are_taken(serve, chat, claude):
    server = serve()
    data = "iVBORw0KGgo="
    image = {"url": f"data:image/png;base64,{data}"}
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": image}]
    answer = complete(chat(server), model="practice-echo", messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == "see"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "see"}]
    message = converse(claude(server), model="practice-echo", messages=[{"role": "user", "content": blocks}])
    assert message.content[0].text == "see"


@pytest.mark.parametrize("model", ["practice-echo", "practice"])
def test_what_was_sent_is_recorded_byte_for_byte(serve, chat, model):
    server = serve()
    complete(chat(server), model=model)
    recorded = server.wait_for_request(1)
    assert recorded.path == "/v1/chat/completions"
    assert recorded.headers["authorization"] == "Bearer sk-practice"
    assert json.loads(recorded.body) == recorded.json_body
    assert recorded.json_body["messages"] == USER
