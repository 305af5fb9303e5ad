"""Chat Completions: what goes out, and the streams of the servers that speak it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.providers import shapes
from tests.providers.server import sse
from tests.providers.shapes import INFO, PNG, call, every_cut, replay, result
from whet.contract.errors import ContextOverflow, ModelRefused, RateLimited, Unavailable, WireError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import Message, TextPart, VendorReplay
from whet.providers.catalog import SERVERS
from whet.providers.chat_completions import ChatCompletions, ChatDecoder
from whet.providers.wire import RequestOptions, ServerDialect

OPENAI = SERVERS["openai"].dialect


def body(*messages: Message, dialect: ServerDialect = OPENAI, **options: Any) -> dict[str, Any]:
    decoded = msgspec.json.decode(shapes.cache(ChatCompletions(dialect), **options).body(messages))
    shapes.check(shapes.CHAT, decoded)
    return decoded


def test_the_head_holds_what_the_settings_ask_for():
    sent = body(Message("user", "hi"), max_output_tokens=77, reasoning_effort="low")
    assert sent["max_completion_tokens"] == 77 and "max_tokens" not in sent
    assert sent["reasoning_effort"] == "low"
    assert sent["prompt_cache_key"] == "s-1"
    assert sent["stream_options"] == {"include_usage": True}
    assert "temperature" not in sent
    (tool,) = sent["tools"]
    assert tool["type"] == "function" and tool["function"]["name"] == "read_file"
    bare = ChatCompletions(OPENAI).head("", (), RequestOptions("m-1"))
    assert msgspec.json.decode(bare + b"]}").keys() == {"model", "stream", "stream_options", "messages"}
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def test_other_servers_get_no_cache_key_and_the_older_field():
    sent = body(Message("user", "hi"), dialect=SERVERS["groq"].dialect, max_output_tokens=5)
    assert sent["max_tokens"] == 5 and "prompt_cache_key" not in sent


@pytest.mark.parametrize(
    ("provider", "effort", "field", "value"),
    [
        ("openrouter", "high", "reasoning", {"effort": "high"}),
        ("openrouter", "none", "reasoning", {"enabled": False}),
        ("deepseek", "none", "thinking", {"type": "disabled"}),
        ("deepseek", "high", "thinking", {"type": "enabled"}),
        ("groq", "medium", "reasoning_effort", "medium"),
    ],
)
def test_effort_is_asked_for_in_the_servers_own_field(provider, effort, field, value):
    codec = ChatCompletions(SERVERS[provider].dialect)
    sent = msgspec.json.decode(shapes.cache(codec, reasoning_effort=effort).body([]))
    assert sent[field] == value


def test_arguments_go_back_as_received_or_empty():
    odd = '{ "path" :\t"a" }'
    sent = body(Message("assistant", "", (call("1", arguments=odd), call("2", arguments='{"path": "a'))))
    functions = [c["function"]["arguments"] for c in sent["messages"][1]["tool_calls"]]
    assert functions == [odd, "{}"]
    assert sent["messages"][1]["content"] is None


def test_images_of_results_follow_the_run_of_results():
    sent = body(
        Message("user", (TextPart("look"), PNG)),
        Message("assistant", "", (call("1"), call("2"))),
        result("1", (TextPart("shot"), PNG)),
        result("2"),
        Message("assistant", "seen"),
    )
    assert [m["role"] for m in sent["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "user", "assistant",
    ]  # fmt: skip
    assert sent["messages"][3]["content"] == "shot"
    assert sent["messages"][5]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


def test_names_and_ids_are_made_acceptable():
    sent = body(Message("assistant", "", (call("x" * 99, "functions.read file"),)), result("x" * 99))
    sent_call, answer = sent["messages"][1]["tool_calls"][0], sent["messages"][2]
    assert sent_call["function"]["name"] == "functions_read_file"
    assert sent_call["id"] == answer["tool_call_id"] and len(sent_call["id"]) <= 40
    sent = body(Message("assistant", "", (call("toolu_01ABC"),)), dialect=SERVERS["mistral"].dialect)
    assert len(sent["messages"][1]["tool_calls"][0]["id"]) == 9


OPENAI_STREAM = sse(
    '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m-1-0601","service_tier":"default",'
    '"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
    '"finish_reason":null}],"usage":null}',
    '{"id":"c","model":"m-1-0601","choices":[{"index":0,"delta":{"content":"Lüft"},"finish_reason":null}]}',
    '{"id":"c","choices":[{"index":0,"delta":{"content":"日🙂"},"finish_reason":null}]}',
    '{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function",'
    '"function":{"name":"read_file","arguments":""}}]},"finish_reason":null}]}',
    '{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":'
    '{"arguments":"{\\"path\\": "}}]}}]}',
    '{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function",'
    '"function":{"name":"read_file","arguments":"{}"}},{"index":0,"function":{"arguments":"\\"é\\"}"}}]}}]}',
    '{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
    '{"id":"c","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,'
    '"prompt_tokens_details":{"cached_tokens":60,"audio_tokens":0},'
    '"completion_tokens_details":{"reasoning_tokens":7}}}',
    "[DONE]",
)


@pytest.mark.slow
def test_the_openai_stream_cut_at_every_byte():
    for cuts in every_cut(OPENAI_STREAM):
        decoder = ChatDecoder(INFO)
        deltas = replay(decoder, OPENAI_STREAM, cuts)
        assert deltas == [TextDelta("Lüft"), TextDelta("日🙂")]
        assert decoder.is_done and decoder.is_ended
        reply = decoder.reply(())
        assert reply.message.content == "Lüft日🙂"
        assert [(c.id, c.arguments) for c in reply.message.tool_calls] == [
            ("call_a", '{"path": "é"}'),
            ("call_b", "{}"),
        ]
        usage = reply.usage
        assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (40, 60, 20)
        assert usage.reasoning_tokens == 7 and usage.total_tokens == 120
        assert usage.cost_usd == pytest.approx((40 * 1 + 60 * 0.1 + 20 * 2) / 1e6)
        assert reply.model == "m-1-0601" and reply.stop == "end" and reply.message.replay is None


def calls_of(*deltas: str, taken: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    decoder = ChatDecoder(INFO)
    for delta in deltas:
        decoder.feed(b'{"choices":[{"delta":{"tool_calls":[' + delta.encode() + b"]}}]}")
    return [(c.id, c.name, c.arguments) for c in decoder.reply(taken).message.tool_calls]


@pytest.mark.parametrize(
    "names", [["termi", "nal"], ["terminal", "terminal"], ["termi", "terminal"], ["t", "ermi", "nal"]]
)
def test_the_pieces_of_a_streamed_name_are_joined(names: list[str]) -> None:
    piece = '{"index":0,"id":"a","function":{"name":"%s","arguments":""}}'
    rest = '{"index":0,"function":{"name":"","arguments":"{}"}}'
    assert calls_of(*(piece % name for name in names), rest) == [("a", "terminal", "{}")]


def test_tool_calls_are_assembled_however_a_server_sends_them():
    whole = '{"index":0,"id":"%s","function":{"name":"f","arguments":"{\\"n\\":%d}"}}'
    # all whole calls claim index 0 (Gemini), with and without an id of their own
    assert calls_of(whole % ("a", 1), whole % ("b", 2)) == [("a", "f", '{"n":1}'), ("b", "f", '{"n":2}')]
    assert calls_of(whole % ("a", 1), whole % ("a", 2)) == [("a", "f", '{"n":1}'), ("a_2", "f", '{"n":2}')]
    # no index, no id
    bare = '{"function":{"name":"f","arguments":"{}"}}'
    assert calls_of(bare, bare) == [("call_0", "f", "{}"), ("call_1", "f", "{}")]
    # the id and name repeated in every piece, no index
    first = '{"id":"a","function":{"name":"f","arguments":"{\\"n\\""}}'
    second = '{"id":"a","function":{"name":"f","arguments":":1}"}}'
    assert calls_of(first, second) == [("a", "f", '{"n":1}')]
    # pieces without index and id belong to the newest call
    begun = '{"id":"%s","function":{"name":"f","arguments":"{\\"n\\""}}'
    rest = '{"function":{"arguments":":%d}"}}'
    assert calls_of(begun % "a", rest % 1, begun % "b", rest % 2) == [
        ("a", "f", '{"n":1}'),
        ("b", "f", '{"n":2}'),
    ]
    # arguments as an object, or none at all
    assert calls_of('{"index":0,"id":"a","function":{"name":"f","arguments":{"n":1}}}') == [
        ("a", "f", '{"n":1}')
    ]
    assert calls_of('{"index":0,"id":"a","function":{"name":"f"}}') == [("a", "f", "{}")]
    # the id comes after the first piece
    late = (
        '{"index":0,"function":{"name":"f","arguments":"{\\"n\\":"}}',
        '{"index":0,"id":"a","function":{"arguments":"1}"}}',
    )
    assert calls_of(*late) == [("a", "f", '{"n":1}')]
    # an id that an earlier message had
    assert calls_of(whole % ("a", 1), taken=("a", "a_2")) == [("a_3", "f", '{"n":1}')]
    # another id or a whole call before is another call, a name that is said again is none
    assert calls_of(begun.replace("{", '{"index":0,', 1) % "a", whole % ("b", 2)) == [
        ("a", "f", '{"n"'),
        ("b", "f", '{"n":2}'),
    ]
    again = '{"index":0,"function":{"name":"g","arguments":":1}"}}'
    assert calls_of(begun.replace("{", '{"index":0,', 1) % "a", again) == [("a", "f", '{"n":1}')]
    # a call without a name can be answered, one without anything is none
    assert calls_of('{"index":0,"id":"a","function":{"arguments":"{}"}}', '{"index":1,"id":"b"}') == [
        ("a", "", "{}")
    ]
    # cut in the middle: kept as received
    assert calls_of('{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"n"}}') == [("a", "f", '{"n')]


def test_reasoning_goes_back_where_the_server_wants_it():
    stream = sse(
        '{"choices":[{"delta":{"reasoning_content":"think"}}]}',
        '{"choices":[{"delta":{"reasoning_content":"ing"}}]}',
        '{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}',
        '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":5}}',
        "[DONE]",
    )
    decoder = ChatDecoder(INFO, SERVERS["deepseek"].dialect.replay_fields)
    assert replay(decoder, stream)[:2] == [ReasoningDelta("think"), ReasoningDelta("ing")]
    reply = decoder.reply(())
    assert reply.message.reasoning == "thinking" and reply.usage.cache_read_tokens == 5
    sent = body(reply.message, dialect=SERVERS["deepseek"].dialect)
    assert sent["messages"][1]["reasoning_content"] == "thinking"
    assert set(body(reply.message)["messages"][1]) == {"role", "content"}


def test_openrouters_reasoning_blocks_are_joined_and_go_back_unchanged():
    stream = sse(
        ": OPENROUTER PROCESSING",
        '{"choices":[{"delta":{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a",'
        '"format":"anthropic-claude-v1","index":0}]}}]}',
        '{"choices":[{"delta":{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b",'
        '"format":"anthropic-claude-v1","index":0}]}}]}',
        '{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"sig","index":0}]}}]}',
        '{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"zz","index":1}]}}]}',
        '{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}',
        '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"cost":0.25}}',
        "[DONE]",
    ).replace(b"data: : O", b": O")
    decoder = ChatDecoder(INFO, SERVERS["openrouter"].dialect.replay_fields)
    replay(decoder, stream)
    reply = decoder.reply(())
    assert reply.usage.cost_usd == 0.25
    sent = body(reply.message, dialect=SERVERS["openrouter"].dialect)
    assert sent["messages"][1]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "ab",
            "format": "anthropic-claude-v1",
            "index": 0,
            "signature": "sig",
        },
        {"type": "reasoning.encrypted", "data": "zz", "index": 1},
    ]


def thought(number: int | None, kind: str = "text", **fields: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", "index": number, **fields}


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        (
            [thought(0, text="a"), thought(1, text="b"), thought(1, text="c")],
            [thought(0, text="a"), thought(1, text="bc")],
        ),
        (
            [thought(0, "summary", summary="a"), thought(0, "summary", summary="b", format=None)],
            [thought(0, "summary", summary="ab")],
        ),
        (
            [thought(0, text=None, signature="s"), thought(0, text="a", signature=None)],
            [thought(0, text="a", signature="s")],
        ),
        ([thought(0, text="a"), thought(0, "summary", summary="b")],) * 2,
        ([thought(0, "encrypted", data="a"), thought(0, "encrypted", data="b")],) * 2,
        ([{"text": "a"}, {"text": "b"}],) * 2,
    ],
)
def test_pieces_of_one_reasoning_block_are_joined_and_others_are_not(pieces, kept):
    decoder = ChatDecoder(INFO, ("reasoning_details",))
    for piece in pieces:
        assert not decoder.feed(msgspec.json.encode({"choices": [{"delta": {"reasoning_details": [piece]}}]}))
    sent = decoder.reply(()).message.replay
    assert sent is not None and msgspec.json.decode(sent.blocks_json) == {"reasoning_details": kept}


def test_geminis_thought_signature_goes_back_with_its_call():
    stream = sse(
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"f1","function":{"name":"f","arguments":"{}"},'
        '"extra_content":{"google":{"thought_signature":"AB=="}}}]},"finish_reason":"tool_calls"}]}',
        "[DONE]",
    )
    decoder = ChatDecoder(INFO, SERVERS["gemini"].dialect.replay_fields)
    replay(decoder, stream)
    message = decoder.reply(()).message
    sent = body(message, dialect=SERVERS["gemini"].dialect)
    assert sent["messages"][1]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "AB=="}}
    assert "extra_content" not in body(message)["messages"][1]["tool_calls"][0]


def test_mistrals_content_pieces_are_read():
    decoder = ChatDecoder(INFO)
    data = (
        b'{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},'
        b'{"type":"text","text":"yes"}]},"finish_reason":"stop"}]}'
    )
    assert decoder.feed(data) == [ReasoningDelta("hm"), TextDelta("yes")]
    message = decoder.reply(()).message
    assert (message.content, message.reasoning) == ("yes", "hm")


def test_an_answer_that_was_not_streamed_is_read_too():
    decoder = ChatDecoder(INFO)
    deltas = decoder.feed(
        b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"length"}]}'
    )
    assert deltas == [TextDelta("hi")]
    assert decoder.is_done and decoder.reply(()).stop == "length"


def test_pieces_that_say_nothing_show_nothing():
    decoder = ChatDecoder(INFO)
    for silent in (
        '{"choices":[{}]}',
        '{"choices":[{"delta":null}]}',
        '{"choices":[]}',
        '{"choices":[{"delta":{}}]}',
    ):
        assert not list(decoder.feed(silent.encode())) and not decoder.is_done
    reply = decoder.reply(())
    assert (reply.message.content, reply.message.tool_calls, reply.stop) == ("", (), "end")


def test_text_beside_calls_and_an_answer_without_text_are_sent():
    sent = body(Message("assistant", "ok", (call(),)), Message("assistant", ""), Message("user", ()))
    assert [message["content"] for message in sent["messages"][1:]] == ["ok", "", ""]
    assert "tool_calls" not in sent["messages"][2]


def test_reasoning_goes_back_under_the_name_that_it_came_by():
    fields = SERVERS["vllm"].dialect.replay_fields
    for name in ("reasoning_content", "reasoning"):
        decoder = ChatDecoder(INFO, fields)
        decoder.feed(msgspec.json.encode({"error": None, "choices": [{"delta": {name: "hm"}}]}))
        sent = body(decoder.reply(()).message, dialect=SERVERS["vllm"].dialect)["messages"][1]
        assert {key: sent[key] for key in fields if key in sent} == {name: "hm"}


@pytest.mark.parametrize("server", ["vllm", "openrouter", "gemini"])
def test_an_answer_without_anything_to_go_back_has_no_replay(server):
    decoder = ChatDecoder(INFO, SERVERS[server].dialect.replay_fields)
    decoder.feed(
        b'{"choices":[{"delta":{"content":"x","tool_calls":'
        b'[{"id":"a","function":{"name":"f"},"extra_content":null}]}}]}'
    )
    assert decoder.reply(()).message.replay is None


def test_errors_inside_the_stream_are_typed():
    cases: list[tuple[bytes, type[Exception]]] = [
        (b'{"error":{"code":429,"message":"Rate limit exceeded"}}', RateLimited),
        (b'{"error":{"message":"too long","code":"context_length_exceeded"}}', ContextOverflow),
        (b'{"error":"loading failed"}', Unavailable),
        (b'{"choices":[{"finish_reason":"stop","error":{"code":502,"message":"Worker full"}}]}', Unavailable),
        (b'{"choices":[{"delta":{},"error":{"code":429,"message":"Rate limit"}}]}', RateLimited),
        (b'{"object":"error","message":"boom","code":500}', Unavailable),
        (b"<html>", WireError),
        (b'{"choices":[{"delta":{"content":"x', WireError),
    ]
    for data, expected in cases:
        with pytest.raises(expected):
            ChatDecoder(INFO).feed(data)


def test_refusals_and_empty_streams_are_no_answers():
    decoder = ChatDecoder(INFO)
    decoder.feed(b'{"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}')
    with pytest.raises(ModelRefused):
        decoder.reply(())
    decoder = ChatDecoder(INFO)
    decoder.feed(b'{"choices":[{"delta":{"refusal":"I will not."},"finish_reason":"stop"}]}')
    with pytest.raises(ModelRefused, match="I will not"):
        decoder.reply(())
    decoder = ChatDecoder(INFO)
    decoder.feed(b"[DONE]")
    with pytest.raises(WireError, match="without an answer"):
        decoder.reply(())


def test_a_spoilt_replay_is_left_out():
    spoilt = Message("assistant", "x", replay=VendorReplay("chat_completions", "not json"))
    assert body(spoilt, dialect=SERVERS["deepseek"].dialect)["messages"][1] == {
        "role": "assistant",
        "content": "x",
        "reasoning_content": " ",
    }


def test_no_usage_is_zero_tokens_at_an_unknown_price():
    decoder = ChatDecoder(INFO)
    decoder.feed(b'{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}')
    usage = decoder.reply(()).usage
    assert usage.prompt_tokens == 0 and usage.cost_usd is None
    assert usage.completion_tokens == usage.cache_read_tokens == usage.cache_write_tokens == 0
