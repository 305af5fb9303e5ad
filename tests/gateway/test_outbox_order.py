"""The outbox's promises one by one, against a platform in this process that refuses what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.gateway.test_deliveries import HERE, Board, lost
from tests.support import FixedClock, let_pass
from whet.contract.channels import ChatPlace, Outgoing, SendFailed
from whet.gateway import outbox
from whet.gateway.deliveries import DRAFT, USUAL, Deliveries, DeliveryWaits
from whet.store import chats
from whet.store.database import StateDatabase

AWAY = SendFailed("stumbled", status=503)
LIMITED = SendFailed("slowly", status=429, retry_after_s=30.0)


class Notes(Board):
    """A board whose messages can be changed, but for those that are gone; `holds` keeps its sends waiting."""

    def __init__(self, clock: FixedClock, idempotent_s: float = 0.0) -> None:
        self.failing: list[SendFailed] = []
        super().__init__(clock, idempotent_s, self.failing)
        self.gone: set[str] = set()
        self.edits: list[tuple[str, str]] = []
        self.edit_failures: list[SendFailed] = []
        self.holds: asyncio.Event | None = None
        self.is_held = False

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        if self.holds is not None and place.chat == HERE.chat:
            self.is_held = True
            try:
                await self.holds.wait()
            finally:
                self.is_held = False
        return await super().send(place, message, key)

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        if self.edit_failures:
            raise self.edit_failures.pop(0)
        if ref in self.gone:
            raise SendFailed("no such message", is_final=True, status=404)
        self.edits.append((ref, message.text))


class Post:
    """An outbox with its board and its clock."""

    def __init__(
        self, database: StateDatabase, clock: FixedClock, board: Notes, waits: DeliveryWaits
    ) -> None:
        self.database = database
        self.clock = clock
        self.board = board
        self.settled: list[int] = []
        self.deliveries = Deliveries(database, clock, {"board": board}, self._settle, waits)

    async def put(self, *messages: Outgoing, place: ChatPlace = HERE) -> int:
        """Queue messages in a chat and give its number."""

        def work(connection: apsw.Connection) -> int:
            chat = chats.get_or_create_chat(connection, place)
            bodies = [msgspec.json.encode(message).decode() for message in messages]
            chats.queue_messages(connection, chat.id, bodies, self.clock.unix_ms())
            return chat.id

        return await self.database.append(work)

    async def go(self, chat: int) -> None:
        """Send what can be sent now."""
        self.deliveries.wake(chat)
        async with asyncio.timeout(20):
            await self.deliveries.wait_until_sent(chat)

    async def until(self, done: Callable[[], bool]) -> None:
        """Let things happen until this holds."""
        async with asyncio.timeout(20):
            while not done():
                await asyncio.sleep(0)

    def rows(self, *states: chats.OutState) -> list[chats.OutRow]:
        """Give the rows in these states."""
        return self.database.read_now(lambda db: chats.list_messages(db, states))

    def texts(self, *states: chats.OutState) -> list[str]:
        """Give what rows in these states say."""
        return [msgspec.json.decode(row.body)["text"] for row in self.rows(*states)]

    async def _settle(self, chat: int) -> None:
        self.settled.append(chat)


@asynccontextmanager
async def posting(
    folder: Path, idempotent_s: float = 0.0, waits: DeliveryWaits = USUAL
) -> AsyncIterator[Post]:
    clock = FixedClock()
    database = StateDatabase.open(folder / "state.db", clock)
    post = Post(database, clock, Notes(clock, idempotent_s), waits)
    try:
        yield post
        await post.deliveries.drain(0)
    finally:
        database.close()


async def test_what_a_crash_met_on_its_way_is_told_once_and_changes_go_again(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        notice = Outgoing(outbox.NOTICE, (outbox.MessageButton("Show", outbox.SHOW),))
        await post.put(Outgoing("one"), Outgoing("two"), Outgoing("three", edits="r9"), notice)
        for number in (1, 2, 3, 4):
            await post.database.append(lambda db, n=number: chats.begin_sending(db, n, 0))
        await post.deliveries.recover()
        assert post.texts("unknown") == ["one", "two"]
        assert post.texts("queued") == ["three", outbox.NOTICE]  # and no second notice


async def test_a_crash_is_told_where_nobody_was_told_yet(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        await post.put(Outgoing("one"))
        await post.database.append(lambda db: chats.begin_sending(db, 1, 0))
        await post.deliveries.recover()
        assert post.texts("unknown") == ["one"] and post.texts("queued") == [outbox.NOTICE]


async def test_a_change_and_a_notice_that_may_have_arrived_are_sent_again(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.edit_failures.append(lost())
        chat = await post.put(Outgoing("better", edits="r9"))
        await post.go(chat)
        assert post.board.edits == [("r9", "better")] and post.texts("sent") == ["better"]
        post.board.failing += [lost(), lost()]
        await post.go(await post.put(Outgoing("one")))
        assert [outgoing.text for outgoing in post.board.said] == ["one", outbox.NOTICE, outbox.NOTICE]


@pytest.mark.parametrize("late", [False, True])
async def test_a_message_is_given_up_and_told_after_twelve_tries_or_a_day(tmp_path: Path, late: bool) -> None:
    async with posting(tmp_path, waits=DeliveryWaits(retry_s=0.0)) as post:
        post.board.failing += [AWAY] * (1 if late else 12)
        chat = await post.put(Outgoing("one"))
        post.clock.advance(86_401 if late else 0)
        await post.go(chat)
        assert post.texts("failed") == ["one"]
        assert [outgoing.text for outgoing in post.board.said] == ["one"] * (1 if late else 12) + [
            outbox.NOTICE
        ]
        assert await post.database.append(lambda db: outbox.resend_missing(db, chat, 0)) == 1
        await post.go(chat)
        assert post.board.said[-1].text == "one" and post.rows("failed") == []


async def test_a_platform_that_wants_patience_gets_it_from_every_conversation(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.failing.append(LIMITED)
        first = await post.put(Outgoing("one"))
        second = await post.put(Outgoing("two"), place=ChatPlace("board", "2", "", "8"))
        post.deliveries.wake(first)
        await post.until(lambda: bool(post.board.said) and not post.rows("sending"))
        post.deliveries.wake(second)
        for _ in range(50):
            await asyncio.sleep(0)
        assert [outgoing.text for outgoing in post.board.said] == ["one"]
        assert post.texts("queued") == ["one", "two"]


async def test_a_conversation_does_not_wait_for_another_ones_message(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.holds = asyncio.Event()
        post.deliveries.wake(await post.put(Outgoing("slow")))
        await post.until(lambda: bool(post.rows("sending")))
        await post.go(await post.put(Outgoing("quick"), place=ChatPlace("board", "2", "", "8")))
        assert [outgoing.text for outgoing in post.board.said] == ["quick"]


async def test_once_the_outbox_has_stopped_nothing_is_on_its_way(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.holds = asyncio.Event()
        post.deliveries.wake(await post.put(Outgoing("slow")))
        await post.until(lambda: post.board.is_held)
        await post.deliveries.drain(0)
        assert not post.board.is_held and post.texts("sending") == ["slow"]


async def test_nothing_overtakes_a_message_that_waits_to_be_tried_again(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        chat = await post.put(Outgoing("one"), Outgoing("two"))
        await post.database.append(lambda db: chats.begin_sending(db, 1, 0))
        assert post.database.read_now(lambda db: chats.next_message(db, "board", chat)) is None
        assert post.database.read_now(lambda db: chats.list_due(db, "board")) == []
        await post.database.append(lambda db: chats.end_sending(db, 1, "queued", again_ms=9))
        due = post.database.read_now(lambda db: chats.list_due(db, "board"))
        assert [row.id for row in due] == [1]


async def test_a_draft_that_is_gone_is_no_end_of_its_answer(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.gone.add("r1")
        chat = await post.put(Outgoing("answer", edits=DRAFT))
        await post.database.append(lambda db: chats.set_draft(db, chat, "r1"))
        post.board.failing.append(SendFailed("stumbled", status=503, retry_after_s=0.0))
        await post.go(chat)
        assert post.settled[0] == chat and [outgoing.text for outgoing in post.board.said] == [
            "answer",
            "answer",
        ]
        assert all(not outgoing.edits for outgoing in post.board.said)
        assert post.database.read_now(lambda db: chats.get_chat(db, chat)).draft == ""


def test_an_update_that_is_brought_again_changes_nothing(tmp_path: Path) -> None:
    database = StateDatabase.open(tmp_path / "state.db", FixedClock())
    row = database.write_now(lambda db: chats.add_update(db, HERE, "u1", '{"text":"one"}', 1))
    assert row is not None
    database.write_now(lambda db: chats.set_update_state(db, row, "done"))
    assert database.write_now(lambda db: chats.add_update(db, HERE, "u1", '{"text":"late"}', 2)) is None
    assert database.read_now(lambda db: chats.list_waiting(db, 1)) == []
    database.close()


async def test_what_may_be_missing_is_kept_however_old_it_is(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        await post.put(Outgoing("one"), Outgoing("two"), Outgoing("three"))
        states: list[tuple[int, chats.OutState]] = [(1, "unknown"), (2, "failed"), (3, "sent")]
        for number, state in states:
            await post.database.append(lambda db, n=number, s=state: chats.end_sending(db, n, s))
        await post.database.append(lambda db: chats.prune(db, post.clock.unix_ms() + 1))
        assert post.texts("unknown", "failed", "sent") == ["one", "two"]


async def test_a_crash_while_a_lost_draft_is_said_again_does_not_say_it_twice(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.gone.add("r1")
        post.board.holds = asyncio.Event()
        post.deliveries.wake(await post.put(Outgoing("answer", edits="r1")))
        await post.until(lambda: post.board.is_held)
        await post.deliveries.recover()  # as the next process would: a change is repeated, a message is not
        assert post.texts("unknown") == ["answer"]


@pytest.mark.parametrize(("after_s", "state"), [(60, "queued"), (119, "queued"), (121, "unknown")])
async def test_where_repetitions_are_dropped_a_crash_is_made_good_as_long_as_that_holds(
    tmp_path: Path, after_s: int, state: chats.OutState
) -> None:
    async with posting(tmp_path, 120) as post:
        await post.put(Outgoing("one"))
        begun_ms = post.clock.unix_ms()
        await post.database.append(lambda db: chats.begin_sending(db, 1, begun_ms))
        post.clock.advance(after_s)
        await post.deliveries.recover()
        assert "one" in post.texts(state)
        post.clock.advance(120)
        for row in post.rows("queued"):
            await post.go(row.chat)
        assert post.texts("unknown") == ["one"], "when it may have got through is known from then on"


async def test_why_a_message_may_not_have_arrived_is_kept(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        post.board.failing.append(lost())
        await post.go(await post.put(Outgoing("one")))
        sql = "SELECT state, attempts, error FROM gateway_outbox ORDER BY id"
        rows = post.database.read_now(lambda db: db.execute(sql).fetchall())
        assert rows == [("unknown", 1, "no answer"), ("sent", 1, "")]


async def test_the_outbox_is_looked_into_from_time_to_time(tmp_path: Path) -> None:
    async with posting(tmp_path, waits=DeliveryWaits(sweep_s=60.0)) as post:
        await post.put(Outgoing("one"))
        serving = asyncio.create_task(post.deliveries.serve())
        await post.until(lambda: bool(post.rows("sent")))
        await post.put(Outgoing("two"), place=ChatPlace("board", "2", "", "8"))
        for _ in range(20):
            await post.database.read(lambda db: None)
        assert post.texts("queued") == ["two"]
        let_pass(60)
        await post.until(lambda: len(post.rows("sent")) == 2)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@pytest.mark.parametrize(
    ("tries", "failure", "least_ms", "most_ms", "attempts"),
    [
        (0, SendFailed("stumbled", status=500), 750, 1_001, 1),
        (3, SendFailed("stumbled", status=500), 6_000, 8_001, 4),
        (10, SendFailed("stumbled", status=500), 225_000, 300_001, 11),
        (2, LIMITED, 30_001, 30_001, 2),
        (2, SendFailed("away"), 1_001, 1_001, 2),
    ],
)
async def test_a_message_waits_longer_after_each_try_and_as_long_as_its_platform_asks_for(
    tmp_path: Path, tries: int, failure: SendFailed, least_ms: int, most_ms: int, attempts: int
) -> None:
    async with posting(tmp_path) as post:
        chat = await post.put(Outgoing("one"))
        for _ in range(tries):
            await post.database.append(lambda db: chats.begin_sending(db, 1, 0))
            await post.database.append(lambda db: chats.end_sending(db, 1, "queued", again_ms=0))
        post.board.failing.append(failure)
        post.deliveries.wake(chat)
        await post.until(lambda: bool(post.board.said and post.rows("queued")))
        (row,) = post.rows("queued")
        assert least_ms <= row.run_after_ms - post.clock.unix_ms() <= most_ms
        assert row.attempts == attempts


async def test_messages_that_are_resent_are_new_ones_and_notices_are_not(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        notice = Outgoing(outbox.NOTICE, (outbox.MessageButton("Show", outbox.SHOW),))
        await post.put(Outgoing("one", edits="r1", since_ms=5, quiet=True), notice)
        for number in (1, 2):
            await post.database.append(lambda db, n=number: chats.end_sending(db, n, "unknown"))
        rows = post.rows("unknown")
        await post.database.append(lambda db: outbox.resend(db, rows, 7))
        (queued,) = post.rows("queued")
        assert msgspec.json.decode(queued.body, type=Outgoing) == Outgoing("one", quiet=True)


async def test_what_may_be_missing_is_told_and_shown_once(tmp_path: Path) -> None:
    """Two connections are cut; the notice is one, and what it shows comes in its order."""
    async with posting(tmp_path) as post:
        post.board.failing += [lost(), lost()]
        chat = await post.put(Outgoing("hello"), Outgoing("second"))
        for _ in range(2):
            await post.go(chat)
            await post.database.append(lambda db: outbox.resend_missing(db, chat, post.clock.unix_ms()))
        texts = [message.text for message in post.board.said]
        assert sorted(texts) == sorted(["hello", "second", outbox.NOTICE, "hello", "second"])
        assert [text for text in texts if text != outbox.NOTICE] == ["hello", "second"] * 2
        assert post.rows("unknown", "failed", "queued") == []


async def test_a_try_that_the_gateways_own_end_cut_off_is_none(tmp_path: Path) -> None:
    """Else what was on its way at a few stops waits for minutes after one failure, and all behind it."""
    async with posting(tmp_path, 3600.0) as post:
        post.board.failing.append(SendFailed("it stumbled", status=500))
        chat = await post.put(Outgoing("hello"))
        for _ in range(20):
            await post.database.append(lambda db: chats.begin_sending(db, 1, post.clock.unix_ms()))
            await post.deliveries.recover()
        post.deliveries.wake(chat)
        await post.until(lambda: bool(post.board.said and post.rows("queued")))
        (row,) = post.rows("queued")
        assert row.attempts == 1 and row.run_after_ms - post.clock.unix_ms() <= 1_001


async def test_a_platform_that_stays_silent_is_asked_ever_later(tmp_path: Path) -> None:
    away = SendFailed("can't reach it")
    async with posting(tmp_path) as post:
        deliveries = post.deliveries
        assert [deliveries.channel_wait_s("board", away) for _ in range(4)] == [1.0, 2.0, 4.0, 8.0]
        deliveries.paused_until_s["board"] = post.clock.monotonic_s() + 0.5
        wait_s = deliveries.channel_wait_s("board", away)
        assert wait_s == pytest.approx(0.5), "another chat's failure is the same one"
        post.clock.advance(1)
        assert deliveries.channel_wait_s("board", away) == 16.0


@pytest.mark.logs_errors("nothing can be sent: no")
@pytest.mark.parametrize(
    ("failure", "patience_s"),
    [
        (SendFailed("no", is_barred=True), 60.0),
        (SendFailed("no", is_barred=True, retry_after_s=59.0), 60.0),
        (SendFailed("no", is_barred=True, retry_after_s=90.0), 90.0),
        (SendFailed("no", retry_after_s=0.5), 0.5),
        (SendFailed("no", maybe_sent=True), None),
        (SendFailed("no", status=500), None),
        (SendFailed("no", status=429), 1.0),
    ],
)
async def test_a_failure_is_the_channels_or_the_messages_own(
    tmp_path: Path, failure: SendFailed, patience_s: float | None
) -> None:
    async with posting(tmp_path) as post:
        assert post.deliveries.channel_wait_s("board", failure) == patience_s
