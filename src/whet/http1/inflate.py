"""Decompress bodies that a server compressed unasked: gzip, and deflate with or without header."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from whet.http1.failure import HttpFailed

_MAX_AT_ONCE_BYTES = 256 * 1024
_MAX_EMPTY_BYTES = 1024 * 1024  # received without any decompressed text


async def inflate_pieces(
    coding: str, next_piece: Callable[[], Awaitable[bytes]]
) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed body in bounded pieces. Other codings are passed on unchanged.

    Data after the end of the compressed text is ignored. Raises HttpFailed.
    """
    if coding not in ("gzip", "x-gzip", "deflate"):
        while piece := await next_piece():
            yield piece
        return
    inflater, head, empty_bytes = None, b"", 0
    try:
        while piece := await next_piece():
            if inflater is None:
                head += piece
                if len(head) < 2:  # wait for the two bytes that identify the format
                    continue
                inflater, piece = zlib.decompressobj(_window_bits(head)), head
            if inflater.eof:
                return
            empty_bytes += len(piece)
            text = inflater.decompress(piece, _MAX_AT_ONCE_BYTES)
            while text:
                empty_bytes = 0
                yield text
                text = inflater.decompress(inflater.unconsumed_tail, _MAX_AT_ONCE_BYTES)
            if empty_bytes > _MAX_EMPTY_BYTES:
                raise HttpFailed("body", "its compressed data has no content")
    except zlib.error as error:
        raise HttpFailed("body", "its compression is broken") from error


def _window_bits(head: bytes) -> int:
    """Return zlib's window bits for a body that begins like this: with a gzip or zlib header, or without."""
    has_header = head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and int.from_bytes(head[:2]) % 31 == 0)
    return zlib.MAX_WBITS | 32 if has_header else -zlib.MAX_WBITS  # 32: gzip or zlib, by the header
