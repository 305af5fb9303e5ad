"""Events that are kept for listeners: numbered, bounded, and honest about what is gone."""

from __future__ import annotations

import asyncio

from whet import log
from whet.contract.events import TextDelta, ToolProgress
from whet.serve.feed import Feeds


async def first_of(feeds: Feeds, session_id: str, last_id: str) -> str:
    """What a listener is sent at once."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    data = b""
    async for piece in feeds.listen(session_id, last_id, gone, lambda: True):
        data += piece
        if b"data: " in data and b'"text"' in data:
            break
    return data.decode()


async def test_a_feed_that_had_to_go_is_told_as_a_gap_and_never_taken_for_the_old_one() -> None:
    feeds = Feeds("abc", all_bytes=2_000)
    feeds.add("one", TextDelta("early"))
    old_id = feeds.feed_of("one").last_id
    for number in range(30):
        feeds.add("two", TextDelta(f"{number} " + "x" * 100))
    for text in ("late", "later"):
        feeds.add("one", TextDelta(text))
    said = await first_of(feeds, "one", old_id)
    assert "event: gap" in said and "late" in said and "early" not in said
    assert "event: gap" not in await first_of(feeds, "one", feeds.feed_of("one").last_id.replace("-2", "-1"))


async def test_events_that_are_no_longer_kept_are_told_as_a_gap() -> None:
    feeds = Feeds("abc")
    feeds.add("one", TextDelta("first"))
    first_id = feeds.feed_of("one").last_id
    for number in range(4_100):
        feeds.add("one", TextDelta(str(number)))
    assert "event: gap" in await first_of(feeds, "one", first_id)
    assert "event: gap" not in await first_of(feeds, "one", first_id.replace("-1", "-200"))


async def test_a_listener_that_is_too_slow_is_told_so_and_a_busy_one_is_looked_at_too() -> None:
    feeds = Feeds("abc", beat_s=0.02)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    looks: list[bool] = []

    def may_go_on() -> bool:
        looks.append(True)
        return len(looks) < 3

    said: list[bytes] = []
    async for piece in feeds.listen("one", "", gone, may_go_on):
        said.append(piece)
        for number in range(4_100):  # more than is kept, each time it looks; there is never a silence
            feeds.add("one", TextDelta(str(number)))
    assert len(looks) == 3 and b": beat\n\n" not in said
    assert said[1].startswith(b"event: gap")


def test_events_that_nobody_listens_to_are_not_kept() -> None:
    feeds = Feeds("abc")
    feeds.pass_on("one", TextDelta("x"))
    assert feeds.feed_of("one").last_id.endswith("-0")


async def test_a_feed_that_somebody_listens_to_stays() -> None:
    feeds = Feeds("abc", all_bytes=2_000)
    feeds.add("one", TextDelta("kept"))
    feeds.feed_of("one").listeners += 1
    for number in range(30):
        feeds.add(f"other{number}", TextDelta("x" * 200))
    assert "kept" in await first_of(feeds, "one", feeds.feed_of("one").last_id.replace("-1", "-0"))


async def test_known_secrets_are_masked_in_events_of_every_kind() -> None:
    log.protect(['Zq9-"custom"-secret'])
    feeds = Feeds("abc")
    feeds.add("one", ToolProgress("c1", 'K=Zq9-"custom"-secret;'))
    text = await first_of(feeds, "one", feeds.feed_of("one").last_id.replace("-1", "-0"))
    assert f"K={log.MASK};" in text and "custom" not in text
    log.forget_secrets()
