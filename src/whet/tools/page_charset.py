"""Decode the body of a web page by its byte order mark, its declared charset, as UTF-8, or by a guess."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from whet.tools.encoding import Encoding, sniff

_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9._:-]{1,40})", re.IGNORECASE)
_OWN_CHARSET = re.compile(
    rb"\s*(?:<\?xml\s[^>]{0,200}?encoding\s*=\s*|@charset\s+)[\"']([a-zA-Z0-9._:-]{1,40})[\"']"
)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?([a-zA-Z0-9._:-]{1,40})", re.IGNORECASE)
# The encodings of web pages, by their names in `codecs`. Python has others, such as unicode-escape, with
# which a page could show the model a text that no browser shows.
_PAGE_ENCODING = re.compile(
    r"ascii|utf-8(-sig)?|utf-(16|32)(-[bl]e)?|iso8859-\d+|iso2022_(jp|kr)\w*|koi8-[rtu]|mac-\w+"
    r"|cp(125\d|437|720|737|775|85\d|86\d|874|932|949|950)"
    r"|gb\w+|big5\w*|euc_\w+|shift_ji\w+|hz|johab|tis-620|ptcp154|kz1048"
)
_MAX_PARTIAL_CHAR_BYTES = 3  # a cut body may end within a character of up to four bytes

# The encodings that browsers use for these names (WHATWG Encoding): supersets, which pages really use.
_BROWSER_ENCODINGS = {
    **dict.fromkeys(("iso-8859-1", "latin-1", "latin1", "us-ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "shift_jis": "cp932",
    "euc-kr": "cp949",
}


class DecodedPage(msgspec.Struct, frozen=True):
    """A page's text, and a note if its charset is a guess."""

    text: str
    note: str = ""


def decode_page(body: bytes, content_type: str, *, is_cut: bool = False) -> DecodedPage:
    """Decode a body by its byte order mark, header, XML declaration, `@charset` or meta element, or as UTF-8.
    If nothing fits, its charset is guessed as a file's is. Never raises.

    An unknown or unsuitable charset is skipped. `is_cut`: the body may end in the middle of a character.
    """
    sniffed = sniff(body[:4], is_whole=False)
    if sniffed is not None and sniffed.mark:
        return DecodedPage(body[len(sniffed.mark) :].decode(sniffed.name, "replace"))
    names = [*_named_charsets(body, content_type), "utf-8"]
    for name in names:
        for cut_bytes in range(_MAX_PARTIAL_CHAR_BYTES + 1 if is_cut else 1):
            with suppress(LookupError, UnicodeError):
                return DecodedPage(body[: len(body) - cut_bytes].decode(name))
    return _decode_broken(body, names) or _decode_guess(body, is_cut=is_cut)


def _named_charsets(body: bytes, content_type: str) -> Iterator[str]:
    header = _HEADER_CHARSET.search(content_type)
    names = [header.group(1)] if header else []
    for match in (_OWN_CHARSET.match(body[:1024]), _META_CHARSET.search(body[:4096])):
        # a declaration that could be read as ASCII can't be in UTF-16 or UTF-32
        if match is not None and not match.group(1).lower().startswith((b"utf-16", b"utf-32", b"ucs-")):
            names.append(match.group(1).decode("ascii"))
    for name in names:
        charset = _BROWSER_ENCODINGS.get(name.lower(), name)
        if _is_page_encoding(charset):
            yield charset


def _is_page_encoding(charset: str) -> bool:
    try:
        return _PAGE_ENCODING.fullmatch(codecs.lookup(charset).name) is not None
    except LookupError:
        return False


def _decode_broken(body: bytes, names: Sequence[str]) -> DecodedPage | None:
    """Decode a text with a few bad bytes. Returns None if every charset leaves too many."""
    for name in reversed(names):
        with suppress(LookupError, UnicodeError):
            text = body.decode(name, "replace")
            bad = text.count("\ufffd")
            good = sum(char > "\x7f" for char in text) - bad
            # about 2 % may be bad, at least one character, and at most twice the good non-ASCII characters
            if bad * 50 < len(text) + 50 and bad <= 2 * good:
                return DecodedPage(text)
    return None


def _decode_guess(body: bytes, *, is_cut: bool) -> DecodedPage:
    encoding = sniff(body, is_whole=not is_cut)
    name = "cp1252" if encoding is None or encoding.name in ("latin-1", "utf-8") else encoding.name
    note = f"{Encoding(name).note}, which is a guess: the page names no charset that fits"
    return DecodedPage(body.decode(name, "replace"), note)
