"""Check the size of images and whether their files are complete, without decoding them.

Vendors refuse a request with an image that is too large or cut off. Once such an image is in the history,
every later request contains it and fails.
"""

from __future__ import annotations

import struct

MAX_SIDE_PIXELS = 8_000
"""The longest side that the large vendors accept."""
_PNG_HEADER_BYTES = 33
_GIF_HEADER_BYTES = 13
_WEBP_HEADER_BYTES = 30
# The JPEG markers of a frame header: C0 to CF, except those of tables and extensions.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MAX_SEGMENTS = 100_000  # cameras write a few dozen; a hostile file could have one for each byte
_MARKERS_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def image_fault(data: bytes) -> str:
    """Return why vendors would refuse an image (PNG, JPEG, GIF or WebP), or an empty string.

    Also returns "" for a file whose size can't be read: the model's server decides.
    """
    size: tuple[int, ...] = ()
    is_whole = True
    if data.startswith(b"\x89PNG") and data[12:16] == b"IHDR" and len(data) >= _PNG_HEADER_BYTES:
        size, is_whole = struct.unpack(">II", data[16:24]), b"IEND" in data[_PNG_HEADER_BYTES:]
    elif data.startswith(b"GIF8") and _has_gif_block(data):
        size, is_whole = struct.unpack("<HH", data[6:10]), data.rstrip(b"\0\r\n\t ").endswith(b";")
    elif data.startswith(b"RIFF") and len(data) >= _WEBP_HEADER_BYTES:
        size, is_whole = _webp_size(data), struct.unpack("<I", data[4:8])[0] + 8 <= len(data) + 1
    elif data.startswith(b"\xff\xd8"):
        size, header_end = _jpeg_size(data)
        is_whole = b"\xff\xd9" in data[header_end:]
    return _fault(size, is_whole=is_whole) if size else ""


def _has_gif_block(data: bytes) -> bool:
    """Return whether a block follows the header and the colours of a GIF."""
    if len(data) < _GIF_HEADER_BYTES:
        return False
    colours = 3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0
    block = data[_GIF_HEADER_BYTES + colours :][:1]
    return block in (b"", b"!", b",", b";") and len(data) > _GIF_HEADER_BYTES


def _fault(size: tuple[int, ...], *, is_whole: bool) -> str:
    if not all(size):
        return "it has no pixels"
    if max(size) > MAX_SIDE_PIXELS:
        width, height = size
        return f"it has {width:,} x {height:,} pixels; models take at most {MAX_SIDE_PIXELS:,} on a side"
    return "" if is_whole else "its file is cut off"


def _webp_size(data: bytes) -> tuple[int, ...]:
    """Return width and height, or an empty tuple if the file has another form."""
    kind = data[12:16]
    if kind == b"VP8X":
        return tuple(int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return tuple(side & 0x3FFF for side in struct.unpack("<HH", data[26:30]))
    return ()


def _jpeg_size(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return (width, height) and the end of the frame header, or () and 0 if there is no frame."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 9 > len(data):
            break
        if data[at] != 0xFF or data[at + 1] == 0xFF:
            at += 1
            continue
        marker = data[at + 1]
        if marker in _FRAME_MARKERS:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return (width, height or 1), at + 9
        length = 0 if marker in _MARKERS_WITHOUT_LENGTH else int.from_bytes(data[at + 2 : at + 4], "big")
        at += 2 + length
    return (), 0
