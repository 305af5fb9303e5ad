"""Answers that come compressed."""

from __future__ import annotations

import zlib

import pytest

from tests.providers.server import Script, running, sse
from tests.providers.test_link import FIRST, GOOD, JSON, LAST, USAGE, failure_of, items_of, provider, run
from whet.contract.errors import BadRequest, Unavailable


def compressed(kind: str, body: bytes) -> tuple[str, bytes]:
    """A content-encoding and the body in it; servers send deflate with its header and without."""
    window = {"gzip": 31, "deflate with header": 15, "deflate without": -15}[kind]
    packer = zlib.compressobj(wbits=window)
    return kind.split(" ")[0], packer.compress(body) + packer.flush()


@pytest.mark.parametrize("kind", ["gzip", "deflate with header", "deflate without"])
@pytest.mark.parametrize("piece", [1, 7, 10_000])
async def test_an_answer_that_is_compressed_unasked_is_read(kind: str, piece: int):
    encoding, body = compressed(kind, sse(FIRST, LAST, USAGE, b"[DONE]"))
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    async with running(Script(pieces, headers={"content-encoding": encoding})) as server:
        items = await items_of(provider(server))
        assert items[-1].message.content == "Hello" and items[-1].usage.prompt_tokens == 3
        assert server.requests[0].headers["accept-encoding"] == "identity"


def test_an_error_that_is_compressed_is_told_in_its_words():
    _, body = compressed("gzip", b'{"error":{"message":"no such model m"}}')
    error = failure_of(Script([body], 404, JSON, {"content-encoding": "gzip"}))
    assert isinstance(error, BadRequest) and "no such model m" in error.message


def test_a_broken_compression_is_a_broken_answer_and_tried_again():
    broken = Script([b"\x1f\x8b\x08 this is not a gzip"], headers={"content-encoding": "gzip"})
    assert isinstance(failure_of(broken), Unavailable)

    async def test() -> None:
        async with running(broken, GOOD) as server:
            assert (await items_of(provider(server)))[-1].message.content == "Hello"

    run(test)
