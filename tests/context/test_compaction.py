"""What of an engine's lists is stored, and what the engine is told where one is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.context.engines import RecordingEngine
from tests.support import FixedClock, cancel_task
from whet.context.compaction import CompactionRunner
from whet.context.compaction_policy import CircuitBreaker
from whet.context.engine_runner import BY_HAND, Deadlines, EngineRunner, HostFacts
from whet.context.engines import SessionEngines
from whet.context.live_list import LiveList
from whet.context.rows import list_tokens, tokens_of
from whet.contract.context_engine import ChatRow, ChatRows
from whet.contract.events import Compaction
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript


def sized(role: str, tokens: int) -> ChatRow:
    row = {"role": role, "content": "word" * (tokens - 4)}
    assert tokens_of(row) == tokens
    return row


class Giving(RecordingEngine):
    """Gives the same list whatever it gets."""

    def __init__(self, trace: list[str]) -> None:
        super().__init__(trace)
        self.given: ChatRows = []

    def compress(self, messages: ChatRows, *_: Any, **_given: Any) -> ChatRows:
        return self.given


class Bench:
    """A session of two messages with 50 tokens each, and what makes it smaller."""

    def __init__(self, log: Transcript, window: int) -> None:
        self.log = log
        self.trace: list[str] = []
        self.engine = Giving(self.trace)
        self.seat = EngineRunner.wrap(self.engine, Deadlines())
        info = ModelInfo("p", "m", window, 1_000)
        self.engines = SessionEngines(log, self.seat, HostFacts(lambda: info), None)
        self.live = LiveList(log, 0)
        self.live.follow()
        self.breaker = CircuitBreaker()
        self.told: list[Compaction] = []
        self.runner = CompactionRunner(log, self.engines, self.live, self.breaker, self.hear)

    async def hear(self, done: Compaction) -> None:
        self.told.append(done)

    async def compact(self, *sizes: int) -> bool:
        """Have it compacted to messages of these sizes."""
        self.engine.given = [sized(("user", "assistant")[at % 2], size) for at, size in enumerate(sizes)]
        return await self.runner.compact(self.told.append, self.live.tokens(), BY_HAND)  # type: ignore[arg-type]

    async def is_told_again(self) -> bool:
        """Whether the engine is told of the session again, because it knows another list."""
        self.trace.clear()
        await self.engines.resynchronise()
        return [line.split()[0] for line in self.trace] == ["on_session_start"]


@asynccontextmanager
async def bench(tmp_path: Path, window: int) -> AsyncIterator[Bench]:
    database = StateDatabase.open(tmp_path / "state.db", FixedClock())
    log = await Transcript.create(database, NewSession(id="s"), FixedClock())
    turn = await log.begin_turn(Message("user", sized("user", 50)["content"]))
    await log.append_reply(turn, Message("assistant", sized("assistant", 50)["content"]), Usage(), "m")
    await log.end_turn(turn, "answered", "")
    made = Bench(log, window)
    try:
        yield made
    finally:
        made.seat.lane.close()
        database.close()


@pytest.mark.parametrize(
    ("window", "sizes", "is_taken", "is_told_again"),
    [
        (1_000, [60], True, False),
        (1_000, [60, 40], True, False),
        (1_000, [51, 50], False, False),
        (1_000, [40, 40, 30], False, True),
        (1_000, [100 + 4_096], True, False),
        (1_000, [100 + 4_097], False, True),
        (9_001, [9_000], True, False),
        (9_000, [9_000], False, True),
    ],
)
async def test_a_list_that_grew_is_taken_where_it_has_fewer_messages_and_grew_little_or_fits(
    tmp_path: Path, window: int, sizes: list[int], is_taken: bool, is_told_again: bool
) -> None:
    async with bench(tmp_path, window) as b:
        assert await b.compact(*sizes) is is_taken
        done = Compaction("recording", 2, len(sizes), 100, sum(sizes))
        assert b.told == ([done, done] if is_taken else []), "shown, and told to who asked for it"
        assert list_tokens(b.log.messages) == b.live.tokens() == (sum(sizes) if is_taken else 100)
        assert ["was larger than what it replaced" in text for text in b.seat.notices] == [True] * (
            not is_taken
        )
        assert await b.is_told_again() is is_told_again


@pytest.mark.parametrize("size", [200, 60])
async def test_a_list_that_grew_after_a_vain_try_ends_automatic_compaction(tmp_path: Path, size: int) -> None:
    async with bench(tmp_path, 1_000) as b:
        b.breaker.note_idle(100, 1_000)
        assert await b.compact(size)
        texts = [text for text in b.seat.notices if "automatic compaction is off" in text]
        assert len(texts) == (size > 100) and bool(b.breaker.stopped) is (size > 100)


ASKED, ANSWERED, OWN = "Port the importer.", "I look at it. " * 20, {"role": "user", "content": "Shorter."}


@pytest.mark.parametrize(
    ("said", "returned", "is_taken", "is_dropped"),
    [
        ([ASKED, ANSWERED], lambda rows: [OWN], False, True),
        ([ASKED, ANSWERED], lambda rows: [OWN, rows[1]], False, True),
        ([ASKED, ANSWERED], lambda rows: [rows[0]], True, False),
        ([ASKED, ANSWERED], lambda rows: [{**OWN, "content": f'It said "{ASKED}"'}], True, False),
        ([ASKED, ANSWERED, "Go on."], lambda rows: [OWN, rows[2]], True, False),
        ([ASKED, ANSWERED, "Go on.", ANSWERED], lambda rows: [rows[0]], False, True),
        (["", ANSWERED], lambda rows: [OWN], False, True),
    ],
)
async def test_a_list_without_the_request_that_a_turn_works_on_is_not_taken(
    tmp_path: Path,
    said: list[str],
    returned: Callable[[ChatRows], ChatRows],
    is_taken: bool,
    is_dropped: bool,
) -> None:
    async with bench(tmp_path, 10_000) as b:
        turn = await b.log.begin_turn(Message("user", said[0]))
        for at, text in enumerate(said[1:]):
            if at % 2:
                await b.log.append_user(turn, Message("user", text))
            else:
                await b.log.append_reply(turn, Message("assistant", text), Usage(), "m")
        b.live.follow()
        b.engine.given = returned(b.live.rows.rows[2:])
        tokens = b.live.tokens()
        assert await b.runner.compact(b.told.append, tokens, BY_HAND) is is_taken  # type: ignore[arg-type]
        assert any("left out what is being asked" in text for text in b.seat.notices) is is_dropped
        assert await b.is_told_again() is is_dropped


@pytest.mark.parametrize("is_quoted", [False, True])
async def test_what_nobody_answered_is_put_back_if_a_list_lost_it(tmp_path: Path, is_quoted: bool) -> None:
    async with bench(tmp_path, 10_000) as b:
        turn = await b.log.begin_turn(Message("user", ASKED))
        await b.log.append_user(turn, Message("user", "And the tests."))
        b.live.follow()
        b.engine.given = [{**OWN, "content": f"Shorter. {ASKED}"} if is_quoted else OWN]
        assert await b.runner.compact(b.told.append, b.live.tokens(), BY_HAND)  # type: ignore[arg-type]
        own = b.engine.given[0]["content"]
        expected = [own, *([] if is_quoted else [ASKED]), "And the tests."]
        assert [message.text for message in b.log.messages] == expected
        assert [row["content"] for row in b.live.rows.rows] == expected


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_compaction_that_nobody_waited_for_is_used_once_and_for_its_own_list_only(
    tmp_path: Path, is_cut: bool
) -> None:
    """Failures 12, 19, 35: the engine counts on from what it gave back."""
    entered, release = threading.Event(), threading.Event()

    def compress(messages: ChatRows, **_: object) -> ChatRows:
        entered.set()
        release.wait(20)
        return [OWN]

    async with bench(tmp_path, 10_000) as b:
        b.engine.compress = compress  # type: ignore[method-assign]
        task = asyncio.ensure_future(b.compact())
        await asyncio.to_thread(entered.wait, 10)
        await cancel_task(task)
        if is_cut:
            await b.log.undo_last_turn()
            b.live.follow()
        release.set()
        for _ in range(2):
            await b.runner.catch_up(b.told.append)  # type: ignore[arg-type]
        assert [message.text for message in b.log.messages] == ([] if is_cut else ["Shorter."])
        assert len([text for text in b.told if isinstance(text, Compaction)]) == (0 if is_cut else 2)
        assert await b.is_told_again() is is_cut


async def test_what_an_engine_that_changed_nothing_did_to_its_rows_is_undone(tmp_path: Path) -> None:
    async with bench(tmp_path, 10_000) as b:

        def compress(messages: ChatRows, **_: object) -> ChatRows:
            copies = [dict(row) for row in messages]
            messages[0]["content"] = "gone"
            return copies

        b.engine.compress = compress  # type: ignore[method-assign]
        assert not await b.compact()
        assert b.live.rows.rows[0]["content"] == b.log.messages[0].text != "gone"


async def test_a_row_of_the_engines_own_is_no_request(tmp_path: Path) -> None:
    async with bench(tmp_path, 10_000) as b:
        turn = await b.log.begin_turn(Message("user", ASKED))
        await b.log.append_reply(turn, Message("assistant", ANSWERED), Usage(), "m")
        b.live.follow()
        for own, at in ((OWN, 2), ({**OWN, "content": "S."}, 0)):
            b.engine.given = [b.live.rows.rows[at], own, b.live.rows.rows[-1]]
            assert await b.runner.compact(b.told.append, b.live.tokens(), BY_HAND)  # type: ignore[arg-type]
        assert [message.text for message in b.log.messages] == [ASKED, "S.", ANSWERED]
