"""A machine that slept or changed its network: connections from before get a moment to prove themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.listening import listening
from tests.support import let_pass
from whet.http1 import connection, machine
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.http1.machine import MachineWatch, source_address

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


async def settled() -> None:
    """Let both ends do what they can do without waiting."""
    for _ in range(20):
        await asyncio.sleep(0)


async def ask(silence_s: float, *moments: Callable[[], None]) -> bytes:
    """Ask a server that answers in part, and with the rest when all `moments` have come, in turn."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"ab")
        for moment in moments:
            await settled()
            moment()
        await settled()
        with suppress(ConnectionError):
            writer.write(b"cd")
            await writer.drain()
        writer.close()

    client = HttpClient(Limits(silence_s=silence_s))
    async with asyncio.timeout(200), listening(serve) as port:
        try:
            async with client.exchange(Request("GET", f"http://127.0.0.1:{port}/", {})) as answer:
                return await answer.read(100)
        finally:
            await client.aclose()


def look() -> None:
    """The wait looks about."""
    let_pass(connection.CHECK_S)


def prove() -> None:
    """The moment is over in which a connection has to prove itself."""
    let_pass(connection.AFTER_SLEEP_S)


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The machine sleeps for an hour: the wall clock goes on, the others stand still."""
    real = time.time
    return lambda: monkeypatch.setattr(time, "time", lambda: real() + 3_600)


def test_after_a_sleep_silence_is_not_waited_out(sleep: Callable[[], None]):
    with pytest.raises(HttpFailed) as caught:
        asyncio.run(ask(60.0, sleep, look, prove))
    assert caught.value.is_timeout


def test_a_connection_that_survived_the_sleep_goes_on(sleep: Callable[[], None]):
    assert asyncio.run(ask(60.0, sleep, look)) == b"abcd"


def test_a_new_network_ends_the_wait_on_the_old_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "source_address", lambda place: "203.0.113.9")
    with pytest.raises(HttpFailed):
        asyncio.run(ask(60.0, look, prove))


def test_without_either_a_silence_lasts_as_long_as_it_may():
    assert asyncio.run(ask(60.0, look, prove)) == b"abcd"
    with pytest.raises(HttpFailed, match=r"silent for 14 s"):
        asyncio.run(ask(14.0, look, prove))


def test_the_watch_tells_news_once_and_takes_no_network_for_none():
    wall, address = [1_000.0], ["10.0.0.1"]
    watch = MachineWatch(wall_s=lambda: wall[0], monotonic_s=lambda: 0.0, source=lambda: address[0])
    assert watch.poll() == ""
    wall[0] += 60
    assert (watch.poll(), watch.poll()) == ("resumed", "")
    address[0] = ""
    assert watch.poll() == ""
    address[0] = "10.0.0.1"
    assert (watch.poll(), watch.poll()) == ("network", "")
    wall[0] -= 7_200  # a clock that is set back is no sleep
    assert watch.poll() == ""
    assert source_address(("127.0.0.1", 9)) == "127.0.0.1"
