"""A turn's events in OpenAI's shapes: what a broken stream began is not part of a whole answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whet.contract.events import EndReason, ReasoningDelta, StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import ToolCall, Usage
from whet.serve.chat import RESTARTED, ChatCodec
from whet.serve.client_tools import HandedOver
from whet.serve.messages import MessagesCodec, MessagesRequest
from whet.serve.response_tools import read_tools
from whet.serve.responses import Format, ResponsesCodec, ResponsesRequest, TextOptions
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError, encode

EVENTS = (
    TextDelta("First step."),
    StepFinished(1, Usage()),
    TextDelta("Half an ans"),
    StreamRestarted("it broke"),
    TextDelta("The whole answer."),
    StepFinished(2, Usage()),
)
END = TurnEnd("s", "t", "answered", "The whole answer.", 2, Usage(), 0.1)


def _said(response: Any) -> list[str]:
    return [part["text"] for item in response["output"] for part in item["content"]]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_holds_what_broke_off_only_where_it_was_streamed(is_stream: bool) -> None:
    codec = ResponsesCodec("resp_1", ResponsesRequest("whet", "q", stream=is_stream))
    sent = b"".join(codec.event(event) for event in EVENTS)
    last = f"Half an ans{RESTARTED}The whole answer." if is_stream else "The whole answer."
    assert _said(codec.whole(END)) == ["First step.", last]
    assert (b"begins again" in sent) is is_stream


def test_a_whole_completion_holds_nothing_of_what_broke_off() -> None:
    codec: Any = ChatCodec("1", "whet")
    for event in EVENTS:
        codec.event(event)
    assert codec.whole(END)["choices"][0]["message"]["content"] == "First step.\n\nThe whole answer."


# The whole of what a client is sent.

USAGE = Usage(
    prompt_tokens=100,
    completion_tokens=20,
    total_tokens=120,
    reasoning_tokens=5,
    cache_read_tokens=30,
    cache_write_tokens=7,
)
CALL = ToolCall("c1", "look", '{"q":1}')
SPOKEN = (TextDelta("One."), TextDelta(" More."), StepFinished(1, Usage()), TextDelta("Two."))


def ended(reason: EndReason = "answered") -> TurnEnd:
    return TurnEnd("s", "t", reason, "Two.", 2, USAGE, 0.1)


def sent(codec: Any, *events: ApiEvent, end: TurnEnd) -> list[Any]:
    """Give the data of the stream events, and check that each is named as its type."""
    found: list[Any] = []
    stream = b"".join([*map(codec.event, events), codec.end(end)])
    for piece in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, _, data = piece.rpartition("data: ")
        row: Any = data if data == "[DONE]" else json.loads(data)
        assert not name or name == f"event: {row['type']}\n"
        found.append(row)
    return found


def chunk(delta: object, finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 30, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0},
}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}


def test_a_chat_completion_in_chunks_and_whole() -> None:
    codec: Any = ChatCodec("7", "whet", wants_usage=True)
    rows = sent(codec, ReasoningDelta("hm"), *SPOKEN, HandedOver((CALL, CALL)), end=ended())
    assert rows.pop() == "[DONE]"
    created = rows[0]["created"]
    head = {"id": "chatcmpl-7", "created": created, "model": "whet", "object": "chat.completion.chunk"}
    calls = [{"index": 0, **CHAT_CALL}, {"index": 1, **CHAT_CALL}]
    deltas = [
        chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}),
        chunk({"content": "One."}),
        chunk({"content": " More."}),
        chunk({"content": "\n\nTwo."}),
        chunk({"tool_calls": calls}),
        chunk({}, "tool_calls"),
    ]
    assert rows == [
        *({**head, "choices": [delta], "usage": None} for delta in deltas),
        {**head, "choices": [], "usage": CHAT_USAGE},
    ]
    assert codec.answer == "One. More.\n\nTwo."
    message = {
        "role": "assistant",
        "content": codec.answer,
        "refusal": None,
        "tool_calls": [CHAT_CALL] * 2,
        "reasoning_content": "hm",
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    head["object"] = "chat.completion"
    assert codec.whole(ended()) == {**head, "choices": [choice], "usage": CHAT_USAGE}


def test_a_chat_completion_says_why_it_ended_and_tells_its_usage_where_it_is_wanted() -> None:
    finishes: dict[EndReason, str] = {"answered": "stop", "budget": "length", "refused": "content_filter"}
    for reason, finish in finishes.items():
        rows = sent(ChatCodec("7", "whet"), end=ended(reason))
        assert [row["choices"] for row in rows[:-1]] == [
            [chunk({"role": "assistant", "content": ""}, finish)]
        ]
        assert "usage" not in rows[0]
    calls_alone: Any = ChatCodec("7", "whet")
    calls_alone.event(HandedOver((CALL,)))
    (choice,) = calls_alone.whole(ended())["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [CHAT_CALL],
    }
    silent: Any = ChatCodec("7", "whet")
    assert silent.whole(ended())["choices"][0]["message"]["content"] == ""
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": "x"}
    failed = silent.encode_error(ApiError(400, "no", code="x"))
    assert failed == b"data: %s\n\ndata: [DONE]\n\n" % encode({"error": error})


def text_of(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message(at: int, status: str, *parts: object) -> dict[str, object]:
    return {
        "id": f"msg_7_{at}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [*parts],
    }


def response(status: str, created: int, **more: object) -> dict[str, object]:
    """A response to the plainest request."""
    return {
        "id": "resp_7",
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "whet",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text", "schema": None}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
        **more,
    }


RESPONSE_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 7},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def said_in_response(at: int, *pieces: str) -> list[tuple[str, dict[str, object]]]:
    """The events of one step's text."""
    fields = {"item_id": f"msg_7_{at}", "output_index": at, "content_index": 0}
    whole = text_of("".join(pieces))
    item = message(at, "completed", whole)
    return [
        ("output_item.added", {"output_index": at, "item": message(at, "in_progress")}),
        ("content_part.added", {**fields, "part": text_of("")}),
        *(("output_text.delta", {**fields, "delta": piece, "logprobs": []}) for piece in pieces),
        ("output_text.done", {**fields, "text": whole["text"], "logprobs": []}),
        ("content_part.done", {**fields, "part": whole}),
        ("output_item.done", {"output_index": at, "item": item}),
    ]


def test_a_response_as_a_stream_and_whole() -> None:
    tools = read_tools([{"type": "function", "name": "look", "parameters": {"type": "object"}}])
    codec = ResponsesCodec("resp_7", ResponsesRequest("whet", "q", stream=True), tools)
    rows = sent(codec, *SPOKEN, HandedOver((CALL,)), end=ended())
    created = rows[0]["response"]["created_at"]
    call = {"id": "fc_7_2", "call_id": "c1", "type": "function_call", "name": "look"}
    done = {**call, "status": "completed", "arguments": '{"q":1}'}
    fields = {"output_index": 2, "item_id": "fc_7_2"}
    items = [message(0, "completed", text_of("One. More.")), message(1, "completed", text_of("Two.")), done]
    whole = response("completed", created, output=items, usage=RESPONSE_USAGE)
    wanted = [
        ("created", {"response": response("in_progress", created)}),
        ("in_progress", {"response": response("in_progress", created)}),
        *said_in_response(0, "One.", " More."),
        *said_in_response(1, "Two."),
        (
            "output_item.added",
            {"output_index": 2, "item": {**done, "status": "in_progress", "arguments": ""}},
        ),
        ("function_call_arguments.delta", {**fields, "delta": '{"q":1}'}),
        ("function_call_arguments.done", {**fields, "name": "look", "arguments": '{"q":1}'}),
        ("output_item.done", {"output_index": 2, "item": done}),
        ("completed", {"response": whole}),
    ]
    assert rows == [
        {"type": f"response.{kind}", "sequence_number": number, **more}
        for number, (kind, more) in enumerate(wanted)
    ]
    assert codec.answer == "One. More.Two." and json.loads(encode(codec.whole(ended()))) == whole


def test_a_response_says_why_it_is_not_whole_and_how_it_was_asked_for() -> None:
    reasons: dict[EndReason, str] = {"budget": "max_output_tokens", "refused": "content_filter"}
    for reason, why in reasons.items():
        last = sent(ResponsesCodec("resp_7", ResponsesRequest("whet", "q")), end=ended(reason))[-1]
        assert last["type"] == "response.incomplete" and last["response"]["status"] == "incomplete"
        assert last["response"]["incomplete_details"] == {"reason": why}
    form = Format("json_schema", {"type": "object"})
    request = ResponsesRequest(
        "gpt",
        "q",
        instructions="Be brief.",
        previous_response_id="resp_6",
        store=False,
        user="ann",
        tools=[{"a": 1}],
        tool_choice="required",
        parallel_tool_calls=False,
        text=TextOptions(form),
    )
    codec = ResponsesCodec("resp_7", request)
    failed = codec.encode_error(ApiError(502, "it broke")).decode()
    assert failed.count("event: response.created") == 1
    row = json.loads(failed.rpartition("data: ")[2])
    assert (row["type"], row["sequence_number"]) == ("response.failed", 2)
    assert row["response"] == response(
        "failed",
        row["response"]["created_at"],
        error={"code": "server_error", "message": "it broke"},
        instructions="Be brief.",
        model="gpt",
        parallel_tool_calls=False,
        previous_response_id="resp_6",
        store=False,
        text={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        tool_choice="required",
        tools=[{"a": 1}],
        user="ann",
    )
    coded = codec.encode_error(ApiError(400, "no", code="x")).decode()
    assert coded.startswith("event: response.failed") and '"error":{"code":"x","message":"no"}' in coded


def test_a_message_as_a_stream_and_whole() -> None:
    codec: Any = MessagesCodec("7", MessagesRequest("whet", [], stream=True))
    rows = sent(codec, *SPOKEN, HandedOver((CALL,)), end=ended())
    call = {"type": "tool_use", "id": "c1", "name": "look"}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    usage = dict(zip(names, (63, 7, 30, 20), strict=True))
    head = {"id": "msg_7", "type": "message", "role": "assistant", "model": "whet", "stop_sequence": None}
    begun = {**head, "content": [], "stop_reason": None, "usage": dict.fromkeys(names, 0)}

    def block(at: int, empty: object, *deltas: object) -> list[dict[str, object]]:
        return [
            {"type": "content_block_start", "index": at, "content_block": empty},
            *({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": at},
        ]

    fields = [{"type": "text_delta", "text": text} for text in ("One.", " More.", "Two.")]
    assert rows == [
        {"type": "message_start", "message": begun},
        *block(0, {"type": "text", "text": ""}, *fields[:2]),
        *block(1, {"type": "text", "text": ""}, fields[2]),
        *block(2, {**call, "input": {}}, {"type": "input_json_delta", "partial_json": '{"q":1}'}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    texts = [{"type": "text", "text": text} for text in ("One. More.", "Two.")]
    whole = {**head, "content": [*texts, {**call, "input": {"q": 1}}], "stop_reason": "tool_use"}
    assert codec.whole(ended()) == {**whole, "usage": usage} and codec.answer == "One. More.Two."


@pytest.mark.parametrize(
    ("reason", "stopped_by", "told"),
    [
        ("answered", "", "end_turn"),
        ("budget", "", "max_tokens"),
        ("refused", "", "refusal"),
        ("answered", "END", "stop_sequence"),
    ],
)
def test_a_message_says_why_it_ended(reason: EndReason, stopped_by: str, told: str) -> None:
    codec: Any = MessagesCodec("7", MessagesRequest("whet", []))
    codec.stopped_by = stopped_by
    for event in (*EVENTS[:4], TextDelta("Whole.")):
        codec.event(event)
    whole = codec.whole(ended(reason))
    assert (whole["stop_reason"], whole["stop_sequence"]) == (told, stopped_by or None)
    assert [block["text"] for block in whole["content"]] == ["First step.", "Whole."]
    streamed: Any = MessagesCodec("7", MessagesRequest("whet", [], stream=True))
    assert streamed.event(StreamRestarted("it broke")) == b""
    streamed.event(TextDelta("Half"))
    assert streamed.event(StreamRestarted("it broke")).endswith(encode(RESTARTED)[1:] + b"}}\n\n")
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    assert streamed.encode_error(ApiError(400, "no")) == b"event: error\ndata: %s\n\n" % encode(error)
