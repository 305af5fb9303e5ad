"""Decode a file's bytes to text and encode it back with the same encoding, byte order mark and line endings.

UTF-8 is assumed unless a mark says otherwise, also with a few stray bytes (`stray_bytes.py`). Other bytes are
decoded by the character set that `charsets.py` recognises, if they come back unchanged. A NUL means binary,
except in UTF-16. No I/O.
"""

from __future__ import annotations

import codecs
import re
from itertools import takewhile

import msgspec

from whet.tools import stray_bytes

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAX_MATCHED_LINES = 4_000  # lines of both texts after their common beginning, compared in quadratic time
_MAX_FITTED_LINES = 40_000
_ENDING = re.compile(r"\r?\n")
_TITLES = {
    "latin-1": "Latin-1",
    "cp1252": "Windows-1252",
    "cp1251": "Windows-1251",
    "cp1253": "Windows-1253",
    "cp932": "Shift-JIS",
    "cp949": "EUC-KR",
    "gb18030": "GB18030",
    "gbk": "GBK",
    "big5": "Big5",
    "euc_jp": "EUC-JP",
    "koi8_r": "KOI8-R",
}


class Encoding(msgspec.Struct, frozen=True):
    """The encoding of a file's text: the codec's name and the mark before it.

    `has_strays`: it is UTF-8 with bytes that are not. `ends_with_cr`: lines end with a carriage return alone,
    which is a newline in the decoded text.
    """

    name: str = "utf-8"
    mark: bytes = b""
    has_strays: bool = False
    ends_with_cr: bool = False

    @property
    def errors(self) -> str:
        """The name of the error handler to decode text for a reader."""
        return stray_bytes.ERRORS if self.name == "utf-8" else "replace"

    @property
    def note(self) -> str:
        """A note about the encoding for a reader, empty for plain UTF-8."""
        notes = (self._charset_note, "CR line ends" if self.ends_with_cr else "")
        return "; ".join(filter(None, notes))

    @property
    def _charset_note(self) -> str:
        if self.mark:
            return f"{self.name.upper()} with byte order mark"
        if self.has_strays:
            return "UTF-8 with stray bytes"
        if self.name == "utf-8":
            return ""
        return f"not UTF-8, read as {_TITLES.get(self.name, self.name.upper())}"


def may_be_document(head: bytes) -> bool:
    """Return whether a file with these first bytes may be a PDF or an office file."""
    return head.startswith(b"PK\x03\x04") or b"%PDF-" in head[:1024]


def sniff(head: bytes, *, is_whole: bool) -> Encoding | None:
    """Detect the encoding from a file's first bytes. Returns None if the file is binary."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, mark)
    if b"\0" in head:
        from whet.tools.charsets import guess_utf16  # noqa: PLC0415  few files are not UTF-8

        name = guess_utf16(head, is_whole=is_whole)
        return Encoding(name) if name else None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, is_whole)
    except UnicodeDecodeError:
        if stray_bytes.is_mostly_utf8(head):
            return Encoding(has_strays=True)
        return _guess(head, is_whole=is_whole)
    return Encoding()


def find_encoding(head: bytes, *, is_whole: bool) -> Encoding | None:
    """Detect the encoding and, if `head` is the whole file, line ends that are carriage returns. Returns None
    if the file is binary."""
    encoding = sniff(head, is_whole=is_whole)
    if encoding is None or not is_whole or b"\r" not in head:
        return encoding
    text = head.decode(encoding.name, "replace")
    return msgspec.structs.replace(encoding, ends_with_cr=_has_cr_ends(text))


def decode(data: bytes) -> tuple[str, Encoding] | None:
    """Return a whole file's text, line endings unchanged, and its encoding, or None if it is binary. Carriage
    returns become newlines if no other line ends."""
    decoded = _decode(data)
    if decoded is None or not _has_cr_ends(decoded[0]):
        return decoded
    text, encoding = decoded
    return text.replace("\r", "\n"), msgspec.structs.replace(encoding, ends_with_cr=True)


def encode(text: str, encoding: Encoding) -> bytes:
    """Encode `text` in the file's encoding. Raises UnicodeEncodeError if the encoding lacks a character."""
    if encoding.ends_with_cr:
        text = text.replace("\r\n", "\n").replace("\n", "\r")
    if encoding.has_strays:
        return encoding.mark + stray_bytes.encode_with_strays(text)
    return encoding.mark + text.encode(encoding.name)


def _has_cr_ends(text: str) -> bool:
    return "\r" in text and "\n" not in text


def _decode(data: bytes) -> tuple[str, Encoding] | None:
    encoding = sniff(data, is_whole=True)
    if encoding is None:
        return None
    body = data[len(encoding.mark) :]
    try:
        return body.decode(encoding.name), encoding
    except UnicodeDecodeError:
        text = stray_bytes.decode_with_strays(body) if encoding.name == "utf-8" else None
    if text is not None:
        return text, Encoding("utf-8", encoding.mark, has_strays=True)
    if encoding.mark:
        return None
    guess = _guess(data, is_whole=True)
    return data.decode(guess.name), guess


def _guess(data: bytes, *, is_whole: bool) -> Encoding:
    from whet.tools.charsets import guess_charset  # noqa: PLC0415  few files are not UTF-8

    return Encoding(guess_charset(data, is_whole=is_whole))


def line_ending(text: str) -> str:
    """Return the ending of most lines in `text`."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf and crlf * 2 >= text.count("\n") else "\n"


def fit_form(text: str, old: str) -> str:
    """Return a file's new text with the line endings and the last newline of its old text.

    Models see and write plain newlines, or CRLF everywhere. In a file with both endings each line that was
    there keeps its own. A text that has both itself is kept as it is unless the old text has only CRLF.
    """
    endings, plain = _ENDING.findall(old), text.replace("\r\n", "\n")
    if "\r\n" in endings:
        if "\n" not in endings:
            text = plain.replace("\n", "\r\n")
        elif text in (plain, plain.replace("\n", "\r\n")):
            text = fit_lines(plain, old)
    return keep_last_newline(text, old)


def keep_last_newline(text: str, old: str) -> str:
    """Return a file's new text with the newline that ends its old text."""
    ending = next((end for end in ("\r\n", "\n") if old.endswith(end)), "")
    return text + ending if text and ending and not text.endswith("\n") else text


def describe_form_changes(text: str, old: str, encoding: Encoding) -> str:
    """Return a note on which encoding and line endings a rewritten file keeps, and which it changes."""
    before, after = set(_ENDING.findall(old)), set(_ENDING.findall(text))
    kept = [encoding.note.removeprefix("not UTF-8, read as ")] if encoding.note else []
    is_unified = len(before) > len(after) > 0
    kept += ["CRLF line ends"] if "\r\n" in before & after and not is_unified else []
    notes = [f"kept: {', '.join(kept)}"] if kept else []
    if before and (after - before or is_unified):
        notes.append(f"line ends were {_name_endings(before)}, now {_name_endings(after)}")
    if old and text and not old.endswith("\n") and text.endswith("\n"):
        notes.append("the file had no newline at its end, now it has")
    return "; ".join(notes)


def fit_lines(text: str, old: str, usual: str = "") -> str:
    """Return `text`, which has plain newlines, with the endings that its lines had in `old`.

    A new line gets the ending of the line before it; a new first line that of the first old line, or `usual`
    if `old` had no line ending. In texts too large to compare, all lines get the most common ending of `old`.
    """
    old_lines, lines = old.split("\n"), text.split("\n")
    if len(lines) + len(old_lines) > _MAX_FITTED_LINES:
        return text.replace("\n", line_ending(old))
    stripped = [line.removesuffix("\r") for line in old_lines]
    import difflib  # noqa: PLC0415  few files have both endings

    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(stripped, lines, strict=False)))
    rests = stripped[head:], lines[head:]
    if sum(map(len, rests)) > _MAX_MATCHED_LINES:
        return text.replace("\n", line_ending(old))
    had_return = {number: old_lines[number].endswith("\r") for number in range(min(head, len(old_lines) - 1))}
    for _, old_start, old_end, start, end in difflib.SequenceMatcher(None, *rests).get_opcodes():
        new_numbers = range(head + start, head + end)
        old_numbers = range(head + old_start, min(head + old_end, len(old_lines) - 1))
        pairs = zip(new_numbers, old_numbers, strict=False)
        had_return |= {number: old_lines[old_number].endswith("\r") for number, old_number in pairs}
    is_crlf = old_lines[0].endswith("\r") if len(old_lines) > 1 else usual == "\r\n"
    fitted: list[str] = []
    for number, line in enumerate(lines[:-1]):
        is_crlf = had_return.get(number, is_crlf)
        fitted.append(line + ("\r" if is_crlf else ""))
    return "\n".join([*fitted, lines[-1]])


def _name_endings(endings: set[str]) -> str:
    return " and ".join(sorted("CRLF" if ending == "\r\n" else "LF" for ending in endings))
