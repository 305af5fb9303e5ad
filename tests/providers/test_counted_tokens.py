"""What a call used is never counted as less than what was sent and received, whatever the server reports."""

from __future__ import annotations

import json
from base64 import b64encode
from random import Random
from typing import Any

import msgspec
import pytest

from tests.providers.server import Script, running, sse
from tests.providers.test_link import HI, JSON, Waits, provider, reply, run
from tests.support import each
from whet.contract.errors import ProviderError
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.protocols import AnswerGrew, AttemptLost, ModelInfo, ModelReply
from whet.providers.token_count import TextSize, correct_usage, is_plausible_output, size_of

WORDS = "the quick brown fox jumps over the lazy dog and counts 12 tokens. " * 60
LONG = [Message("user", WORDS)]


def chunk(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def text(content: str, finish: str | None = None) -> bytes:
    return chunk(choices=[{"delta": {"content": content}, "finish_reason": finish}])


def answer(content: str, usage: object = None) -> Script:
    tail = () if usage is None else (chunk(choices=[], usage=usage),)
    return Script([sse(text(content, "stop"), *tail, b"[DONE]")])


def items(*scripts: Script, messages: list[Message] = LONG, **settings: Any) -> tuple[list[Any], int]:
    """Stream once; return the items and the bytes of all requests."""

    async def test() -> tuple[list[Any], int]:
        async with running(*scripts) as server:
            source = provider(server, waits=Waits(), **settings)
            got: list[Any] = []
            try:
                async for item in source.open("sys", [], "s").stream(messages):
                    got.append(item)
            except ProviderError as error:
                got.append(error)
            await source.aclose()
            return got, sum(len(request.body) for request in server.requests)

    return run(test)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        {"prompt_tokens": 400, "completion_tokens": 300},
        {"prompt_tokens": -5, "completion_tokens": -5, "total_tokens": -10},
    ],
)
def test_a_server_that_reports_too_little_is_counted_by_what_was_sent(usage: object) -> None:
    got, sent_bytes = items(answer(WORDS, usage))
    counted: Usage = got[-1].usage
    assert counted.prompt_tokens >= sent_bytes / 4 and counted.output_tokens >= len(WORDS) / 4
    assert counted.total_tokens == counted.prompt_tokens + counted.output_tokens == counted.estimated_tokens


def test_an_honest_report_stands_as_it_is() -> None:
    got, _ = items(answer(WORDS, {"prompt_tokens": 900, "completion_tokens": 870, "total_tokens": 1770}))
    assert (got[-1].usage.total_tokens, got[-1].usage.estimated_tokens) == (1770, 0)


def test_a_later_empty_report_does_not_replace_the_first() -> None:
    full, empty = {"prompt_tokens": 900, "completion_tokens": 870}, {"prompt_tokens": 0}
    script = Script([sse(text(WORDS, "stop"), chunk(usage=full), chunk(choices=[], usage=empty), b"[DONE]")])
    assert items(script)[0][-1].usage.total_tokens == 1770


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        ({"completion_tokens": 100, "total_tokens": 6100, "reasoning": 5000}, 5100),
        ({"completion_tokens": 5100, "total_tokens": 6100, "reasoning": 5000}, 5100),
        ({"completion_tokens": 100, "total_tokens": 6100}, 5100),
        ({"completion_tokens": 100, "reasoning": 5000}, 5100),
        ({"completion_tokens": 100, "total_tokens": 1100, "reasoning": 60}, 100),
    ],
)
def test_reasoning_counts_once_wherever_the_server_reports_it(usage: dict[str, int], output: int) -> None:
    details = {"reasoning_tokens": usage.pop("reasoning", 0)}
    got, _ = items(answer("hi", {"prompt_tokens": 1000, "completion_tokens_details": details, **usage}))
    assert (got[-1].usage.output_tokens, got[-1].usage.prompt_tokens) == (output, 1000)


def test_reasoning_beside_an_answer_that_fills_the_completion_counts_on_top() -> None:
    """The visible answer alone needs more than the completion leaves beside the reasoning."""
    usage = {"prompt_tokens": 900, "completion_tokens": 900}
    got, _ = items(answer(WORDS, usage | {"completion_tokens_details": {"reasoning_tokens": 700}}))
    assert got[-1].usage.output_tokens == 1600


def test_a_cached_part_reported_beside_the_prompt_is_part_of_it() -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 5905}
    got, _ = items(answer("hi", usage | {"prompt_tokens_details": {"cached_tokens": 5000}}))
    counted = got[-1].usage
    assert (counted.prompt_tokens, counted.cache_read_tokens, counted.output_tokens) == (5900, 5000, 5)


def test_every_attempt_that_was_sent_counts() -> None:
    cut = Script([sse(text(WORDS))], cut=True)
    got, sent_bytes = items(cut, cut, answer("hi", {"prompt_tokens": 900, "completion_tokens": 1}))
    lost = [item.usage for item in got if isinstance(item, AttemptLost)]
    assert len(lost) == 2 and isinstance(got[-1], ModelReply)
    assert all(usage.output_tokens >= len(WORDS) / 4 and usage.estimated_tokens for usage in lost)
    assert sum(usage.prompt_tokens for usage in lost) >= sent_bytes / 3 * 2 / 4


@pytest.mark.parametrize(
    ("script", "is_counted"),
    [
        (Script([sse(text("Hel"))]), True),
        (Script([sse(text("Hel"))], reset=True), True),
        (Script(), True),
        (Script(reset=True), True),
        (Script([b"late"], 504, "text/plain"), True),
        (Script([b"busy"], 503, "text/plain"), False),
        (Script([b"no"], 401, "text/plain"), False),
        (Script([b'{"error":{"message":"slow down"}}'], 429, JSON), False),
        (Script([sse(b'{"error":{"message":"overloaded","code":503}}')]), False),
        (Script([sse(text("Hel"), b'{"error":{"message":"overloaded","code":503}}')]), True),
        (Script([sse(text("", "content_filter"), b"[DONE]")]), True),
    ],
)
def test_a_failed_attempt_counts_unless_the_server_refused_it(script: Script, is_counted: bool) -> None:
    got, _ = items(script, max_retries=0)
    lost = [item for item in got if isinstance(item, AttemptLost)]
    assert isinstance(got[-1], Exception) and bool(lost) is is_counted
    assert all(item.usage.prompt_tokens > 1000 for item in lost)


def test_a_server_that_is_not_reached_is_not_counted() -> None:
    async def test() -> list[Any]:
        async with running() as server:
            source = provider(server, max_retries=0)
        got: list[Any] = []
        with pytest.raises(Exception, match="connect"):
            async for item in source.open("sys", [], "s").stream(HI):
                got.append(item)
        await source.aclose()
        return got

    assert run(test) == []


def test_long_arguments_of_a_call_are_told_while_they_come() -> None:
    piece = {"index": 0, "id": "c1", "function": {"name": "write_file", "arguments": "x" * 5_000}}
    script = Script([sse(*[chunk(choices=[{"delta": {"tool_calls": [piece]}}])] * 3, text("", "stop"))])
    got, _ = items(script)
    grown = sum(item.chars for item in got if isinstance(item, AnswerGrew))
    assert grown == 15_000 and got[-1].usage.output_tokens >= 15_000 / 4


def test_what_messages_gain_is_measured_from_request_to_request() -> None:
    """The estimate of a second request covers the first, the answer and the results."""

    async def test() -> list[Usage]:
        async with running(answer("hi"), answer("hi")) as server:
            source = provider(server)
            link = source.open("sys", [], "s")
            more = [
                *LONG,
                Message("assistant", "", tool_calls=(ToolCall("c1", "f", '{"q":"one two"}'),)),
                Message("tool", WORDS, tool_call_id="c1", tool_name="f"),
            ]
            usages = [(await reply(link, each)).usage for each in (LONG, more)]
            await source.aclose()
            return usages

    first, second = run(test)
    assert second.prompt_tokens > 1.9 * first.prompt_tokens


HUGE = 900_000
TOO_LARGE = {
    "chat_completions": [
        {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": HUGE}},
        {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": HUGE}},
        {"prompt_tokens": HUGE, "completion_tokens": 1},
        {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": HUGE},
        {"prompt_tokens": 10, "completion_tokens": HUGE},
        {
            "prompt_tokens": 10,
            "completion_tokens": 1,
            "completion_tokens_details": {"reasoning_tokens": HUGE},
        },
    ],
    "responses": [
        {"input_tokens": 10, "output_tokens": 1, "input_tokens_details": {"cached_tokens": HUGE}},
        {"input_tokens": HUGE, "output_tokens": 1},
        {"input_tokens": 10, "output_tokens": 1, "total_tokens": HUGE},
        {"input_tokens": 10, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": HUGE}},
    ],
    "anthropic_messages": [
        {"input_tokens": 10, "cache_read_input_tokens": HUGE},
        {"input_tokens": 10, "cache_creation_input_tokens": HUGE},
        {"input_tokens": HUGE},
        {"input_tokens": 10, "output_tokens": HUGE},
    ],
}


def whole_answer(wire: str, usage: dict[str, Any]) -> Script:
    """An answer of "hi" in a wire format, with the usage as the server reports it."""
    if wire == "chat_completions":
        return answer("hi", usage)
    if wire == "responses":
        events: list[dict[str, Any]] = [
            {"type": "response.output_text.delta", "output_index": 0, "delta": "hi"},
            {"type": "response.completed", "response": {"model": "m", "usage": usage}},
        ]
    else:
        events = [
            {"type": "message_start", "message": {"model": "m", "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
            {"type": "message_stop"},
        ]
    return Script([sse(*map(json.dumps, events))])


@each(("wire", "usage"), [(wire, one) for wire, many in TOO_LARGE.items() for one in many])
def test_a_report_far_above_what_was_sent_is_held_to_it(wire: str, usage: dict[str, Any]) -> None:
    got, sent_bytes = items(whole_answer(wire, usage), format=wire)
    counted: Usage = got[-1].usage
    assert got[-1].message.text == "hi"
    assert counted.total_tokens < sent_bytes
    assert (
        counted.cache_read_tokens + counted.cache_write_tokens + counted.input_tokens == counted.prompt_tokens
    )
    assert counted.reasoning_tokens <= counted.output_tokens


@pytest.mark.parametrize(("own_usd", "expected_usd"), [(None, 0.05), (0.75, 0.75)])
def test_a_report_too_large_costs_as_much_as_the_estimate(own_usd: float | None, expected_usd: float) -> None:
    """A price that the server itself reports, higher than that, stays."""
    info = ModelInfo("p", "m", 100_000, 8_000, *([50.0] * 4))
    usage = info.usage(prompt=HUGE, output=1)
    if own_usd is not None:
        usage = msgspec.structs.replace(usage, cost_usd=own_usd)
    counted = correct_usage(info, usage, TextSize(2_997, 100, most=13_000), TextSize(3, 1))
    assert (counted.prompt_tokens, counted.output_tokens) == (999, 1)
    assert counted.cost_usd == pytest.approx(expected_usd)


def test_a_cut_answer_with_a_report_that_is_too_large_is_held_to_what_was_sent() -> None:
    usage = {"prompt_tokens": HUGE, "completion_tokens": 1}
    cut = Script([sse(chunk(choices=[], usage=usage), text("hi"))], cut=True)
    got, sent_bytes = items(cut, max_retries=0)
    (lost,) = [item.usage for item in got if isinstance(item, AttemptLost)]
    assert lost.total_tokens < sent_bytes and lost.is_prompt_estimated


@pytest.mark.parametrize(("window_tokens", "is_believed"), [(8_000, False), (200_000, True)])
def test_what_a_server_adds_to_a_prompt_fits_the_window(window_tokens: int, *, is_believed: bool) -> None:
    usage = {"prompt_tokens": 60_000, "completion_tokens": 1, "total_tokens": 60_001}
    got, _ = items(answer("hi", usage), window_tokens=window_tokens)
    assert (got[-1].usage.prompt_tokens == 60_000) is is_believed


# Texts, and the tokens that OpenAI's o200k and cl100k make of them (the fewer and the more).
KNOWN_TOKENS = {
    "base64": (b64encode(Random(1).randbytes(3_000)).decode(), (2723, 2857)),
    "JSON": ('{"id": 288389697, "name": "user_1", "score": 0.8474337369372327},' * 40, (1121, 1121)),
    "German": ("Die Maschine prüft jede größere Änderung, bevor sie übernommen wird. " * 40, (521, 801)),
    "emoji": ("🎉🚀✅❌🔥💡 " * 40, (401, 601)),
}


@pytest.mark.parametrize("text", ["", "hi", "a b c d e f g", "one word, 12345", "x" * 200])
def test_an_output_is_plausible_exactly_if_its_counts_stay(text: str) -> None:
    info = ModelInfo("p", "m", 100_000, 50)
    answer, rough = size_of(text), size_of(text, counts_pieces=False)
    for output in (0, 1, 2, 3, 5, 7, 8, 20, 60, 100, 10_200, 10_201, HUGE):
        for reasoning in {0, 1, output // 2, output}:
            usage = info.usage(prompt=10, output=output, reasoning=reasoning)
            stays = correct_usage(info, usage, None, answer) is usage
            assert is_plausible_output(info, usage, rough) is stays, (output, reasoning)


@pytest.mark.parametrize("name", KNOWN_TOKENS)
def test_the_estimate_is_no_less_and_the_least_no_more_than_the_tokens_of_a_text(name: str) -> None:
    content, (fewer, more) = KNOWN_TOKENS[name]
    size = size_of(content)
    assert size.least <= fewer <= more <= size.estimate <= 2 * more
