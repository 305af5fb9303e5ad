"""Whatever a transcript holds, the request is one that a strict server accepts, and the cache law holds.

The real path of a request: the context's view, a codec, its wire cache. The judges: the practice server's
rules, which are the vendors' own, and for a sample the official SDKs' request types.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import msgspec
import pytest

from tests.fuzz.transcripts import random_transcript
from tests.providers import shapes
from whet.context.live_list import RepairedList
from whet.contract.messages import Message
from whet.providers import anthropic_messages, chat_completions, responses
from whet.providers.catalog import SERVERS
from whet.providers.wire import ServerDialect, WireCodec
from whet_lab.practice import dialects
from whet_lab.practice.strict import Options, VendorRefusal

LANES: dict[str, tuple[WireCodec, dialects.PracticeDialect, object]] = {
    "chat": (chat_completions.ChatCompletions(ServerDialect()), dialects.chat_completions(), shapes.CHAT),
    "openrouter": (
        chat_completions.ChatCompletions(SERVERS["openrouter"].dialect),
        dialects.chat_completions(),
        shapes.CHAT,
    ),
    "mistral": (
        chat_completions.ChatCompletions(SERVERS["mistral"].dialect),
        dialects.chat_completions(),
        shapes.CHAT,
    ),
    "anthropic": (anthropic_messages.AnthropicMessages(), dialects.messages(0), shapes.ANTHROPIC),
    "responses": (
        responses.ResponsesEncoder(SERVERS["openai"].dialect),
        dialects.responses(0),
        shapes.RESPONSES,
    ),
}
OPTIONS = Options(extra_keys=("cache_control", "reasoning_details", "prompt_cache_key"))


def judge(seed: int, *, with_types: bool) -> None:
    """Send one random transcript as it grows through every codec."""
    rng = random.Random(seed)
    rows = random_transcript(rng)
    cuts = sorted({rng.randrange(len(rows) + 1), len(rows)})
    for name, (codec, server, adapter) in LANES.items():
        context, cache = RepairedList(), shapes.cache(codec)
        before = b""
        for cut in cuts:
            view = context.update(rows[:cut])
            whole = cache.body(view)
            where = f"seed {seed}, {name}, {cut} of {len(rows)} rows"
            try:
                body = msgspec.json.decode(whole)
                server.check(body, OPTIONS)
            except (VendorRefusal, msgspec.DecodeError, UnicodeError) as refusal:
                raise AssertionError(f"{where}: {refusal!r}\n{rows}"[:6000]) from refusal
            if with_types:
                shapes.check(adapter, body)  # type: ignore[arg-type]
            # What stands before a stand-in row ("Go on.") must be in the next request as it was.
            kept = common(view, rows)
            assert whole.startswith(before), f"{where}: the past was rewritten"
            before = stable(codec, view, kept)


def common(view: Sequence[Message], rows: Sequence[Message]) -> int:
    """Give how many rows of the view stay when the transcript grows: all, unless a stand-in ends it."""
    return len(view) - (not rows or (view[-1] not in rows and view[-1].role == "user"))


def stable(codec: WireCodec, view: Sequence[Message], kept: int) -> bytes:
    """Give the bytes of the first `kept` rows without the body's end."""
    head = view[:kept]
    whole = shapes.cache(codec).body(head)
    return whole[: len(whole) - len(codec.tail(head))]


@pytest.mark.slow
def test_a_strict_server_accepts_what_any_transcript_becomes() -> None:
    for seed in range(300):
        judge(seed, with_types=seed % 6 == 0)


@pytest.mark.slow
def test_and_a_few_that_nobody_saw_before() -> None:
    start = int.from_bytes(os.urandom(4))
    for seed in range(start, start + 40):
        judge(seed, with_types=False)


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_transcripts(thousand: int) -> None:
    for seed in range(thousand * 1000 + 1_000_000, thousand * 1000 + 1_001_000):
        judge(seed, with_types=seed % 50 == 0)
