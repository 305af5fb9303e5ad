"""OpenAI Responses: stateless requests, and encrypted reasoning that goes back unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.providers import shapes
from tests.providers.server import sse
from tests.providers.shapes import INFO, PNG, call, every_cut, replay, result
from whet.contract.errors import ContextOverflow, ModelRefused, RateLimited, WireError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import Message, TextPart
from whet.providers.catalog import SERVERS
from whet.providers.responses import ResponsesDecoder, ResponsesEncoder
from whet.providers.wire import RequestOptions

CODEC = ResponsesEncoder(SERVERS["openai"].dialect)


def body(*messages: Message, **options: Any) -> dict[str, Any]:
    decoded = msgspec.json.decode(shapes.cache(CODEC, **options).body(messages))
    shapes.check(shapes.RESPONSES, decoded)
    return decoded


def test_the_request_is_stateless():
    sent = body(Message("user", "hi"), max_output_tokens=9, reasoning_effort="high")
    assert sent["store"] is False and sent["include"] == ["reasoning.encrypted_content"]
    assert sent["instructions"] == "Be brief." and sent["reasoning"] == {"effort": "high"}
    assert sent["max_output_tokens"] == 9 and sent["prompt_cache_key"] == "s-1"
    assert list(sent)[-1] == "input"
    [tool] = sent["tools"]
    assert (tool["type"], tool["strict"], tool["description"]) == ("function", False, "Read a file.")
    assert CODEC.head("", [], RequestOptions("m")) == (
        b'{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"input":['
    )
    assert b"include" not in CODEC.head("", [], RequestOptions("gpt-4.1-mini"))


@pytest.mark.slow
def test_messages_become_items():
    sent = body(
        Message("user", (TextPart("look"), PNG)),
        Message("assistant", "ok", (call("call_a"), call("call_b", arguments="{"))),
        result("call_a", (TextPart("shot"), PNG)),
        result("call_b", "bad"),
    )
    kinds = [item.get("type", item.get("role")) for item in sent["input"]]
    assert kinds == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert sent["input"][3]["arguments"] == "{}"
    assert sent["input"][4]["output"][1]["type"] == "input_image"


REASONING = (
    '{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Süß"}],'
    '"encrypted_content":"gAAA=="}'
)
CALL = (
    '{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\\"path\\": 1}",'
    '"call_id":"call_1","name":"read_file"}'
)
TEXT = (
    '{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":'
    '[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hé"}]}'
)
USAGE = (
    '{"input_tokens":50,"input_tokens_details":{"cached_tokens":30,"cache_write_tokens":0},"output_tokens":9,'
    '"output_tokens_details":{"reasoning_tokens":4},"total_tokens":59}'
)


def stream_of(*items: str, end: str = "completed", details: str = "null") -> bytes:
    return sse(
        '{"type":"response.created","response":{"id":"resp_1","model":"m-1","status":"in_progress","usage":null}}',
        '{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"delta":"Süß"}',
        '{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"delta":"Hé"}',
        '{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\\"pa"}',
        *(
            f'{{"type":"response.output_item.done","output_index":{index},"item":{item}}}'
            for index, item in enumerate(items)
        ),
        f'{{"type":"response.{end}","response":{{"model":"m-1-dated","incomplete_details":{details},'
        f'"usage":{USAGE}}}}}',
        "[DONE]",
        names=["n"] * (len(items) + 6),
    )


def test_the_stream_cut_at_every_byte():
    stream = stream_of(REASONING, TEXT, CALL)
    for cuts in every_cut(stream):
        decoder = ResponsesDecoder(INFO)
        assert replay(decoder, stream, cuts) == [ReasoningDelta("Süß"), TextDelta("Hé")]
        assert decoder.is_ended
    reply = decoder.reply(())
    assert reply.message.content == "Hé" and reply.model == "m-1-dated"
    assert reply.message.tool_calls[0].id == "call_1"
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.reasoning_tokens) == (
        20,
        30,
        4,
    )


def message_of(*items: str, taken: tuple[str, ...] = (), **end: str) -> Message:
    decoder = ResponsesDecoder(INFO)
    replay(decoder, stream_of(*items, **end))
    return decoder.reply(taken).message


@pytest.mark.parametrize("has_pieces", [True, False])
def test_arguments_and_text_that_only_their_last_event_holds_are_taken(has_pieces: bool):
    call = CALL.replace('"{\\"path\\": 1}"', '""')
    decoder = ResponsesDecoder(INFO)
    piece = '{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\\"pa"}'
    stream = sse(
        '{"type":"response.output_text.done","output_index":0,"text":"Hé"}',
        *([piece] if has_pieces else []),
        '{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\\"path\\": 1}"}',
        f'{{"type":"response.output_item.done","output_index":1,"item":{call}}}',
        '{"type":"response.completed","response":{"model":"m-1"}}',
    )
    replay(decoder, stream)
    message = decoder.reply(()).message
    assert (message.content, message.tool_calls[0].arguments) == ("Hé", '{"path": 1}')


def test_reasoning_items_go_back_byte_for_byte():
    message = message_of(REASONING, TEXT, CALL)
    raw = shapes.cache(CODEC).body([Message("user", "q"), message, result("call_1")])
    assert ",".join((REASONING, TEXT, CALL)).encode() in raw
    shapes.check(shapes.RESPONSES, msgspec.json.decode(raw))


def test_items_that_could_be_refused_are_made_from_the_message_instead():
    plain = REASONING.replace('"gAAA=="', "null")
    assert message_of(plain, CALL).replay is None
    assert message_of(TEXT).replay is None
    assert message_of(CALL, REASONING).replay is None
    assert message_of(REASONING, CALL, REASONING).replay is None
    assert message_of(REASONING, REASONING, CALL).replay is not None
    assert message_of(REASONING, plain, CALL).replay is None
    assert message_of(REASONING, CALL.replace("1}", "")).replay is None
    assert message_of(REASONING, CALL, taken=("call_1",)).replay is None
    changed = msgspec.structs.replace(message_of(REASONING, CALL), tool_calls=())
    assert [item.get("type") for item in body(changed)["input"]] == [None]


def test_text_and_reasoning_are_shown_as_they_come():
    decoder = ResponsesDecoder(INFO)
    for name, shown in (
        ("output_text", [TextDelta("a")]),
        ("reasoning_text", [ReasoningDelta("a")]),
        ("reasoning_summary_text", [ReasoningDelta("a")]),
        ("audio", []),
    ):
        assert list(decoder.feed(b'{"type":"response.%s.delta","delta":"a"}' % name.encode())) == shown
        assert not decoder.feed(b'{"type":"response.%s.delta"}' % name.encode()) and not decoder.is_done
    decoder.feed(b'{"type":"response.completed","response":{}}')
    reply = decoder.reply(())
    assert (reply.message.content, reply.message.reasoning, reply.model) == ("a", "aa", "m-1")
    assert reply.stop == "end" and decoder.is_done


def test_text_beside_calls_and_an_answer_without_text_are_sent():
    raw = shapes.cache(CODEC).body(
        [Message("assistant", "ok", (call(),)), Message("assistant", "", (call(),)), Message("assistant", "")]
    )
    sent = msgspec.json.decode(raw)["input"]
    assert [item.get("content", item.get("name")) for item in sent] == ["ok", *["read_file"] * 2, ""]


def test_cut_refused_and_failed_answers():
    decoder = ResponsesDecoder(INFO)
    replay(decoder, stream_of(TEXT, end="incomplete", details='{"reason":"max_output_tokens"}'))
    assert decoder.reply(()).stop == "length"
    with pytest.raises(ModelRefused):
        message_of(TEXT, end="incomplete", details='{"reason":"content_filter"}')
    decoder = ResponsesDecoder(INFO)
    decoder.feed(b'{"type":"response.refusal.done","refusal":"No."}')
    with pytest.raises(ModelRefused, match="No"):
        decoder.reply(())
    failed = (
        b'{"type":"response.failed","response":{"error":{"code":"context_length_exceeded",'
        b'"message":"Your input exceeds the context window of this model."}}}'
    )
    with pytest.raises(ContextOverflow):
        ResponsesDecoder(INFO).feed(failed)
    untyped = b'{"error":{"type":"rate_limit_error","message":"slow down"}}'  # as proxies send it
    with pytest.raises(RateLimited, match="slow down"):
        ResponsesDecoder(INFO).feed(untyped)
    assert not ResponsesDecoder(INFO).feed(b'{"note":"an event of another kind"}')
    for garbage in (b"{", b'{"type":"response.output_item.done","item":5}x', b"[]"):
        with pytest.raises(WireError):
            ResponsesDecoder(INFO).feed(garbage)


def test_counts_that_the_server_leaves_out_are_none():
    decoder = ResponsesDecoder(INFO)
    replay(decoder, sse('{"type":"response.completed","response":{"id":"r","usage":{}}}'))
    usage = decoder.reply(()).usage
    assert (usage.prompt_tokens, usage.cache_read_tokens, usage.output_tokens) == (0, 0, 0)
