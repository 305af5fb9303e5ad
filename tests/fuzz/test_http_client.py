"""Whatever a server sends, the client ends in time, holds little, and fails with one line or gives the body.

The real client against a real socket; and the whole model link, whose only failure is a ProviderError.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import struct
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.hostile_http import HostileAnswer, answer_of
from tests.listening import listening
from tests.support import open_files
from whet.config.schema import ModelSettings
from whet.contract.errors import ProviderError
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.http1.response import ResponseReader
from whet.providers.connect import connect_one

SILENCE_S = 0.05
LIMIT_S = 60.0
MAX_BODY_BYTES = 300_000
AT_ONCE = 16


class HostileServer:
    """Answers the request that names a seed with that seed's answer; `most_sent` is what a client took of an
    endless one."""

    def __init__(self) -> None:
        self.most_sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if size := head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]:
                    await reader.readexactly(int(size))
                seed = int(head.partition(b"/seed/")[2].partition(b"/")[0].partition(b" ")[0])
                if not await self._deliver(answer_of(seed), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def _deliver(
        self, answer: HostileAnswer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        for piece in answer.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        match answer.ending:
            case "keep":
                return True
            case "stall":
                await reader.read()
            case "endless":
                sent = 0
                while True:
                    writer.write(answer.endless)
                    sent += len(answer.endless)
                    self.most_sent = max(self.most_sent, sent)
                    await writer.drain()
                    await asyncio.sleep(0)
            case "reset":
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            case "close":
                pass
        return False


def one_line(text: str, seed: int) -> None:
    assert text and len(text) < 600 and "\n" not in text and "Traceback" not in text, (seed, text)


async def fetch(client: HttpClient, port: int, seed: int) -> None:
    """One answer: its body where it is a good one, else anything but a hang, a flood or another exception."""
    answer = answer_of(seed)
    if answer.whole is not None:  # a server that hung up meanwhile would cut it
        client = HttpClient(Limits(connect_s=LIMIT_S, silence_s=LIMIT_S))
    try:
        async with asyncio.timeout(LIMIT_S):
            async with client.exchange(Request("GET", f"http://127.0.0.1:{port}/seed/{seed}/", {})) as given:
                body = await given.read(MAX_BODY_BYTES)
    except HttpFailed as failure:
        one_line(str(failure), seed)
        assert not failure.is_unsent and answer.whole is None, (seed, answer.trail, failure)
        return
    finally:
        if answer.whole is not None:
            await client.aclose()
    assert len(body) <= MAX_BODY_BYTES
    assert answer.whole in (None, body), (seed, answer.trail)


async def ask(port: int, seed: int) -> None:
    """One answer through the whole link to a model."""
    settings = ModelSettings(
        provider="practice",
        base_url=f"http://127.0.0.1:{port}/seed/{seed}/v1",
        model="m",
        timeout_s=SILENCE_S,
        max_retries=0,
    )
    provider = connect_one(settings, {})
    try:
        async with asyncio.timeout(LIMIT_S):
            items = [item async for item in provider.open("s", [], "s").stream([Message("user", "hi")])]
        assert isinstance(items[-1], ModelReply), seed
    except ProviderError as error:
        one_line(error.message, seed)
    finally:
        await provider.aclose()


def survive(seeds: range, each: Callable[[HttpClient, int, int], Coroutine[Any, Any, None]]) -> HostileServer:
    """Go through all, some at once; the loop hears of nothing that went wrong, and no descriptor stays."""
    server = HostileServer()
    unheard: list[dict[str, Any]] = []

    async def go() -> None:
        loop = asyncio.get_running_loop()
        async with listening(server.serve) as port:
            client = HttpClient(Limits(connect_s=LIMIT_S, silence_s=SILENCE_S))
            left = iter(seeds)

            async def work() -> None:
                for seed in left:
                    await each(client, port, seed)

            loop.set_exception_handler(lambda _, context: unheard.append(context))
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work())
            await client.aclose()

    before = open_files()
    asyncio.run(go())
    assert not open_files() - before
    ours = [
        fields
        for fields in unheard
        if "http1" in "".join(traceback.format_exception(fields.get("exception")))
    ]
    assert not ours, ours
    return server


@pytest.mark.slow
def test_hostile_answers_end_in_a_body_or_one_line():
    server = survive(range(300), fetch)
    assert server.most_sent < 4_000_000  # the kernel's buffers, and what is read ahead


@pytest.mark.slow
def test_hostile_answers_end_a_model_call_in_one_line():
    survive(range(1_000, 1_100), lambda _, port, seed: ask(port, seed))


@pytest.mark.soak
@pytest.mark.timeout(1_500)  # a minute where nothing else runs
def test_ten_thousand_hostile_answers_cost_no_memory():
    through_the_link = lambda _, port, seed: ask(port, seed)  # noqa: E731
    survive(range(10_000, 11_000), fetch)
    survive(range(11_000, 11_200), through_the_link)
    before_mb = _resident_mb()
    survive(range(20_000, 30_000), fetch)
    survive(range(30_000, 32_000), through_the_link)
    assert _resident_mb() - before_mb < 30


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_the_parser_alone_takes_any_bytes_in_any_pieces():
    for seed in range(40_000, 40_600):
        answer = answer_of(seed)
        reader = ResponseReader()
        try:
            for piece in [*answer.pieces, *[answer.endless] * (answer.ending == "endless")]:
                reader.feed(memoryview(piece))
            reader.end()
        except HttpFailed as failure:
            one_line(str(failure), seed)
            assert answer.whole is None, (seed, answer.trail)
        assert reader.waiting_bytes == len(reader.take())
