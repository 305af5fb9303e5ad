"""Refusals of prompt and output together: a lower output limit is sent if the prompt fits the window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.providers.test_adapting import TOOL, USER, Body, RuledServer, ask, other_history, running
from whet.contract.errors import ContextOverflow, ProviderError
from whet.contract.messages import Message

NO_NUMBERS = "context_length_exceeded"
LONG: dict[str, Any] = {"max_output_tokens": 32_000}


def limit_of(body: Body) -> int:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next((body[name] for name in names if name in body), 0)


def refuses_above(limit: int, text: str) -> Callable[[Body], str]:
    return lambda body: text.replace("LIMIT", str(limit_of(body))) if limit_of(body) > limit else ""


def limits_of(server: RuledServer) -> list[int]:
    return [limit_of(body) for body in server.bodies]


VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: LIMIT. This model's maximum context length is "
    "8192 tokens and your request has 2500 input tokens (LIMIT > 8192 - 2500)."
)
OPENROUTER = (
    "This endpoint's maximum context length is 32,768 tokens. However, you requested about 36,000 tokens "
    "(3,000 of text input, 1,000 of tool input, 32,000 in the output)."
)


@pytest.mark.parametrize(
    ("text", "room"),
    [(VLLM, 5692), (OPENROUTER, 28_768), ("maximum context length is 33000 tokens, requested 32050", 32_000)],
)
async def test_the_output_limit_that_fits_is_sent_and_kept(text: str, room: int, tmp_path: Path) -> None:
    async with running(RuledServer(refuses_above(room, text))) as server:
        for _ in range(2):
            source = server.provider(memory=tmp_path / "model-servers.json", **LONG)
            await ask(source.open("sys", [TOOL], "s"), *other_history())
            await source.aclose()
        limits = limits_of(server)
    assert limits == ([32_000] * 2 if room == 32_000 else [32_000, room, room])


async def test_a_refusal_without_numbers_halves_the_limit() -> None:
    async with running(RuledServer(refuses_above(9_000, NO_NUMBERS))) as server:
        source = server.provider(**LONG)
        reply = await ask(source.open("sys", [TOOL], "s"), *other_history())
        await source.aclose()
        assert "so 8000 is sent" in reply.notices[-1]
        assert limits_of(server) == [32_000, 16_000, 8_000]


async def test_a_count_that_ends_where_the_window_does_is_not_taken_for_the_prompt() -> None:
    """AIDotNet/OpenCowork#82: vLLM counts a prompt only until it knows that the request is too long."""

    def rule(body: Body) -> str:
        sent = limit_of(body)
        return (
            f"This model's maximum context length is 131072 tokens. However, you requested {sent} output "
            f"tokens and your prompt contains at least {131_073 - sent} input tokens, for a total of at "
            f"least 131073 tokens. (parameter=input_tokens, value={131_073 - sent})"
            if sent + 7_000 > 131_072
            else ""
        )

    async with running(RuledServer(rule)) as server:
        source = server.provider(max_output_tokens=128_000)
        await ask(source.open("sys", [TOOL], "s"), Message("user", "one two three four " * 1_500))
        await source.aclose()
        limits = limits_of(server)
    assert len(limits) == 2 and limits[1] > 100_000


async def test_a_prompt_that_grows_is_not_refused_at_each_step() -> None:
    """The server's prompt has 100 tokens more with each request."""
    server = RuledServer()

    def rule(body: Body) -> str:
        prompt = 10_000 + 100 * len(body["messages"])
        words = f"maximum context length is 32768 tokens: {prompt} in the prompt, {limit_of(body)} requested"
        return words if prompt + limit_of(body) > 32_768 else ""

    server.rules = (rule,)
    async with running(server):
        source = server.provider(**LONG)
        link = source.open("sys", [TOOL], "s")
        messages = other_history()
        for _ in range(9):
            await ask(link, *messages)
            messages += other_history()
        await source.aclose()
    assert len(server.refused) == 2 and limits_of(server)[-1] == 8_192


@pytest.mark.fast_rows("settings0-prompt", "settings1-text2")
@pytest.mark.parametrize(
    "text",
    [
        # dyad-sh/dyad#1558
        "This endpoint's maximum context length is 262144 tokens. However, you requested about 504212 tokens "
        "(472212 of text input, 32000 in the output). Please reduce the length of either one.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        # Nutlope/aicommits#259
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 35569 "
        "tokens. Please reduce the length of the messages.",
        "This model's maximum context length is 131072 tokens. However, you requested 32000 output tokens "
        "and your prompt contains at least 99073 input tokens, for a total of at least 131073 tokens.",
    ],
)
@pytest.mark.parametrize("settings", [LONG, {}])
async def test_a_prompt_that_is_too_long_is_not_sent_again(text: str, settings: dict[str, Any]) -> None:
    long = Message("user", "one two three four " * 20_000)
    async with running(RuledServer(lambda _body: text)) as server:
        source = server.provider(**settings)
        with pytest.raises(ContextOverflow):
            await ask(source.open("sys", [TOOL], "s"), long)
        await source.aclose()
        assert len(server.bodies) == 1


async def test_limits_that_did_not_help_are_dropped() -> None:
    def rule(body: Body) -> str:
        return NO_NUMBERS if len(body["messages"][1]["content"]) > 100 else ""

    async with running(RuledServer(rule)) as server:
        source = server.provider(**LONG)
        link = source.open("sys", [TOOL], "s")
        with pytest.raises(ContextOverflow):
            await ask(link, Message("user", "one two three " * 2_000))
        await ask(link, USER)
        await source.aclose()
        limits = limits_of(server)
    assert limits[-1] == 32_000 > min(limits) >= 5_000


@pytest.mark.parametrize("wire", ["anthropic_messages", "responses"])
async def test_other_formats_send_the_limit_that_fits(wire: str) -> None:
    async with running(RuledServer(refuses_above(5_692, VLLM))) as server:
        source = server.provider(format=wire, max_retries=0, **LONG)
        with suppress(ProviderError):  # it answers in the format of Chat Completions
            await ask(source.open("sys", [TOOL], "s"), USER)
        await source.aclose()
        assert limits_of(server)[:2] == [32_000, 5_692]
