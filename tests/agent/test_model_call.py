"""One model call: what it is charged where it is cut off, and what a context that is too small comes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.agent.rig import Rig, rig
from tests.context.engines import RecordingEngine
from tests.providers.machine import Machine
from tests.support import cancel_task
from whet.contract.context_engine import ChatRows
from whet.contract.events import Event, ReasoningDelta, Retry, StepFinished, TextDelta
from whet.contract.messages import Message, Usage, VendorReplay
from whet.contract.protocols import ModelInfo, ModelReply, StreamItem
from whet.log import MASK, protect_keys
from whet_lab.practice.script import Fault, ScriptedReply, rate_limit_reply

ANSWER = ScriptedReply("All done.")
TOO_LONG = ScriptedReply(fault=Fault(status=400, message="too long", code="context_length_exceeded"))


async def cancelled_once(r: Rig, is_time: Callable[[], bool]) -> None:
    """Cancel a turn as soon as this holds."""
    turn = asyncio.ensure_future(r.turn("go"))
    async with asyncio.timeout(30):
        while not is_time():
            await asyncio.sleep(0)
    await cancel_task(turn)


async def test_a_call_that_is_cancelled_before_it_said_anything_costs_what_was_sent(tmp_path: Path) -> None:
    async with rig(tmp_path, [ScriptedReply("x", fault=Fault(stall_after=-1)), ANSWER]) as r:
        await cancelled_once(r, lambda: bool(r.server.requests))
        (step,) = r.seen(StepFinished)
        assert r.session.usage.prompt_tokens > 0 == r.session.usage.output_tokens
        assert step == StepFinished(0, r.session.usage)
        assert [message.role for message in r.session.log.messages] == ["user"]


async def test_a_call_that_is_cancelled_between_two_tries_costs_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, [rate_limit_reply(), ANSWER]) as r:
        await cancelled_once(r, lambda: bool(r.seen(Retry)))
        assert r.session.usage == Usage() and not r.seen(StepFinished)
        assert [message.role for message in r.session.log.messages] == ["user"]


async def test_a_call_cancelled_before_its_second_try_costs_what_was_sent(tmp_path: Path) -> None:
    silent = ScriptedReply("x", fault=Fault(stall_after=-1))
    async with rig(tmp_path, [rate_limit_reply(), silent], backoff=Machine().backoff(300.0)) as r:
        await cancelled_once(r, lambda: len(r.server.requests) == 2)
        assert r.session.usage.prompt_tokens > 0 == r.session.usage.output_tokens


async def test_a_call_that_fails_before_it_said_anything_costs_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, [ScriptedReply(fault=Fault(status=401, message="bad key"))]) as r:
        end = await r.turn("go")
        assert (end.reason, end.usage, end.is_overflow) == ("failed", Usage(), False)
        assert not r.seen(StepFinished)


async def test_what_no_smaller_view_helps_is_too_long_and_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path, [TOO_LONG, ANSWER]) as r:
        end = await r.turn("go")
        assert (end.reason, end.is_overflow) == ("failed", True)
        assert len(r.server.requests) == 1


@pytest.mark.parametrize(
    ("said", "limit"), [("too long", 0), ("maximum context length is 8192 tokens", 8192)]
)
async def test_a_context_hears_that_it_has_more_than_fits_the_model(
    tmp_path: Path, said: str, limit: int
) -> None:
    numbers: list[int | None] = []

    class Told(RecordingEngine):
        def compress(
            self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
        ) -> ChatRows:
            numbers.append(current_tokens)
            return super().compress(messages, current_tokens, focus_topic)

    full = ScriptedReply(fault=Fault(status=400, message=said, code="context_length_exceeded"))
    script = [ScriptedReply("Said."), full, ANSWER]
    async with rig(tmp_path, script, engine=Told([])) as r:
        await r.turn("word " * 10)
        assert (await r.turn("go on")).text == "All done."
        assert numbers == [(limit or (await r.session.context.status()).window_tokens) + 1]


async def test_text_that_was_said_again_after_a_cut_is_kept_and_counted_once(tmp_path: Path) -> None:
    script = [
        ScriptedReply("abcdefgh", pieces=2, fault=Fault(cut_after=1)),
        ScriptedReply("abcdefgh", pieces=8, fault=Fault(stall_after=6)),
    ]
    async with rig(tmp_path, script, backoff=Machine().backoff(300.0)) as r:

        def said() -> str:
            return "".join(event.text for event in r.events if isinstance(event, TextDelta))

        await cancelled_once(r, lambda: len(said()) > len("abcd") and len(r.server.requests) == 2)
        kept = r.session.log.messages[-1].text
        assert kept and "abcdefgh".startswith(kept), "what the first try said is void"
        assert r.session.usage.output_tokens == (len(kept) + 3) // 4


KEY = "zq-0123456789abcdefghij"


class ScriptedLink:
    """A link to a model that sends these items."""

    def __init__(self, info: ModelInfo, items: Sequence[StreamItem]) -> None:
        self.info = info
        self._items = items

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        for item in self._items:
            yield item


async def streamed(r: Rig, message: Message, *items: StreamItem) -> list[Event]:
    """Run a turn whose answer comes in these items, and return what was shown."""
    reply = ModelReply(message, Usage(), "practice")
    link = ScriptedLink(r.session.link.info, [*items, reply])
    r.session = msgspec.structs.replace(r.session, link=link)
    assert (await r.turn("go")).reason == "answered"
    return r.events


@pytest.mark.parametrize("other", [ReasoningDelta("x"), Retry(1, 0.0, "slow")])
async def test_a_key_is_masked_whatever_splits_it(tmp_path: Path, other: ReasoningDelta | Retry) -> None:
    protect_keys([KEY])
    async with rig(tmp_path) as r:
        pieces = TextDelta(f"It is {KEY[:12]}"), other, TextDelta(f"{KEY[12:]}.")
        events = await streamed(r, Message("assistant", f"It is {KEY}."), *pieces)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == f"It is {MASK}."
        assert other in events
        assert r.session.log.messages[-1].text == f"It is {MASK}."


async def test_only_the_beginning_of_a_key_waits_for_the_next_piece(tmp_path: Path) -> None:
    protect_keys([KEY])
    async with rig(tmp_path) as r:
        pieces = TextDelta("A blitz"), ReasoningDelta("Hm z"), TextDelta(" and more"), ReasoningDelta("q")
        events = await streamed(r, Message("assistant", "A blitz and more", reasoning="Hm zq"), *pieces)
        shown = [event for event in events if isinstance(event, TextDelta | ReasoningDelta)]
        assert shown[:3] == [TextDelta("A blit"), ReasoningDelta("Hm "), TextDelta("z and more")]
        assert shown[3:] == [ReasoningDelta("zq")], "the end of an answer shows what was no key"


SIGNED = (
    f'{{"reasoning":"{KEY}","reasoning_opaque":"e30="}}',
    f'{{"reasoning_details":[{{"text":"{KEY}","signature":"e"}}]}}',
)


def replayed(blocks_json: str) -> VendorReplay:
    return VendorReplay("chat_completions", blocks_json, "practice")


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (f'{{"reasoning_content":"{KEY}"}}', f'{{"reasoning_content":"{MASK}"}}'),
        *((text, text) for text in SIGNED),
    ],
)
async def test_a_key_in_reasoning_is_masked_unless_compared(tmp_path: Path, sent: str, stored: str) -> None:
    protect_keys([KEY])
    async with rig(tmp_path) as r:
        message = Message("assistant", "Done.", reasoning=f"It is {KEY}", replay=replayed(sent))
        await streamed(r, message, ReasoningDelta(message.reasoning), TextDelta("Done."))
        answer = r.session.log.messages[-1]
        assert (answer.text, answer.reasoning) == ("Done.", f"It is {MASK}")
        assert answer.replay == replayed(stored)
