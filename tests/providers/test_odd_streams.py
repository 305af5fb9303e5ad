"""Streams that no format allows and servers send: an answer that is paid for is read."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, cast

import pytest

from tests.providers.server import Script, Server, running, sse
from whet.config.schema import ModelSettings, WireFormat
from whet.contract.events import ReasoningDelta, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply
from whet.contract.tools import ToolSpec
from whet.providers.backoff import Backoff
from whet.providers.connect import connect_one
from whet.providers.odd_events import read_around

HI = [Message("user", "hi")]
TOOLS = [ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {}})]
WORDS = "Grüße 😀 and 💀, 日本"
ARGUMENTS = '{"path": "ä😀.txt"}'


async def _no_wait(seconds: float) -> None:
    """Wait for nothing."""


async def _items(server: Server, wire: str, tools: Sequence[ToolSpec] = TOOLS) -> list[Any]:
    settings = ModelSettings(
        provider="practice",
        base_url=server.url,
        model="m",
        timeout_s=5.0,
        format=cast("WireFormat", wire),
        max_retries=2,
    )
    async with aclosing(connect_one(settings, {}, backoff=Backoff(2, sleep=_no_wait))) as source:
        return [item async for item in source.open("sys", tools, "s-1").stream(HI)]


def ask(wire: str, *bodies: bytes, tools: Sequence[ToolSpec] = TOOLS, cuts: Sequence[int] = ()) -> list[Any]:
    """Return all items of each stream, and check that one request was enough."""

    async def test() -> list[Any]:
        async with asyncio.timeout(600), running() as server:
            items: list[Any] = []
            for body in bodies:
                offsets = [0, *sorted({at % len(body) for at in cuts} - {0}), len(body)]
                chunks = [body[a:b] for a, b in pairwise(offsets)]
                server.answer(Script(chunks))
                items += await _items(server, wire, tools)
            assert len(server.requests) == len(bodies), "a paid answer was asked for again"
            return items

    return asyncio.run(test())


def answer(wire: str, *events: Any, **options: Any) -> Message:
    return ask(wire, stream(*events), **options)[-1].message


def stream(*events: Any) -> bytes:
    return sse(*(event if isinstance(event, bytes) else json.dumps(event) for event in events))


def chat(delta: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, **fields}],
    }


def chat_events() -> list[Any]:
    call = {"index": 0, "id": "call_1", "type": "function"}
    return [
        chat({"role": "assistant", "content": WORDS[:3]}),
        chat({"content": WORDS[3:], "reasoning_content": "hm"}),
        chat({"tool_calls": [{**call, "function": {"name": "read_file", "arguments": ARGUMENTS[:5]}}]}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[5:]}}]}),
        chat({}, finish_reason="tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}},
        b"[DONE]",
    ]


def anthropic_events() -> list[Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
    part = {"type": "input_json_delta"}
    return [
        {
            "type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 30, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORDS[:3]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORDS[3:]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": use},
        {"type": "content_block_delta", "index": 1, "delta": {**part, "partial_json": ARGUMENTS[:5]}},
        {"type": "content_block_delta", "index": 1, "delta": {**part, "partial_json": ARGUMENTS[5:]}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def responses_events() -> list[Any]:
    text = {"type": "message", "content": [{"type": "output_text", "text": WORDS}]}
    call = {"type": "function_call", "call_id": "fc_1", "name": "read_file", "arguments": ARGUMENTS}
    usage = {"input_tokens": 30, "output_tokens": 9, "total_tokens": 39}
    pieces = "response.function_call_arguments.delta"
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": WORDS[:3]},
        {"type": "response.output_text.delta", "output_index": 0, "delta": WORDS[3:]},
        {"type": "response.output_item.done", "output_index": 0, "item": text},
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
        {"type": pieces, "output_index": 1, "delta": ARGUMENTS},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": {"model": "m", "usage": usage, "output": [text, call]}},
    ]


WIRES: dict[str, Callable[[], list[Any]]] = {
    "chat_completions": chat_events,
    "anthropic_messages": anthropic_events,
    "responses": responses_events,
}
# Without these no client knows what an event is, or what is to be called.
NEEDED = {"type", "choices", "delta", "content", "text", "partial_json", "name", "arguments", "function"}
NEEDED |= {"tool_calls", "content_block", "item", "stop_reason", "finish_reason"}
OTHERS: list[Any] = [None, 7, 1.5, -1, 10**30, True, "x", [], {}, [1], {"a": [None]}, "½", [[]] * 3]


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Give each field that a client can do without, as its object and its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in NEEDED:
                yield value, key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)


def escaped(event: Any, rng: random.Random) -> bytes:
    """Give an event's JSON in one of the ways that servers write it."""
    text = json.dumps(event, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.3 and text.startswith("{"):  # the same field twice
        text = f'{{"id": "first", {text[1:-1]}, "id": 5, "extra": {{"deep": {"[" * 300}{"]" * 300}}}}}'
    return text.encode()


def odd_stream(events: list[Any], rng: random.Random) -> bytes:
    """Give a stream of an answer with one to three oddities, none of which takes a part of its content."""
    for _ in range(rng.randint(1, 3)):
        places = [place for event in events for place in leaves(event)]
        owner, key = rng.choice(places)
        if rng.random() < 0.4:
            del owner[key]
        else:
            owner[key] = rng.choice(OTHERS)
    if rng.random() < 0.3:
        events.insert(rng.randrange(len(events) - 1), {"type": "keepalive", "choices": None, "x": 1e999})
    if rng.random() < 0.3 and events[-1] != b"[DONE]":
        events.append(events[-1])
    return sse(*(event if isinstance(event, bytes) else escaped(event, rng) for event in events))


def check_odd_streams(seeds: range) -> None:
    for wire, events in WIRES.items():
        rngs = [random.Random(f"{wire} {seed}") for seed in seeds]
        bodies = [odd_stream(events(), rng) for rng in rngs]
        cuts = [rngs[0].randrange(4_000) for _ in range(40)]
        replies = [item for item in ask(wire, *bodies, cuts=cuts) if isinstance(item, ModelReply)]
        for body, reply in zip(bodies, replies, strict=True):
            assert reply.message.text == WORDS, body
            assert [call.name for call in reply.message.tool_calls] == ["read_file"], body
            json.dumps([reply.message.tool_calls[0].arguments]).encode()
            assert 0 <= reply.usage.total_tokens < 10**6, body


def test_odd_fields_cost_no_answer():
    check_odd_streams(range(12))


@pytest.mark.slow
def test_three_hundred_odd_streams_cost_no_answer():
    check_odd_streams(range(100, 400))


@pytest.mark.fast_rows("halves0", "chat_completions")
@pytest.mark.parametrize(
    "halves",
    [
        (rb"hi \ud83d", rb"\ude00 end"),
        (b"hi \xf0\x9f", b"\x98\x80 end"),
        (b"hi \xf0", b"\x9f\x98\x80 end"),
        (rb"hi \uD83D", rb"\uDE00 end"),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_a_character_in_two_events_is_one(wire: str, halves: tuple[bytes, bytes]):
    shapes = {
        "chat_completions": (b'{"choices":[{"delta":{"content":"%s"}}]}', [chat({}, finish_reason="stop")]),
        "anthropic_messages": (
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}',
            anthropic_events()[-2:],
        ),
        "responses": (
            b'{"type":"response.output_text.delta","delta":"%s"}',
            [{"type": "response.completed", "response": {}}],
        ),
    }
    shape, end = shapes[wire]
    *deltas, reply = ask(wire, stream(shape % halves[0], shape % halves[1], *end))
    assert reply.message.text == "hi 😀 end"
    assert "".join(delta.text for delta in deltas) == "hi 😀 end"


def test_a_byte_that_is_no_text_spoils_one_character():
    event = b'{"choices":[{"delta":{"content":"a\xffb"},"finish_reason":"stop"}]}'
    assert answer("chat_completions", event).text == "a\ufffdb"


def test_a_character_without_its_other_half_is_replaced_at_the_end():
    event = rb'{"choices":[{"delta":{"content":"a\ud83d"},"finish_reason":"stop"}]}'
    *deltas, reply = ask("chat_completions", stream(event))
    assert reply.message.text == "".join(delta.text for delta in deltas) == "a\ufffd"


def test_a_defect_in_one_call_spoils_that_call_only():
    good = {"id": "a", "function": {"name": "read_file", "arguments": "{}"}}
    odd = {"id": 5, "index": "1", "function": {"name": ["x"], "arguments": 7}}
    message = answer("chat_completions", chat({"tool_calls": [{"index": 0, **good}, odd]}, finish_reason="x"))
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read_file", "{}"), ("", "7")]


@pytest.mark.parametrize("depth", [200, 100_000])
def test_arguments_nested_without_end_are_no_crash(depth: int):
    nested = "[" * depth + "]" * depth
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "DEEP"}}
    event = json.dumps(chat({"tool_calls": [call]})).replace('"DEEP"', nested)
    events = (event.encode(), chat({}, finish_reason="stop"))
    (tool_call,) = answer("chat_completions", *events).tool_calls
    assert tool_call.name == "f" and len(tool_call.arguments) < 1_000


def test_a_call_that_is_sent_twice_is_one_call():
    call = {"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": "{}"}}
    event = chat({"tool_calls": [call]})
    assert len(answer("chat_completions", event, event, chat({}, finish_reason="stop")).tool_calls) == 1
    events = anthropic_events()
    assert answer("anthropic_messages", *events[:6], *events[5:]).tool_calls[0].arguments == ARGUMENTS


def test_a_message_repeated_at_the_end_is_said_once():
    whole = {"choices": [{"message": {"content": WORDS}, "finish_reason": "stop"}]}
    assert answer("chat_completions", chat({"content": WORDS}), whole).text == WORDS


def test_blocks_that_share_an_index_keep_their_order():
    events = anthropic_events()
    for event in events:
        event.pop("index", None)
    message = answer("anthropic_messages", *events)
    assert (message.text, message.tool_calls[0].arguments) == (WORDS, ARGUMENTS)


@pytest.mark.parametrize("missing", ["response.output_item.done", "response.output_text.delta", "delta"])
def test_what_one_event_lacks_is_read_from_another(missing: str):
    events = [event for event in responses_events() if missing not in event["type"]]
    *deltas, reply = ask("responses", stream(*events))
    assert (reply.message.text, reply.message.tool_calls[0].arguments) == (WORDS, ARGUMENTS)
    assert "".join(delta.text for delta in deltas) == WORDS


THOUGHT = "The client is broke."
SPELLINGS = {
    "think": f"<think>\n{THOUGHT}\n</think>\n\n",
    "thinking": f"<thinking>{THOUGHT}</thinking>\n",
    "two": f"<think>{THOUGHT}</think>\n<think>again</think>",
    "square": f"[THINK]{THOUGHT}[/THINK]",
    "seed": f"<seed:think>{THOUGHT}</seed:think>",
    "kimi": f"◁think▷{THOUGHT}◁/think▷",
    "thought": f"\n<thought>\n{THOUGHT}\n</thought>\n",
    "cohere": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|>",
    "harmony": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>",
    "bare": f"analysis{THOUGHT}assistantfinal",
    "lone": f"{THOUGHT}\n</think>\n\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_thoughts_in_the_text_are_thoughts(spelling: str):
    text = SPELLINGS[spelling] + "Yes, gladly."
    for width in (len(text), 1, 3, 7):
        deltas = [chat({"content": text[at : at + width]}) for at in range(0, len(text), width)]
        items = ask("chat_completions", stream(*deltas, chat({}, finish_reason="stop")))
        message = items[-1].message
        assert (message.text.strip(), THOUGHT in message.reasoning) == ("Yes, gladly.", True), width
        restarts = [at for at, item in enumerate(items) if isinstance(item, StreamRestarted)]
        shown = items[restarts[-1] if restarts else 0 :]
        assert "".join(item.text for item in shown if isinstance(item, TextDelta)).strip() == "Yes, gladly."
        assert any(isinstance(item, ReasoningDelta) for item in items)


@pytest.mark.parametrize(
    "text",
    [
        "Put `<think>` before and `</think>` after it.",
        "```\n<think>\nhm\n</think>\n```\nThat is the form.",
        "A tag <think> opens, and a tag </think> closes thoughts.",
        "Two lines:\n<think>\nis how it begins, and nothing ends it.",
        "analysis of variance is a method",
        "[Think](https://example.com) about <b>this</b> [",
        "Models write:\n<tool_call>\n{}\n</tool_call>\nand wait.",
        "Like so: `<tool_call>{}</tool_call>`",
        "  indented <",
    ],
)
def test_words_about_thoughts_and_calls_stay_words(text: str):
    for width in (len(text), 1, 5):
        deltas = [chat({"content": text[at : at + width]}) for at in range(0, len(text), width)]
        *_, reply = ask("chat_completions", stream(*deltas, chat({}, finish_reason="stop")))
        assert (reply.message.text, reply.message.tool_calls) == (text, ())


HTML = "<b>x</b>\n[1, 2]"
CALL = json.dumps({"name": "write_file", "arguments": {"path": "a", "content": HTML}})
WRITTEN = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "cut": f"<tool_call>\n{CALL}",
    "thoughts first": f"<think>hm</think>\nI will write it.\n<tool_call>{CALL}</tool_call>\n",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "llama": f"<|python_tag|>{CALL}",
    "coder": f"<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n"
    f"<parameter=content>\n{HTML}\n</parameter>\n</function>\n</tool_call>",
    "harmony": "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>"
    + json.dumps({"path": "a", "content": HTML})
    + "<|call|>",
}


@pytest.mark.fast_rows("chat_completions")
@pytest.mark.parametrize("spelling", WRITTEN)
@pytest.mark.parametrize("wire", ["chat_completions", "responses"])
def test_a_call_written_as_text_is_a_call(wire: str, spelling: str):
    text = WRITTEN[spelling]
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    events: list[Any] = [chat({"content": piece}) for piece in pieces] + [chat({}, finish_reason="stop")]
    if wire == "responses":
        events = [{"type": "response.output_text.delta", "delta": piece} for piece in pieces]
        events.append({"type": "response.completed", "response": {}})
    *deltas, reply = ask(wire, stream(*events))
    (call,) = reply.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("write_file", {"path": "a", "content": HTML})
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert "write_file" not in shown + reply.message.text


def test_no_call_is_read_from_text_if_no_tool_was_offered():
    events = (chat({"content": WRITTEN["hermes"]}), chat({}, finish_reason="stop"))
    message = answer("chat_completions", *events, tools=())
    assert (message.text, message.tool_calls) == (WRITTEN["hermes"], ())


def test_a_block_of_an_unknown_kind_of_piece_splits_no_call() -> None:
    events = anthropic_events()
    later = {"type": "content_block_delta", "index": 1, "delta": {"type": "later_delta", "value": 1}}
    at = next(n for n, event in enumerate(events) if event.get("delta", {}).get("partial_json")) + 1
    (call,) = answer("anthropic_messages", *events[:at], later, *events[at:]).tool_calls
    assert (call.name, call.arguments) == ("read_file", ARGUMENTS)


def test_bytes_that_are_no_text_in_a_field_kept_raw_do_not_end_the_turn() -> None:
    use = {"type": "tool_use", "id": "t", "name": "read_file", "input": {"path": "BAD"}}
    head = anthropic_events()[0]
    events = [head, {"type": "content_block_start", "index": 0, "content_block": use}]
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}
    body = stream(*events, end, {"type": "message_stop"}).replace(b"BAD", b"a\xc3.txt")
    (call,) = ask("anthropic_messages", body)[-1].message.tool_calls
    assert json.loads(call.arguments)["path"].startswith("a")


def test_an_event_cut_in_a_text_is_read_in_time_that_grows_with_its_length() -> None:
    body = b'{"choices": [{"delta": {"content": "' + b'\\"' * 200_000
    with pytest.raises(ValueError, match=r"JSON|Unterminated"):
        read_around(body, dict)  # type: ignore[arg-type]
