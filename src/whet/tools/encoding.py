"""Decode a file's bytes to text and encode it back with the same encoding, byte order mark and line endings.

UTF-8 is assumed unless a mark says otherwise; if the bytes are not valid UTF-8, Latin-1 is used, which can
decode anything. A NUL without a mark means binary. No I/O.
"""

from __future__ import annotations

import codecs

import msgspec

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Encoding(msgspec.Struct, frozen=True):
    """The encoding of a file's text: the codec's name and the mark before it."""

    name: str = "utf-8"
    mark: bytes = b""

    @property
    def note(self) -> str:
        """A note about the encoding for a reader, empty for plain UTF-8."""
        if self.name == "latin-1":
            return "not UTF-8, read as Latin-1"
        return f"{self.name.upper()} with byte order mark" if self.mark else ""


def sniff(head: bytes, *, is_whole: bool) -> Encoding | None:
    """Detect the encoding from a file's first bytes. Returns None if the file is binary."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, mark)
    if b"\0" in head:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, is_whole)
    except UnicodeDecodeError:
        return Encoding("latin-1")
    return Encoding()


def decode(data: bytes) -> tuple[str, Encoding] | None:
    """Return a whole file's text, line endings unchanged, and its encoding, or None if it is binary."""
    encoding = sniff(data, is_whole=True)
    if encoding is None:
        return None
    try:
        return data[len(encoding.mark) :].decode(encoding.name), encoding
    except UnicodeDecodeError:
        return None


def encode(text: str, encoding: Encoding) -> bytes:
    """Encode `text` in the file's encoding. Raises UnicodeEncodeError if the encoding lacks a character."""
    return encoding.mark + text.encode(encoding.name)


def line_ending(text: str) -> str:
    """Return the ending of most lines in `text`."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf and crlf * 2 >= text.count("\n") else "\n"
