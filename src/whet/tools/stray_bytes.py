"""Read UTF-8 text with a few bytes that are not UTF-8, and write it back with the same bytes.

Such a byte becomes text like `‹\\xff›`, which people and models can read and repeat. A file cut inside a
character, or joined from parts in several encodings, is still UTF-8.
"""

from __future__ import annotations

import codecs
import re

ERRORS = "whet_stray_bytes"
"""The name of the error handler for codecs that decodes stray bytes to their text form."""

_FORM = re.compile("‹\\\\x([89a-f][0-9a-f])›")
_CUT_HEAD = re.compile(rb"[\x80-\xbf]{1,3}")
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")


def has_stray_form(text: str) -> bool:
    """Return whether the text holds the text form of a stray byte."""
    return _FORM.search(text) is not None


def is_mostly_utf8(data: bytes) -> bool:
    """Return whether the sequences outside ASCII are UTF-8 for the most part. A character that is cut at
    either end counts as neither."""
    head = _CUT_HEAD.match(data)
    data = data[head.end() :] if head else data
    valid, stray = 0, 0
    for match in _HIGH_BYTES.finditer(data):
        text = match[0].decode("utf-8", "surrogateescape")
        strays = sum("\udc80" <= char <= "\udcff" for char in text)
        valid += len(text) - strays
        stray += strays
    cut = data[len(data) - len(_cut_tail(data)) :]
    return 0 < valid >= stray - len(cut)


def decode_with_strays(data: bytes) -> str | None:
    """Decode UTF-8 with stray bytes. Returns None if the text already holds the form of a stray byte: it
    would not encode back to the same bytes."""
    text = data.decode("utf-8", ERRORS)
    return text if encode_with_strays(text) == data else None


def encode_with_strays(text: str) -> bytes:
    """Encode text as UTF-8, and the forms of stray bytes as these bytes."""
    parts = _FORM.split(text)
    pieces = (bytes.fromhex(part) if index % 2 else part.encode() for index, part in enumerate(parts))
    return b"".join(pieces)


def _cut_tail(data: bytes) -> bytes:
    """Return the beginning of a character at the end of the data, or nothing."""
    tail = data[-3:]
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    decoder.decode(tail)
    return decoder.getstate()[0]


def _show_stray_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    stray = error.object[error.start : error.end]
    return "".join(f"‹\\x{byte:02x}›" for byte in stray), error.end


codecs.register_error(ERRORS, _show_stray_bytes)
