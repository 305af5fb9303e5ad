"""The second provider takes over when the first one's server is down, and stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.providers.server import Script, Server, running, sse
from tests.providers.test_link import FIRST, GOOD, HI, Waits
from whet.config.schema import FallbackSettings, ModelSettings
from whet.contract.errors import BadRequest, ProviderError, Unavailable
from whet.contract.events import Retry, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import AnswerGrew, AttemptLost, ModelInfo, ModelReply, Provider
from whet.providers.backoff import Backoff
from whet.providers.connect import connect, learn_windows, set_judge
from whet.providers.fallback import FallbackProvider

DOWN = Script([b"{}"], status=503, content_type="application/json")


def pair(first: Server, second: Server, backoff: Backoff | None = None) -> Provider:
    return connect(
        ModelSettings(provider="practice", base_url=first.url, model="big", max_retries=0),
        FallbackSettings(provider="vllm", base_url=second.url, model="small"),
        {},
        backoff=backoff or Backoff(0),
    )


async def drain(link: Any) -> list[Any]:
    return [item async for item in link.stream(HI)]


async def test_the_second_answers_and_stays_with_a_notice():
    async with running(DOWN) as first, running(GOOD, GOOD) as second:
        provider = pair(first, second)
        link = provider.open("s", [], "s")
        assert link.info.model == "big"
        items = await drain(link)
        assert isinstance(items[-1], ModelReply)
        (notice,) = items[-1].warnings
        assert notice.endswith("; small at vllm answers from now on")
        assert items[0] == Retry(1, 0.0, notice)
        assert link.info.model == "small" and provider.info.model == "big"
        assert (await drain(link))[-1].warnings == ()
        assert len(first.requests) == 1 and len(second.requests) == 2
        await provider.aclose()


async def test_what_was_shown_of_the_first_is_void():
    async with running(Script([sse(FIRST)], cut=True)) as first, running(GOOD) as second:
        provider = pair(first, second)
        kinds = [type(item) for item in await drain(provider.open("s", [], "s"))]
        assert kinds == [TextDelta, AttemptLost, StreamRestarted, TextDelta, TextDelta, ModelReply]
        await provider.aclose()


async def test_what_the_first_has_taken_back_itself_is_not_void_a_second_time():
    async with running(Script([sse(FIRST)], cut=True), DOWN) as first, running(GOOD) as second:
        provider = pair(first, second, Backoff(1, sleep=Waits()))
        kinds = [type(item) for item in await drain(provider.open("s", [], "s"))]
        assert kinds == [
            *(TextDelta, AttemptLost, StreamRestarted, AnswerGrew, Retry),
            *(TextDelta, TextDelta, ModelReply),
        ]
        await provider.aclose()


async def test_the_change_is_final_only_once_the_second_has_answered():
    async with running(DOWN, GOOD) as first, running(DOWN) as second:
        provider = pair(first, second)
        link = provider.open("s", [], "s")
        with pytest.raises(Unavailable):
            await drain(link)
        assert link.info.model == "big"
        assert isinstance((await drain(link))[-1], ModelReply)
        await provider.aclose()


async def test_who_judges_failures_hears_of_those_of_both():
    heard: list[tuple[str, bool]] = []

    async def judge(info: ModelInfo, error: ProviderError, messages: Sequence[Message]) -> ProviderError:
        heard.append((info.model, messages == HI))
        return error

    async with running(DOWN, DOWN) as first, running(DOWN, GOOD) as second:
        provider = set_judge(pair(first, second), judge)
        with pytest.raises(Unavailable):
            await drain(provider.open("s", [], "s"))
        assert heard == [("big", True), ("small", True)]
        await drain(set_judge(provider, None).open("s", [], "s"))
        assert len(heard) == 3, "without a judge all stays as it was"
        await provider.aclose()


async def test_an_error_that_is_ours_is_not_handed_on():
    bad = Script([b'{"error":{"message":"bad shape"}}'], status=400)
    async with running(bad) as first, running() as second:
        provider = pair(first, second)
        with pytest.raises(BadRequest):
            await drain(provider.open("s", [], "s"))
        assert second.requests == []
        await provider.aclose()


async def test_the_windows_of_both_are_learned():
    answer = Script([b'{"data":[{"id":"small","max_model_len":4096}]}'], content_type="application/json")
    async with running() as first, running(answer) as second:
        provider = pair(first, second)
        await learn_windows(provider)
        assert isinstance(provider, FallbackProvider) and provider.second.info.window_tokens == 4096
        assert first.requests == []
        await provider.aclose()


async def test_models_are_the_first_ones():
    listed = Script([b'{"data":[{"id":"big"}]}'], content_type="application/json")
    async with running(listed) as first, running() as second:
        provider = pair(first, second)
        assert await provider.list_models() == ["big"]
        await provider.aclose()
