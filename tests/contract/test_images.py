"""Images that vendors are known to refuse are found by their frame."""

from __future__ import annotations

import struct
import zlib

import pytest

from whet.contract.images import image_fault


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes((width + 7) // 8 + 1) * height)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b",\0\0\0\0\1\0\1\0\0\2\2\x44\1\0;"


def jpeg(width: int, height: int) -> bytes:
    table = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0".ljust(14, b"\0")
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + table + frame + b"\xff\xda\0\2data\xff\xd9"


def webp(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sides + bytes(20)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("make", [png, gif, jpeg, webp])
def test_an_image_that_is_too_long_or_cut_off_has_a_fault(make):
    assert image_fault(make(30, 20)) == ""
    assert image_fault(make(8_000, 1)) == ""
    assert "9,000 x 30 pixels" in image_fault(make(9_000, 30))
    assert "30 x 8,001 pixels" in image_fault(make(30, 8_001))
    assert image_fault(make(30, 20)[:40]) == "its file is cut off" or make in (gif, jpeg)
    assert image_fault(make(30, 20)[:-5].rstrip(b"\xff\xd9;")) == "its file is cut off"


def test_what_has_no_frame_is_left_to_the_server():
    for head in (b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0", b"RIFF\0\0\0\0WEBP"):
        for size in (0, 1, 20, 300):
            for filler in (b"\0", b"."):
                assert image_fault(head + filler * size) == ""


def test_a_gif_with_a_line_break_after_its_end_is_whole() -> None:
    assert image_fault(gif(30, 20) + b"\r\n") == ""
