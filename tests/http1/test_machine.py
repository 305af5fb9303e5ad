"""A machine that slept or changed its network: connections from before get a moment to prove themselves."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.listening import listening
from whet.http1 import connection, machine
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.http1.machine import MachineWatch, source_address

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


async def ask(silence_s: float, late_s: float) -> bytes:
    """Ask a server that answers in part, and with the rest after `late_s`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"ab")
        await asyncio.sleep(late_s)
        writer.write(b"cd")
        await writer.drain()
        writer.close()

    client = HttpClient(Limits(silence_s=silence_s))
    async with asyncio.timeout(10), listening(serve) as port:
        try:
            async with client.exchange(Request("GET", f"http://127.0.0.1:{port}/", {})) as answer:
                return await answer.read(100)
        finally:
            await client.aclose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LOOK_S", 0.02)
    monkeypatch.setattr(connection, "_AFTER_SLEEP_S", 0.15)


@pytest.fixture
def lid(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """The wall clock jumps by an hour a moment after the test began."""
    real, began_s = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() + (3_600 if time.monotonic() > began_s + 0.1 else 0))


def test_after_a_sleep_silence_is_not_waited_out(lid: None):
    began_s = time.monotonic()
    with pytest.raises(HttpFailed) as caught:
        asyncio.run(ask(60.0, 5.0))
    assert caught.value.is_timeout and time.monotonic() - began_s < 3.0


def test_a_connection_that_survived_the_sleep_goes_on(lid: None):
    assert asyncio.run(ask(60.0, 0.2)) == b"abcd"


def test_a_new_network_ends_the_wait_on_the_old_one(quick: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "source_address", lambda place: "203.0.113.9")
    with pytest.raises(HttpFailed):
        asyncio.run(ask(60.0, 5.0))


@pytest.mark.slow
def test_without_either_a_silence_lasts_as_long_as_it_may(quick: None):
    assert asyncio.run(ask(60.0, 0.6)) == b"abcd"
    with pytest.raises(HttpFailed, match=r"silent for 0.4 s"):
        asyncio.run(ask(0.4, 5.0))


def test_the_watch_tells_news_once_and_takes_no_network_for_none():
    wall, address = [1_000.0], ["10.0.0.1"]
    watch = MachineWatch(wall_s=lambda: wall[0], monotonic_s=lambda: 0.0, source=lambda: address[0])
    assert watch.look() == ""
    wall[0] += 60
    assert (watch.look(), watch.look()) == ("resumed", "")
    address[0] = ""
    assert watch.look() == ""
    address[0] = "10.0.0.1"
    assert (watch.look(), watch.look()) == ("network", "")
    wall[0] -= 7_200  # a clock that is set back is no sleep
    assert watch.look() == ""
    assert source_address(("127.0.0.1", 9)) == "127.0.0.1"
