"""Processes that share a wallet are killed at five points of a call: what the server received is counted."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.app.test_wallet import BEHAVIOURS, PROMPT, usage
from tests.providers.server import Request, Script, Server, running
from tests.providers.test_link import Waits, provider
from tests.support import FixedClock
from whet.app.model_links.wallet import Wallet
from whet.clock import iso
from whet.config.schema import WalletSettings
from whet.contract.errors import BudgetReached, ProviderError
from whet.contract.messages import Message
from whet.contract.protocols import AttemptLost, ModelInfo, ModelLink, ModelReply, StreamItem
from whet.providers.connect import ServerProvider
from whet.store import sessions, wallet
from whet.store.database import StateDatabase

_NEVER = 1_000
KILLS = ("reserved", "received", "answering", "answered", "settled")
# What the server bills for a call that it answers, if its report is true.
BILLED = {"honest": 1_900, "a hidden prompt": 90_900, "hidden reasoning": 10_000, "the total alone": 9_000}
FEW = [
    ("honest", "answered"),
    ("cut in the text", "settled"),
    ("a hidden prompt", "received"),
    ("nothing", "reserved"),
    ("growing", "answering"),
]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingLink:
    """A link whose process is killed at a point of its `last` call."""

    def __init__(self, link: ModelLink, point: str, last: int) -> None:
        self._link = link
        self._point = point
        self._calls_left = last

    @property
    def info(self) -> ModelInfo:
        return self._link.info

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        self._calls_left -= 1
        if self._is_due("reserved"):
            _die()
        async for item in self._link.stream(messages):
            is_end = isinstance(item, ModelReply | AttemptLost)
            if self._is_due("answering") or (is_end and self._is_due("answered")):
                _die()
            yield item
            if is_end and self._is_due("settled"):
                _die()

    def _is_due(self, point: str) -> bool:
        return self._calls_left <= 0 and self._point == point


async def _spend(folder: Path, port: int, number: int, point: str, last: int, cap: int) -> None:
    """Ask until the cap has no room, or until the process is killed."""
    clock, server = FixedClock(), Server()
    server.port = port
    database = StateDatabase.open(folder / "state.db", clock)
    purse = Wallet(database, clock, WalletSettings(daily_tokens=cap, near=1.0))
    source = _connect(server)
    link = source.open(f"process {os.getpid()}", [], f"s{number}")
    capped = purse.cap_link(DyingLink(link, point, last), f"s{number}", "turn")
    for _ in range(60):
        try:
            async for _item in capped.stream(PROMPT):
                pass
        except ProviderError:
            pass
        except BudgetReached:
            break
    await source.aclose()
    database.close()


def _connect(server: Server) -> ServerProvider:
    return provider(server, waits=Waits(), max_output_tokens=100, max_retries=3)


def _run(receive: Connection, folder: Path, number: int, point: str, last: int, cap: int) -> None:
    asyncio.run(_spend(folder, receive.recv(), number, point, last, cap))


async def _prepare(folder: Path, script: Script, count: int) -> int:
    """Store the sessions, and one answer of the model; return the tokens that it counted."""
    clock = FixedClock()
    database = StateDatabase.open(folder / "state.db", clock)
    for number in range(count):
        new = sessions.NewSession(id=f"s{number}")
        database.write_now(lambda c, new=new: sessions.create(c, new, iso(clock.now())))
    purse = Wallet(database, clock, WalletSettings(daily_tokens=9_000_000))
    async with running(script, usage(1_000, 900, total_tokens=1_900)) as server:
        source = _connect(server)
        try:
            async for _ in purse.cap_link(source.open("sys", [], "s0"), "s0", "turn").stream(PROMPT):
                pass
        except ProviderError:
            pass
        await source.aclose()
    counted = _read_counted(database)
    database.close()
    return counted


def _read_counted(database: StateDatabase) -> int:
    return database.read_now(lambda c: wallet.read_spending(c, ("day", "2026-11-21")))[1]


def _pid(request: Request) -> int:
    match = re.search(rb"process (\d+)", request.body)
    assert match is not None
    return int(match[1])


async def _serve(
    script: Script, children: list[tuple[BaseProcess, Connection]], point: str, lasts: dict[int, int]
) -> list[Request]:
    async with running(*[script] * 20_000) as server:
        counts: Counter[int] = Counter()

        def kill(request: Request) -> None:
            pid = _pid(request)
            counts[pid] += 1
            if point == "received" and counts[pid] == lasts[pid]:
                os.kill(pid, signal.SIGKILL)

        server.on_request = kill
        # Those that live come when the first is dead: on a busy machine they spent the whole cap before it.
        for lives in (False, True):
            for child, send in children:
                if (lasts[child.pid or 0] >= _NEVER) is lives:
                    send.send(server.port)
            await asyncio.to_thread(wait, [child.sentinel for child, _ in children])
        await asyncio.gather(*(asyncio.to_thread(child.join) for child, _ in children))
        return server.requests


def spend_and_kill(folder: Path, name: str, point: str, processes: int, cap: int) -> None:
    """Let processes share a cap; three of four are killed in one of their first calls."""
    script = BEHAVIOURS[name]
    before = asyncio.run(_prepare(folder, script, processes))
    context = multiprocessing.get_context("fork")
    children: list[tuple[BaseProcess, Connection]] = []
    lasts: dict[int, int] = {}
    for number in range(processes):
        last = number % 4 or _NEVER
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=_run, args=(receive, folder, number, point, last, cap + before))
        child.start()
        assert child.pid is not None
        children.append((child, send))
        lasts[child.pid] = last
    requests = asyncio.run(_serve(script, children, point, lasts))
    killed = sum(child.exitcode == -signal.SIGKILL for child, _ in children)
    assert {child.exitcode for child, _ in children} <= {0, -signal.SIGKILL}
    database = StateDatabase.open(folder / "state.db", FixedClock())
    counted = _read_counted(database) - before
    unsettled = database.read_now(wallet.read_open_reservations).count
    database.close()
    sent = sum(max(len(request.body) // 4, BILLED.get(name, 0)) for request in requests)
    call = max(BILLED.get(name, 0), 20_000)
    assert killed and len(requests) > killed // 2, (killed, len(requests))
    assert unsettled == (0 if point == "settled" else killed), (unsettled, killed)
    assert sent <= counted <= cap + call, (sent, counted, killed, len(requests))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "point"), FEW)
def test_killed_processes_count_what_they_sent(tmp_path: Path, name: str, point: str) -> None:
    spend_and_kill(tmp_path, name, point, 4, 400_000 if name in BILLED else 80_000)


@pytest.mark.soak
@pytest.mark.parametrize("point", KILLS)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_twenty_four_processes_and_five_kills_for_each_server(tmp_path: Path, name: str, point: str) -> None:
    spend_and_kill(tmp_path, name, point, 24, 3_000_000 if name in BILLED else 400_000)
