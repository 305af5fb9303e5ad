"""Anthropic Messages: what goes out, and what comes in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.providers import shapes
from tests.providers.server import sse
from tests.providers.shapes import INFO, PNG, call, every_cut, replay, result
from tests.support import each
from whet.contract.errors import ModelRefused, RateLimited, Unavailable, WireError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import Message, TextPart, VendorReplay
from whet.providers.anthropic_messages import AnthropicDecoder, AnthropicMessages, thinking_fields
from whet.providers.wire import RequestOptions


def body(*messages: Message, **options: Any) -> dict[str, Any]:
    decoded = msgspec.json.decode(shapes.cache(AnthropicMessages(), **options).body(messages))
    shapes.check(shapes.ANTHROPIC, decoded)
    return decoded


def test_cache_marks_stand_on_the_system_prompt_and_at_the_top():
    sent = body(Message("user", "hi"))
    assert sent["cache_control"] == {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert sent["tools"][0]["input_schema"]["required"] == ["path"]
    assert sent["max_tokens"] == 32_000 and list(sent)[-1] == "messages"


def test_a_run_of_results_and_the_text_after_it_are_one_user_message():
    sent = body(
        Message("user", "go"),
        Message("assistant", "ok \n", (call("a"), call("b", arguments="{oops"))),
        result("a", (TextPart("shot"), PNG)),
        result("b", "no such file", is_error=True),
        Message("user", "also this"),
        Message("assistant", "done"),
    )
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user", "assistant"]
    assistant = sent["messages"][1]["content"]
    assert assistant[0] == {"type": "text", "text": "ok"}
    assert [block["input"] for block in assistant[1:]] == [{"path": "a"}, {}]
    first, second, text = sent["messages"][2]["content"]
    assert first["content"][1]["source"]["media_type"] == "image/png" and "is_error" not in first
    assert second["is_error"] is True and second["content"] == "no such file"
    assert text == {"type": "text", "text": "also this"}


def test_a_result_that_comes_later_still_extends_the_request():
    codec = AnthropicMessages()
    cache = shapes.cache(codec)
    messages = [Message("user", "go"), Message("assistant", "", (call("a"), call("b"))), result("a")]
    before = cache.body(messages)
    after = cache.body([*messages, result("b")])
    assert after.startswith(before.removesuffix(codec.tail(messages)))
    assert len(msgspec.json.decode(after)["messages"][2]["content"]) == 2


def test_empty_texts_are_never_sent():
    sent = body(Message("user", " \n"), Message("assistant", ""), Message("user", ()), result("a", ""))
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "(empty)"}]
    assert sent["messages"][1]["content"] == [{"type": "text", "text": "(empty)"}]
    assert "content" not in sent["messages"][2]["content"][1]


def test_foreign_ids_are_mapped_the_same_way_on_both_sides():
    sent = body(Message("assistant", "", (call("fc:1/2"),)), result("fc:1/2"))
    use, answer = sent["messages"][0]["content"][0], sent["messages"][1]["content"][0]
    assert use["id"] == answer["tool_use_id"] and use["id"].isalnum()


def test_argument_bytes_are_spliced_as_received():
    raw = shapes.cache(AnthropicMessages()).body(
        [Message("assistant", "", (call(arguments='{ "n" : 1.0 }'),))]
    )
    assert b'"input":{ "n" : 1.0 }}' in raw


@each(
    ("model", "effort", "expected"),
    [
        ("claude-sonnet-5-5", "", {}),
        (
            "claude-sonnet-5-5",
            "high",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ("claude-sonnet-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5-5", "none", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (
            "claude-opus-4-6",
            "minimal",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        ("claude-haiku-4-5-20251001", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("claude-sonnet-4-20250514", "high", {"thinking": {"type": "enabled", "budget_tokens": 24_000}}),
        ("claude-haiku-4-5", "none", {}),
        ("claude-opus-4-10", "none", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5-4", "none", {"thinking": {"type": "disabled"}}),
        ("claude-opus-6", "none", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("claude-fable-5", "none", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("claude-mythos-5", "none", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (
            "claude-sonnet-5",
            "medium",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
        ),
        ("another", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("another", "medium", {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
    ],
)
def test_effort_is_said_in_the_models_own_terms(model, effort, expected):
    assert thinking_fields(model, effort, 32_000) == expected


def test_a_thinking_budget_stays_below_the_output_limit():
    assert thinking_fields("claude-haiku-4-5", "high", 4096)["thinking"]["budget_tokens"] == 3072
    assert thinking_fields("claude-haiku-4-5", "high", 2048)["thinking"]["budget_tokens"] == 1024
    assert thinking_fields("claude-haiku-4-5", "high", 2047) == {}
    options = RequestOptions("claude-sonnet-4-5", max_output_tokens=3000, reasoning_effort="high")
    head = msgspec.json.decode(AnthropicMessages().head("", [], options) + b"]}")
    assert head["max_tokens"] == 3000 and head["thinking"]["budget_tokens"] == 1976
    assert not head.keys() & {"system", "tools"}


THINKING_STREAM = sse(
    '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1-x",'
    '"content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,'
    '"cache_read_input_tokens":70,"output_tokens":1,"service_tier":"standard"}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
    '{"type":"ping"}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":""}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hmm “é"}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"”."}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln=="}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"b3Bh"}}',
    '{"type":"content_block_stop","index":1}',
    '{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I’ll look."}}',
    '{"type":"content_block_stop","index":2}',
    '{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1",'
    '"name":"read_file","input":{},"caller":{"type":"direct"}}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta",'
    '"partial_json":"{\\"path\\": "}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"\\"ü\\"}"}}',
    '{"type":"content_block_stop","index":3}',
    '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},'
    '"usage":{"output_tokens":33,"output_tokens_details":{"thinking_tokens":12}}}',
    '{"type":"message_stop"}',
    names=["message_start"] + ["e"] * 19,
)


@pytest.mark.slow
def test_the_thinking_stream_cut_at_every_byte():
    for cuts in every_cut(THINKING_STREAM):
        decoder = AnthropicDecoder(INFO)
        deltas = replay(decoder, THINKING_STREAM, cuts)
        assert deltas == [ReasoningDelta("Hmm “é"), ReasoningDelta("”."), TextDelta("I’ll look.")]
        assert decoder.is_ended
    reply = decoder.reply(())
    assert reply.message.tool_calls[0].arguments == '{"path": "ü"}'
    assert reply.message.reasoning == "Hmm “é”."
    usage = reply.usage
    assert (usage.prompt_tokens, usage.input_tokens, usage.cache_read_tokens) == (100, 10, 70)
    assert (usage.cache_write_tokens, usage.output_tokens, usage.reasoning_tokens) == (20, 33, 12)
    assert usage.cost_usd == pytest.approx((10 * 1 + 70 * 0.1 + 20 * 1.25 + 33 * 2) / 1e6)


def decoded(stream: bytes) -> Message:
    decoder = AnthropicDecoder(INFO)
    replay(decoder, stream)
    return decoder.reply(()).message


def test_thinking_blocks_go_back_unchanged():
    message = decoded(THINKING_STREAM)
    content = body(Message("user", "q"), message, result("toolu_1"))["messages"][1]["content"]
    assert content == [
        {"type": "thinking", "thinking": "Hmm “é”.", "signature": "c2ln=="},
        {"type": "redacted_thinking", "data": "b3Bh"},
        {"type": "text", "text": "I’ll look."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "ü"}},
    ]


def test_a_message_that_was_changed_since_goes_without_its_blocks():
    message = decoded(THINKING_STREAM)
    changed = msgspec.structs.replace(message, tool_calls=())
    assert body(changed)["messages"][0]["content"] == [{"type": "text", "text": "I’ll look."}]
    spoilt = msgspec.structs.replace(message, replay=VendorReplay("anthropic_messages", "[{"))
    assert [b["type"] for b in body(spoilt)["messages"][0]["content"]] == ["text", "tool_use"]
    foreign = msgspec.structs.replace(message, replay=VendorReplay("responses", "[]"))
    assert [b["type"] for b in body(foreign)["messages"][0]["content"]] == ["text", "tool_use"]


def cut_thought(signature: str) -> bytes:
    return sse(
        '{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"deep"}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"SIG"}}'.replace(
            "SIG", signature
        ),
        '{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":3}}',
        '{"type":"message_stop"}',
    )


def test_a_thought_cut_by_the_limit_is_not_replayed_and_never_stands_last():
    assert decoded(cut_thought("")).replay is None
    content = body(decoded(cut_thought("sig")))["messages"][0]["content"]
    assert [block["type"] for block in content] == ["thinking", "text"]


def test_text_alone_needs_no_replay_and_whole_inputs_are_read():
    stream = sse(
        '{"type":"message_start","message":{"model":"m"}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hi"}}',
        '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"x","name":"f",'
        '"input":{"a": 1}}}',
        '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"x","name":"g",'
        '"input":{}}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
        '{"type":"message_stop"}',
    )
    message = decoded(stream)
    assert message.replay is None and message.content == "hi"
    assert [(c.id, c.arguments) for c in message.tool_calls] == [("x", '{"a": 1}'), ("x_2", "{}")]


def test_counts_that_the_server_leaves_out_are_none():
    stream = sse('{"type":"message_start","message":{"model":"m"}}', '{"type":"message_stop"}')
    decoder = AnthropicDecoder(INFO)
    replay(decoder, stream)
    usage = decoder.reply(()).usage
    assert (usage.prompt_tokens, usage.input_tokens, usage.cache_read_tokens) == (0, 0, 0)
    assert (usage.cache_write_tokens, usage.output_tokens, usage.reasoning_tokens) == (0, 0, 0)


def test_an_answer_is_whole_once_it_says_why_it_stopped():
    decoder = AnthropicDecoder(INFO)
    seen: list[tuple[bool, bool]] = []
    for event in (
        b'{"type":"message_start","message":{"model":"m"}}',
        b'{"type":"message_delta","delta":{"stop_reason":null}}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
        b'{"type":"message_stop"}',
    ):
        assert decoder.feed(event) == ()
        seen.append((decoder.is_done, decoder.is_ended))
    assert seen == [(False, False), (False, False), (True, False), (True, True)]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_tokens", "length"), ("model_context_window_exceeded", "length"), ("stop_sequence", "end")],
)
def test_an_answer_that_a_limit_cut_says_so(reason, stop):
    decoder = AnthropicDecoder(INFO)
    decoder.feed(b'{"type":"message_start","message":{}}')
    decoder.feed(b'{"type":"message_delta","delta":{"stop_reason":"%s"}}' % reason.encode())
    reply = decoder.reply(())
    assert (reply.stop, reply.model) == (stop, "m-1")


def test_an_answer_that_the_server_paused_says_so():
    decoder = AnthropicDecoder(INFO)
    decoder.feed(b'{"type":"message_start","message":{}}')
    decoder.feed(b'{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}')
    (warning,) = decoder.reply(()).warnings
    assert "pause_turn" in warning


@pytest.mark.parametrize("given", ["", ',"input":null', ',"input":{}'])
def test_a_call_without_arguments_has_empty_ones(given):
    stream = sse(
        '{"type":"message_start","message":{}}',
        f'{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"a","name":"f"{given}}}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta"}}',
    )
    assert decoded(stream).tool_calls == (call("a", "f", "{}"),)


def test_a_key_is_sent_where_there_is_one():
    assert AnthropicMessages().headers("k")["x-api-key"] == "k"
    assert AnthropicMessages().headers("").keys() == {"content-type", "anthropic-version"}


def test_a_mark_for_the_cache_stands_on_the_last_block_of_its_message():
    marked = Message("assistant", "ok", (call(),), cache_until=True)
    text, use = body(marked, Message("user", "go on"))["messages"][0]["content"]
    assert use["cache_control"] == {"type": "ephemeral"} and "cache_control" not in text


def test_failures_inside_the_stream():
    overloaded = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    with pytest.raises(Unavailable) as caught:
        AnthropicDecoder(INFO).feed(overloaded)
    assert caught.value.status == 529
    with pytest.raises(RateLimited):
        AnthropicDecoder(INFO).feed(b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}')
    with pytest.raises(RateLimited):
        AnthropicDecoder(INFO).feed(
            b'{"error":{"message":"slow","code":429}}'
        )  # by a server that stands between
    with pytest.raises(WireError):
        AnthropicDecoder(INFO).feed(b'{"type":"content_block_start","index":0,"content_block":5}')
    assert AnthropicDecoder(INFO).feed(b"{}") == ()
    with pytest.raises(WireError):
        AnthropicDecoder(INFO).feed(b"{")
    with pytest.raises(WireError):
        AnthropicDecoder(INFO).reply(())
    decoder = AnthropicDecoder(INFO)
    decoder.feed(b'{"type":"message_start","message":{}}')
    decoder.feed(b'{"type":"message_delta","delta":{"stop_reason":"refusal"}}')
    with pytest.raises(ModelRefused):
        decoder.reply(())
