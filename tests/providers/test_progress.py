"""Which bytes are progress of an answer, and how long an address that never answered is tried."""

from __future__ import annotations

import asyncio

import pytest

from tests.listening import listening
from tests.providers.machine import Machine
from tests.providers.server import Script, Server, running, sse
from tests.providers.test_link import FIRST, GOOD, HI, items_of, provider, run
from tests.support import let_pass
from whet.config.schema import ModelSettings
from whet.contract.errors import ProviderError, Unavailable
from whet.providers.connect import connect_one


@pytest.mark.parametrize(("answers", "least", "most"), [([], 50, 70), ([GOOD], 850, 960)])
def test_an_address_that_never_answered_is_left_after_a_minute(answers: list[Script], least: int, most: int):
    machine = Machine()

    async def test() -> None:
        async with running(*answers) as server:
            settings = ModelSettings(provider="practice", base_url=server.url, model="m")
            source = connect_one(settings, {}, backoff=machine.backoff(900.0))
            link = source.open("sys", [], "s-1")
            for _ in answers:
                assert [item async for item in link.stream(HI)]
        with pytest.raises(Unavailable):
            assert [item async for item in link.stream(HI)]
        await source.aclose()

    run(test)
    assert least <= machine.now_s <= most


SSE = b"200 OK\r\ncontent-type: text/event-stream"
JSON = b"200 OK\r\ncontent-type: application/json"


def trickle(head: bytes, sent: bytes) -> tuple[ProviderError, int]:
    """Have a server send something each second, 300 times; return the error, and how often it was sent."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + head + b"\r\nconnection: close\r\n\r\n")
        while count < 300 and not writer.is_closing():
            writer.write(sent)
            count += 1
            for _ in range(20):  # until it is read
                await asyncio.sleep(0)
            let_pass(1)
        writer.close()

    async def test() -> ProviderError:
        server = Server()
        async with listening(serve) as server.port:
            with pytest.raises(ProviderError) as caught:
                await items_of(provider(server, max_retries=0, timeout_s=30))
            return caught.value

    return asyncio.run(test()), count


@pytest.mark.fast_rows("blank lines", "content")
@pytest.mark.parametrize(
    ("head", "sent", "most"),
    [
        (SSE, b": keepalive\n\n", 40),
        (SSE, b"\n", 40),
        (SSE, b"event: ping\ndata: {}\n\n", 180),
        (SSE, sse(FIRST), 0),
        (JSON, b" ", 180),
    ],
    ids=["comments", "blank lines", "events without content", "content", "blanks before JSON"],
)
def test_only_what_carries_an_answer_keeps_a_request_alive(head: bytes, sent: bytes, most: int):
    error, count = trickle(head, sent)
    is_given_up = "sent nothing of an answer" in error.message
    assert is_given_up == bool(most) and (count <= most if most else count == 300), (error.message, count)


def test_the_body_of_an_error_is_not_waited_for_longer_than_an_answer():
    error, count = trickle(b"500 Broken\r\ncontent-type: text/plain", b"x")
    assert error.status == 500 and count <= 40, (error.message, count)
