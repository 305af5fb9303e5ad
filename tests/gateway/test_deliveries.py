"""The outbox against a platform that fails in every way: what is repeated, for how long, by which name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.support import FixedClock
from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    Outgoing,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.gateway import outbox
from whet.gateway.deliveries import USUAL, Deliveries, DeliveryWaits, silence_s
from whet.store import chats
from whet.store.database import StateDatabase

HERE = ChatPlace("board", "1", "", "7")


class Board:
    """A platform in this process: keeps the name of each send, fails as it is told, and lets time pass."""

    name = "board"

    def __init__(self, clock: FixedClock, idempotent_s: float, failures: list[SendFailed]) -> None:
        self.limits = PlatformLimits(1000, 1.0, 1.0, idempotent_s=idempotent_s)
        self.keys: list[str] = []
        self.said: list[Outgoing] = []
        self._clock = clock
        self._failures = failures

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        self.said.append(message)
        if message.text == "hello":
            self.keys.append(key)
        self._clock.advance(50)
        if self._failures:
            raise self._failures.pop(0)
        return key

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None: ...

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None: ...

    async def typing(self, place: ChatPlace) -> None: ...

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None: ...

    async def aclose(self) -> None: ...

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        return b""


def sent(
    folder: Path,
    failures: list[SendFailed],
    idempotent_s: float = 0.0,
    later_s: float = 0.0,
    told: list[Outgoing] | None = None,
    waits: DeliveryWaits = USUAL,
) -> tuple[list[str], str]:
    """Send one message past these failures; gives the name of each try and what became of it. `told` takes
    all that was sent."""
    clock = FixedClock()
    clock.advance(later_s)
    board = Board(clock, idempotent_s, failures)
    database = StateDatabase.open(folder / "state.db", clock)

    async def main() -> str:
        async def settled(chat: int) -> None: ...

        def post(connection: apsw.Connection) -> int:
            chat = chats.get_or_create_chat(connection, ChatPlace("board", "1", "", "7"))
            body = msgspec.json.encode(Outgoing("hello")).decode()
            chats.queue_messages(connection, chat.id, [body], clock.unix_ms())
            return chat.id

        def state(connection: apsw.Connection) -> str:
            return str(connection.execute("SELECT state FROM gateway_outbox").fetchall()[0][0])

        deliveries = Deliveries(database, clock, {"board": board}, settled, waits)
        chat = await database.append(post)
        deliveries.wake(chat)
        async with asyncio.timeout(20):
            if not (failures and failures[-1].is_barred):
                await deliveries.wait_until_sent(chat)
            else:  # it waits for a new token, longer than this test
                while failures or await database.read(state) == "sending":
                    await asyncio.sleep(0)
        await deliveries.drain(0)
        return await database.read(state)

    try:
        return board.keys, asyncio.run(main())
    finally:
        database.close()
        if told is not None:
            told += board.said


def lost(**more: object) -> SendFailed:
    return SendFailed("no answer", retry_after_s=0.0, maybe_sent=True, **more)  # type: ignore[arg-type]


def test_what_may_have_arrived_is_not_sent_again(tmp_path: Path) -> None:
    assert sent(tmp_path, [lost()])[1] == "unknown"


def test_where_repetitions_are_dropped_it_is_repeated_for_so_long_and_no_longer(tmp_path: Path) -> None:
    keys, state = sent(tmp_path, [lost(), lost(), lost()], idempotent_s=120)  # 50 s go by with each
    assert state == "unknown" and len(keys) == 3 and len(set(keys)) == 1
    (tmp_path / "a").mkdir()
    keys, state = sent(tmp_path / "a", [lost(), lost(), lost()], idempotent_s=100)
    assert state == "unknown" and len(keys) == 2
    (tmp_path / "b").mkdir()
    limited = SendFailed("slowly", retry_after_s=0.0, status=429)
    keys, state = sent(tmp_path / "b", [lost(), limited, limited], idempotent_s=120)
    assert state == "unknown" and len(keys) == 3  # the doubt stays when something else fails afterwards


@pytest.mark.parametrize(
    "last", [SendFailed("cut", maybe_sent=True), SendFailed("no such chat", is_final=True, status=404)]
)
def test_what_may_have_arrived_is_unknown_after_the_last_try_too(tmp_path: Path, last: SendFailed) -> None:
    outgoings: list[Outgoing] = []
    waits = DeliveryWaits(retry_s=0.0, silence_s=0.0)
    cut = [SendFailed("cut", maybe_sent=True)] * 11
    keys, state = sent(tmp_path, [*cut, last], 86_400, told=outgoings, waits=waits)
    assert state == "unknown" and len(set(keys[:12])) == 1
    assert [message.text for message in outgoings] == [*["hello"] * 12, outbox.NOTICE]
    (tmp_path / "a").mkdir()
    assert sent(tmp_path / "a", [SendFailed("no such chat", is_final=True, status=404)])[1] == "failed"


@pytest.mark.slow
def test_a_limit_or_a_network_that_is_down_costs_no_message(tmp_path: Path) -> None:
    limited = SendFailed("slowly", retry_after_s=0.0, status=429)
    away = SendFailed("can't reach it", retry_after_s=0.0)
    keys, state = sent(tmp_path, [limited, away] * 40)
    assert state == "sent" and len(keys) == 81


def test_who_wants_patience_without_saying_how_much_costs_no_message(tmp_path: Path) -> None:
    keys, state = sent(tmp_path, [SendFailed("slowly", status=429)] * 20, waits=DeliveryWaits(silence_s=0.0))
    assert state == "sent" and len(keys) == 21


def test_a_platform_that_is_away_for_days_is_waited_for() -> None:
    longest_s = USUAL.silence_s
    assert [silence_s(times, longest_s) for times in (1, 2, 3, 7, 5_000)] == [1.0, 2.0, 4.0, 60.0, 60.0]


def test_a_message_that_is_refused_for_good_is_given_up_and_its_person_told(tmp_path: Path) -> None:
    outgoings: list[Outgoing] = []
    keys, state = sent(tmp_path, [SendFailed("too odd", is_final=True, status=400)], told=outgoings)
    assert state == "failed" and len(keys) == 1
    assert [outgoing.text for outgoing in outgoings] == ["hello", outbox.NOTICE]


def test_nobody_is_told_of_a_notice_that_is_refused(tmp_path: Path) -> None:
    outgoings: list[Outgoing] = []
    gone = SendFailed("the bot was blocked", is_final=True, status=403)
    sent(tmp_path, [gone] * 9, told=outgoings)
    assert len(outgoings) == 2


@pytest.mark.logs_errors("nothing can be sent: unauthorized")
def test_a_token_that_is_not_taken_any_more_costs_no_message(tmp_path: Path) -> None:
    barred = SendFailed("unauthorized", is_final=True, is_barred=True, status=401)
    assert sent(tmp_path, [barred]) == ([f"{FixedClock().unix_ms():x}-1"], "queued")


def test_names_of_messages_never_come_again(tmp_path: Path) -> None:
    """In another home the rows' numbers start over, and a receiver remembers names for long."""
    (tmp_path / "b").mkdir()
    first, second = sent(tmp_path, [])[0], sent(tmp_path / "b", [], later_s=1)[0]
    assert first != second and max(len(first[0]), len(second[0])) <= 25  # Discord's nonce
