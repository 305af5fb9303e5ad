"""Calls to a platform over real connections: what may have been done, and what is kept from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.support import quiet_port
from whet.contract.channels import SendFailed
from whet.vendors.http import VendorHttp, read, refused

ANSWER = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n%b\r\n%b"


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve one reply to every request, and hang up; gives the address and the requests' heads."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


def reply(status: bytes, body: bytes = b"{}", headers: bytes = b"") -> bytes:
    return ANSWER % (status, len(body), headers, body)


def test_half_of_a_surrogate_pair_loses_no_answer() -> None:
    whole = b'{"text": "a \\ud83d b", "more": ["\\ud83d\\ude00"]}'
    answer = read(whole, dict[str, Any])
    assert answer == {"text": "a \ufffd b", "more": ["\U0001f600"]}
    assert read(b'{"text": "a \\ud83d', dict[str, Any]) is None
    assert read(b'{"text": 1}', dict[str, str]) is None


async def called(base_url: str) -> SendFailed:
    http = VendorHttp("Board", base_url, {"authorization": "Bot secret"})
    try:
        answer = await http.call("POST", "/say", {"text": "hi"})
        return refused("Board", answer, "")
    except SendFailed as error:
        return error
    finally:
        await http.aclose()


@pytest.mark.parametrize(
    ("status", "final", "barred", "maybe"),
    [
        (b"500 Trouble", False, False, True),
        (b"502 Trouble", False, False, True),
        (b"524 Trouble", False, False, True),
        (b"503 Away", False, False, False),
        (b"429 Slowly", False, False, False),
        (b"408 Late", False, False, False),
        (b"302 Elsewhere", False, False, False),
        (b"400 No", True, False, False),
        (b"401 Who", True, True, False),
    ],
)
async def test_what_a_status_says_of_a_message(status: bytes, final: bool, barred: bool, maybe: bool) -> None:
    async with answering(reply(status)) as (url, _):
        error = await called(url)
    assert (error.is_final, error.is_barred, error.maybe_sent) == (final, barred, maybe)


async def test_a_connection_that_is_cut_leaves_a_doubt_and_one_that_was_never_made_does_not() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{") as (url, _):
        cut = await called(url)
    cut, unmade = cut, await called(f"http://127.0.0.1:{quiet_port()}")
    assert (cut.maybe_sent, cut.status) == (True, 0) and (unmade.maybe_sent, unmade.status) == (False, 0)


@pytest.mark.parametrize(
    ("asked", "waits_s"),
    [(b"7", 7.0), (b"999999999", 3600.0), (b"Fri, 31 Dec 9999 23:59:59 GMT", 3600.0), (b"soon", None)],
)
async def test_patience_is_read_in_every_form_up_to_an_hour(asked: bytes, waits_s: float | None) -> None:
    async with answering(reply(b"429 Slowly", headers=b"retry-after: " + asked + b"\r\n")) as (url, _):
        assert (await called(url)).retry_after_s == waits_s


async def test_a_file_of_somebody_else_is_fetched_without_our_token_and_no_further_than_allowed() -> None:
    async with (
        answering(reply(b"200 OK", b"x" * 5000)) as (elsewhere, heads),
        aclosing(VendorHttp("Board", "http://localhost:9", {"authorization": "Bot secret"})) as http,
    ):
        assert len(await http.download(f"{elsewhere}/f", 5000)) == 5000
        with pytest.raises(SendFailed) as too_large:
            await http.download(f"{elsewhere}/f", 4999)
    heads, reason = heads, too_large.value.reason
    assert not any(b"secret" in head for head in heads) and "larger" in reason
