"""Streams framed in other ways, without their ends, with usage and choices in odd places: nothing is lost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from tests.providers.server import Script, running
from tests.providers.test_link import HI, Waits, provider, reply, run
from tests.providers.test_odd_streams import ARGUMENTS, WIRES, WORDS, ask, chat, chat_events
from whet.contract.errors import Unavailable
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply

Frame = Callable[[list[bytes], random.Random], bytes]


def payloads(wire: str) -> list[bytes]:
    return [event if isinstance(event, bytes) else json.dumps(event).encode() for event in WIRES[wire]()]


def joined(events: list[bytes], end: bytes = b"\n", before: bytes = b"data: ") -> bytes:
    return b"".join(before + event + end + end for event in events)


def with_names(events: list[bytes], rng: random.Random) -> bytes:
    names = [rng.choice([b"message", b"", b"chunk", b"delta"]) for _ in events]
    return b"".join(
        b"event: " + name + b"\nid: 1\nretry: 5\ndata: " + event + b"\n\n"
        for name, event in zip(names, events, strict=True)
    )


def split_in_lines(events: list[bytes], rng: random.Random) -> bytes:
    """Each event as indented JSON on several data lines."""
    lines = [
        event if event == b"[DONE]" else json.dumps(json.loads(event), indent=1).encode() for event in events
    ]
    return b"".join(b"".join(b"data: " + row + b"\n" for row in line.split(b"\n")) + b"\n" for line in lines)


def with_keep_alives(events: list[bytes], rng: random.Random) -> bytes:
    fillers = [
        b": ping\n\n",
        b"\n",
        b":\n",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b"data:\n\n",
        b"data: \n\n",
    ]
    fillers += [b": OPENROUTER PROCESSING\n\n", b"event: heartbeat\n\n"]
    return b"".join(rng.choice(fillers) + joined([event]) for event in events)


FRAMES: dict[str, Frame] = {
    "crlf": lambda events, rng: joined(events, b"\r\n"),
    "cr": lambda events, rng: joined(events, b"\r"),
    "mixed ends": lambda events, rng: b"".join(
        joined([e], rng.choice([b"\n", b"\r\n", b"\r"])) for e in events
    ),
    "no space": lambda events, rng: joined(events, before=b"data:"),
    "two spaces": lambda events, rng: joined(events, before=b"data:  "),
    "mark": lambda events, rng: b"\xef\xbb\xbf" + joined(events),
    "keep-alives": with_keep_alives,
    "names": with_names,
    "lines": split_in_lines,
    "no last line end": lambda events, rng: joined(events).rstrip(b"\n"),
    "one line end": lambda events, rng: b"".join(b"data: " + event + b"\n" for event in events),
    "done twice": lambda events, rng: joined([*events, b"[DONE]", b"[DONE]"]),
    "no done": lambda events, rng: joined([event for event in events if event != b"[DONE]"]),
    "done with blanks": lambda events, rng: joined(
        [b" [DONE] " if event == b"[DONE]" else event for event in events]
    ),
    "unknown first": lambda events, rng: joined([b'{"type":"x.new","x":[1]}', *events]),
    "unknown between": lambda events, rng: joined(
        [e for event in events for e in (event, b'{"type":"response.later","delta":null}')]
    ),
    "not an object": lambda events, rng: joined([e for event in events for e in (b"null", event)]),
}


@pytest.mark.fast_rows("-crlf", "chat_completions-")
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_in_another_frame_is_read_whole(wire: str, frame: str) -> None:
    rng = random.Random(frame)
    body = FRAMES[frame](payloads(wire), rng)
    cuts = [rng.randrange(len(body)) for _ in range(30)]
    check(ask(wire, body, cuts=cuts)[-1])


def check(reply: ModelReply) -> None:
    assert (reply.message.text, [call.name for call in reply.message.tool_calls]) == (WORDS, ["read_file"])
    assert reply.message.tool_calls[0].arguments == ARGUMENTS
    assert reply.usage.output_tokens >= 9


def usage_events(kind: str) -> list[Any]:
    *events, usage, done = chat_events()
    usage["usage"] |= {"completion_tokens": 40, "total_tokens": 70}
    some = {"prompt_tokens": 30, "completion_tokens": 1}
    return {
        "early": [usage, *events, done],
        "with the finish": [*events[:-1], events[-1] | {"usage": usage["usage"]}, done],
        "in each": [*(event | {"usage": usage["usage"]} for event in events), done],
        "growing": [events[0] | {"usage": some}, *events[1:], usage, done],
        "twice": [*events, usage, usage, done],
        "null, then late": [*(event | {"usage": None} for event in events), usage, done],
        "after done": [*events, done, usage],
        "without choices": [*events, {"usage": usage["usage"]}, done],
        "in x_groq": [*events[:-1], events[-1] | {"x_groq": {"usage": usage["usage"]}}, done],
    }[kind]


USAGES = ["early", "with the finish", "in each", "growing", "twice", "null, then late", "without choices"]


@pytest.mark.parametrize("kind", [*USAGES, "after done", "in x_groq"])
def test_usage_counts_once_wherever_it_stands(kind: str) -> None:
    body = joined([e if isinstance(e, bytes) else json.dumps(e).encode() for e in usage_events(kind)])
    reply = ask("chat_completions", body)[-1]
    check(reply)
    if kind in USAGES:
        assert (reply.usage.prompt_tokens, reply.usage.output_tokens) == (30, 40)


def second(delta: Any, **more: Any) -> dict[str, Any]:
    event = chat(delta, **more)
    event["choices"][0]["index"] = 1
    return event


def answer(*events: Any) -> Message:
    body = joined([e if isinstance(e, bytes) else json.dumps(e).encode() for e in events])
    return ask("chat_completions", body)[-1].message


def test_of_several_choices_the_first_is_the_answer() -> None:
    fields, other, end = chat({"content": "yes"}), second({"content": "no"}), chat({}, finish_reason="stop")
    both = chat({}) | {"choices": [other["choices"][0], fields["choices"][0]]}
    assert answer(both, end, b"[DONE]").text == "yes"


@pytest.mark.parametrize("finish", ["stop", "eos", "end_turn", "STOP", "", None])
def test_a_finish_of_any_name_ends_an_answer(finish: str | None) -> None:
    assert answer(chat({"content": "yes"}), chat({}, finish_reason=finish), b"[DONE]").text == "yes"


def half(wire: str) -> bytes:
    """The first events of an answer, up to its first word."""
    events = payloads(wire)
    return joined(events[: next(at for at, event in enumerate(events) if b"Gr" in event) + 1])


async def _replies(wire: str, *scripts: Script, turns: int = 1) -> tuple[list[ModelReply], int]:
    """Return the answers to some requests in a row, and how many requests they took."""
    async with running(*scripts) as server:
        source = provider(server, waits=Waits(), format=wire, max_retries=3)
        async with aclosing(source):
            link = source.open("sys", [], "s")
            replies = [await reply(link, HI) for _ in range(turns)]
            return replies, len(server.requests)


@pytest.mark.parametrize("wire", WIRES)
def test_answers_of_a_server_that_never_marks_the_end_are_used_from_the_second_on_and_told(wire: str) -> None:
    replies, requests = run(lambda: _replies(wire, *[Script([half(wire)])] * 3, turns=2))
    assert ([r.message.text for r in replies], requests) == (["Grü", "Grü"], 3)
    assert ["may be cut" in " ".join(r.warnings) for r in replies] == [True, True]


@pytest.mark.parametrize("wire", WIRES)
def test_half_an_answer_that_ends_with_its_connection_is_asked_for_again(wire: str) -> None:
    whole = Script([joined(payloads(wire))])
    replies, requests = run(lambda: _replies(wire, *[Script([half(wire)], bare=True)] * 2, whole))
    assert (replies[0].message.text, replies[0].warnings, requests) == (WORDS, (), 3)


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_marked_one_end_has_cut_each_answer_without(wire: str) -> None:
    whole, cut = Script([joined(payloads(wire))]), Script([half(wire)])
    replies, requests = run(lambda: _replies(wire, whole, cut, cut, cut, whole, turns=2))
    assert ([r.message.text for r in replies], requests) == ([WORDS, WORDS], 5)


def test_an_answer_without_a_finish_is_whole_at_the_marker_of_the_streams_end() -> None:
    body = joined([json.dumps(chat({"content": "yes"})).encode(), b"[DONE]"])
    replies, requests = run(lambda: _replies("chat_completions", *[Script([body], bare=True)] * 2, turns=2))
    assert ([(r.message.text, r.warnings) for r in replies], requests) == ([("yes", ())] * 2, 2)


def test_a_stream_that_breaks_off_is_no_answer_however_often() -> None:
    body = joined([json.dumps(chat({"content": "yes"})).encode()])
    with pytest.raises(Unavailable):
        run(lambda: _ask_once(Script([body], cut=True)))


async def _ask_once(script: Script) -> Message:
    async with running(*[script] * 3) as server, aclosing(provider(server, waits=Waits())) as source:
        return (await reply(source.open("sys", [], "s"), HI)).message
