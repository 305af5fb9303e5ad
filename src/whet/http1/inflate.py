"""Bodies that come compressed although nobody asked for it: gzip, and deflate with its header and without."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from whet.http1.failure import HttpFailed

_MOST_AT_ONCE_BYTES = 256 * 1024
_MOST_FOR_NOTHING_BYTES = 1024 * 1024


async def inflated(coding: str, next_piece: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes, None]:
    """Give the body as it was, in bounded pieces; other codings come unchanged. What follows the end of the
    compressed text is left unread. Raises HttpFailed."""
    if coding not in ("gzip", "x-gzip", "deflate"):
        while piece := await next_piece():
            yield piece
        return
    inflater, head, unheard_bytes = None, b"", 0
    try:
        while piece := await next_piece():
            if inflater is None:
                head += piece
                if len(head) < 2:  # the two bytes that tell, in pieces
                    continue
                inflater, piece = zlib.decompressobj(_window_bits(head)), head
            if inflater.eof:
                return
            unheard_bytes += len(piece)
            text = inflater.decompress(piece, _MOST_AT_ONCE_BYTES)
            while text:
                unheard_bytes = 0
                yield text
                text = inflater.decompress(inflater.unconsumed_tail, _MOST_AT_ONCE_BYTES)
            if unheard_bytes > _MOST_FOR_NOTHING_BYTES:
                raise HttpFailed("body", "its compression has no content")
    except zlib.error as error:
        raise HttpFailed("body", "its compression is broken") from error


def _window_bits(head: bytes) -> int:
    """Say how zlib is to read a body that begins so: with a header of gzip or zlib, or without any."""
    has_header = head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and int.from_bytes(head[:2]) % 31 == 0)
    return 47 if has_header else -15
