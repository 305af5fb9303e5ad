"""Caps hold against servers that report no usage, cut their streams, or answer longer than expected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.providers.server import Script, Server, running, sse
from tests.providers.test_counted_tokens import WORDS, answer, chunk, text
from tests.providers.test_link import Waits, provider
from tests.support import FixedClock, cancel_task
from whet.app.model_links.wallet import Wallet
from whet.clock import iso
from whet.config.schema import WalletSettings
from whet.contract.errors import BudgetReached, ProviderError
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply
from whet.store import sessions, wallet
from whet.store.database import StateDatabase

PROMPT = [Message("user", WORDS)]


class Spender:
    """A capped session on a scripted server."""

    def __init__(
        self,
        db: StateDatabase,
        clock: FixedClock,
        server: Server,
        cap_tokens: int,
        waits: Waits | None = None,
    ) -> None:
        self.db = db
        self.server = server
        self.wallet = Wallet(db, clock, WalletSettings(session_tokens=cap_tokens, near=1.0))
        self.source = provider(server, waits=waits, max_output_tokens=100, max_retries=9)

    async def ask(self) -> Any:
        link = self.wallet.cap_link(self.source.open("sys", [], "s"), "s", "turn")
        last: Any = None
        try:
            async for item in link.stream(PROMPT):
                last = item
        except (BudgetReached, ProviderError) as error:
            return error
        return last

    @property
    def counted(self) -> int:
        return self.db.read_now(lambda c: wallet.read_spending(c, ("session", "s")))[1]

    @property
    def unsettled(self) -> int:
        return self.db.read_now(wallet.read_open_reservations).count

    @property
    def sent_tokens(self) -> int:
        return sum(len(request.body) for request in self.server.requests) // 4


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    database.write_now(lambda c: sessions.create(c, sessions.NewSession(id="s"), iso(clock.now())))
    yield database
    database.close()


def spend(
    db: StateDatabase,
    clock: FixedClock,
    scripts: list[Script],
    cap_tokens: int,
    calls: int,
    *,
    at_once: bool = False,
) -> tuple[Spender, list[Any]]:
    async def run() -> tuple[Spender, list[Any]]:
        async with running(*scripts) as server:
            spender = Spender(db, clock, server, cap_tokens)
            if at_once:
                ends = await asyncio.gather(*(spender.ask() for _ in range(calls)))
            else:
                ends = [await spender.ask() for _ in range(calls)]
            await spender.source.aclose()
            return spender, ends

    return asyncio.run(run())


_USD_CAPS = {"daily_usd": "day", "session_usd": "session", "person_usd": "person", "schedule_usd": "schedule"}
_TOKEN_CAPS = {"daily_tokens": "day", "session_tokens": "session", "unpriced_tokens": "unpriced"}


async def reserve(db: StateDatabase, clock: FixedClock, usd: float | None, **caps: Any) -> wallet.Reservation:
    """Reserve a call of a session that a schedule began."""
    run = "INSERT INTO schedule_runs (job, schedule, due, by_hand, started, session_id)"
    run += " VALUES ('j', 'x', '', 0, '', 's')"
    await db.write(lambda c: c.execute(run))
    call = wallet.PlannedCall("s", "turn", "m", usd, 2, iso(clock.now()))
    return await Wallet(db, clock, WalletSettings(**caps)).reserve(call)


@pytest.mark.parametrize(("setting", "scope"), [*_USD_CAPS.items(), *_TOKEN_CAPS.items()])
async def test_each_cap_of_the_settings_refuses_what_passes_it(
    db: StateDatabase, clock: FixedClock, setting: str, scope: str
) -> None:
    caps: dict[str, float] = {**dict.fromkeys(_USD_CAPS, 9.0), **dict.fromkeys(_TOKEN_CAPS, 9), setting: 1}
    with pytest.raises(BudgetReached) as refused:
        await reserve(db, clock, None if scope == "unpriced" else 2.0, **caps)
    assert (
        refused.value.message.startswith(f"the {scope}'s cap") and f"wallet.{setting}" in refused.value.hint
    )


@pytest.mark.parametrize("setting", ["daily_tokens", *_USD_CAPS])
async def test_a_call_without_a_price_is_capped_where_money_is(
    db: StateDatabase, clock: FixedClock, setting: str
) -> None:
    caps = {setting: 9, "unpriced_tokens": 1}
    if setting in _USD_CAPS:
        with pytest.raises(BudgetReached, match="unpriced"):
            await reserve(db, clock, None, **caps)
    else:
        assert (await reserve(db, clock, None, **caps)).near == ()


CAP = 60_000
READ_AHEAD_TOKENS = (256 + 64) * 1024 // 3


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_a_server_that_reports_nothing_is_stopped_at_the_cap(
    db: StateDatabase, clock: FixedClock, usage: object
) -> None:
    spender, ends = spend(db, clock, [answer(WORDS, usage)] * 60, CAP, 60)
    assert isinstance(ends[-1], BudgetReached) and "session's cap" in ends[-1].message
    assert spender.sent_tokens < spender.counted <= CAP and spender.unsettled == 0


def test_streams_that_are_cut_count_and_their_retries_stop_at_the_cap(
    db: StateDatabase, clock: FixedClock
) -> None:
    cut = Script([sse(text("Hel"))], cut=True)
    good = answer("hi", {"prompt_tokens": 1_000, "completion_tokens": 1})
    spender, ends = spend(db, clock, [cut, cut, good] * 40, CAP, 40)
    assert isinstance(ends[-1], BudgetReached)
    assert spender.sent_tokens < spender.counted <= CAP and spender.unsettled == 0


def test_a_retry_for_which_there_is_no_room_is_not_sent(db: StateDatabase, clock: FixedClock) -> None:
    cut = Script([sse(text("Hel"))], cut=True)
    spender, (end,) = spend(db, clock, [cut] * 10, 20_000, 1)
    assert isinstance(end, BudgetReached) and 1 <= len(spender.server.requests) < 10
    assert spender.counted <= 20_000 and spender.unsettled == 0


def long_text(pieces: int) -> Script:
    return Script([sse(text(WORDS)) for _ in range(pieces)] + [sse(text("", "stop"), b"[DONE]")])


def long_call(pieces: int) -> Script:
    piece = {"index": 0, "id": "c", "function": {"name": "write_file", "arguments": "word " * 800}}
    part = sse(chunk(choices=[{"delta": {"tool_calls": [piece]}}]))
    return Script([part] * pieces + [sse(text("", "tool_calls"), b"[DONE]")])


@pytest.mark.parametrize("make", [long_text, long_call])
def test_answers_beyond_what_was_reserved_are_cut_when_the_cap_is_reached(
    db: StateDatabase, clock: FixedClock, make: Callable[[int], Script]
) -> None:
    spender, ends = spend(db, clock, [make(800)] * 4, 1_000_000, 4, at_once=True)
    assert all(isinstance(end, BudgetReached) for end in ends) and spender.unsettled == 0
    assert spender.sent_tokens < spender.counted < 1_000_000 + 4 * READ_AHEAD_TOKENS


def test_a_long_answer_for_which_there_is_room_comes_whole(db: StateDatabase, clock: FixedClock) -> None:
    spender, (end,) = spend(db, clock, [long_text(20)], 400_000, 1)
    assert len(end.message.text) == 20 * len(WORDS) and spender.counted == end.usage.total_tokens


def test_what_a_server_refuses_costs_nothing(db: StateDatabase, clock: FixedClock) -> None:
    busy = Script([b"busy"], 503, "text/plain")
    spender, (end,) = spend(db, clock, [busy] * 10, CAP, 1)
    assert isinstance(end, ProviderError) and (spender.counted, spender.unsettled) == (0, 0)


def usage(prompt: Any, output: Any, **more: Any) -> Script:
    return answer(WORDS, {"prompt_tokens": prompt, "completion_tokens": output, **more})


def streams(*events: bytes, **options: Any) -> Script:
    return Script([sse(*events)], **options)


def reports(*counts: int) -> Script:
    """Report the usage several times, before and after the text."""
    told = [chunk(choices=[], usage={"prompt_tokens": n, "completion_tokens": n}) for n in counts]
    return streams(*told[:1], text(WORDS), *told[1:], text("", "stop"), b"[DONE]")


BEHAVIOURS: dict[str, Script] = {
    "nothing": answer(WORDS),
    "null": usage(None, None),
    "zeros": usage(0, 0),
    "negative": usage(-9, -9, total_tokens=-18),
    "texts": usage("1000", "900"),
    "floats": usage(1000.0, 900.5),
    "honest": usage(1_000, 900, total_tokens=1_900),
    "a tenth": usage(100, 90, total_tokens=190),
    "ten times": usage(10_000, 9_000, total_tokens=19_000),
    "a hidden prompt": usage(90_000, 900, total_tokens=90_900),
    "nonsense": usage(10**9, 10**9),
    "hidden reasoning": usage(1_000, 9_000, total_tokens=10_000),
    "the total alone": usage(0, 0, total_tokens=9_000),
    "early": reports(900),
    "twice": reports(900, 900),
    "growing": reports(1, 500, 1_000),
    "cut at once": streams(cut=True),
    "cut in the text": streams(text(WORDS), cut=True),
    "reset": streams(text(WORDS), reset=True),
    "withheld": streams(text(WORDS), text("", "content_filter"), b"[DONE]"),
    "failed in the text": streams(text(WORDS), b'{"error":{"message":"overloaded","code":503}}'),
    "late": Script([b"late"], 504, "text/plain"),
}


@pytest.mark.fast_rows(
    "honest-",
    "nothing-False",
    "a tenth-True",
    "failed in the text-False",
    "nonsense-True",
    "hidden reasoning-False",
    "cut at once-False",
    "ten times-True",
)
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_what_was_sent_is_counted_and_one_call_at_most_passes_the_cap(
    db: StateDatabase, clock: FixedClock, name: str, *, at_once: bool
) -> None:
    spender, ends = spend(db, clock, [BEHAVIOURS[name]] * 400, CAP, 6, at_once=at_once)
    one_call = max([end.usage.total_tokens for end in ends if isinstance(end, ModelReply)], default=0)
    assert spender.sent_tokens <= spender.counted <= CAP + one_call
    assert spender.unsettled == 0


BILLS_MORE = answer("hi", {"prompt_tokens": 90_000, "completion_tokens": 8_000, "total_tokens": 98_000})


def test_of_four_calls_at_once_one_at_most_passes_the_cap(db: StateDatabase, clock: FixedClock) -> None:
    """The server bills far more than it streams; each call alone has room."""
    spender, ends = spend(db, clock, [BILLS_MORE] * 4, 80_000, 4, at_once=True)
    assert sum(isinstance(end, BudgetReached) for end in ends) == 3
    assert len(spender.server.requests) == 1 and spender.unsettled == 0
    assert spender.counted <= 80_000 + 98_000


def test_later_processes_reserve_what_a_server_bills(db: StateDatabase, clock: FixedClock) -> None:
    spend(db, clock, [BILLS_MORE], 500_000, 1)
    spender, ends = spend(db, clock, [BILLS_MORE] * 4, 300_000, 4, at_once=True)
    assert sum(isinstance(end, BudgetReached) for end in ends) == 2
    assert spender.counted <= 300_000 and spender.unsettled == 0


def test_calls_of_a_server_that_bills_what_it_says_go_at_once(db: StateDatabase, clock: FixedClock) -> None:
    honest = answer("hi", {"prompt_tokens": 1_000, "completion_tokens": 1, "total_tokens": 1_001})
    spender, ends = spend(db, clock, [honest] * 9, 80_000, 1)
    spender, ends = spend(db, clock, [honest] * 4, 80_000, 4, at_once=True)
    assert not any(isinstance(end, BudgetReached) for end in ends)
    assert len(spender.server.requests) == 4


async def _cancel_second_attempt(db: StateDatabase, clock: FixedClock) -> Spender:
    cut, silent = Script(cut=True), Script(stall=True)
    async with running(cut, silent) as server:
        spender = Spender(db, clock, server, CAP)
        second = asyncio.Event()
        server.on_request = lambda _: second.set() if len(server.requests) == 2 else None
        turn = asyncio.create_task(spender.ask())
        await second.wait()
        turn.cancel()
        await asyncio.wait([turn])
        await spender.source.aclose()
        await db.append(lambda _: None)
        return spender


def test_a_call_that_is_cancelled_while_its_retry_is_awaited_counts_both_prompts(
    db: StateDatabase, clock: FixedClock
) -> None:
    spender = asyncio.run(_cancel_second_attempt(db, clock))
    first, second = (len(request.body) // 4 for request in spender.server.requests)
    assert spender.counted >= first + second and spender.unsettled == 0


class EndlessWait(Waits):
    """A sleep that never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def test_a_retry_that_is_cancelled_before_it_is_sent_costs_nothing(
    db: StateDatabase, clock: FixedClock
) -> None:
    async with running(Script([b"busy"], 503, "text/plain")) as server:
        wait = EndlessWait()
        spender = Spender(db, clock, server, CAP, wait)
        turn = asyncio.create_task(spender.ask())
        await wait.begun.wait()
        assert spender.counted > 0 and spender.unsettled == 1
        await cancel_task(turn)
        await spender.source.aclose()
        await db.append(lambda _: None)
        assert (spender.counted, spender.unsettled) == (0, 0)


HIDDEN = usage(90_000, 900, total_tokens=90_900)


@pytest.mark.parametrize(
    "end",
    [streams(text("Hel"), cut=True), streams(cut=True), Script([sse(text(WORDS)), *long_text(40).chunks])],
    ids=["cut by the server", "cut before its first word", "cut by the cap"],
)
def test_a_cut_answer_of_a_server_that_bills_more_counts_the_surplus(
    db: StateDatabase, clock: FixedClock, end: Script
) -> None:
    spender, _ = spend(db, clock, [HIDDEN, end, *[Script([b"late"], 504, "text/plain")] * 20], 190_000, 2)
    assert spender.counted >= 90_900 + 90_000 and spender.unsettled == 0
