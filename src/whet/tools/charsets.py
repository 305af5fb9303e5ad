"""Recognise the character set of text that is not UTF-8, from a few words of it.

Libraries that guess character sets need paragraphs; source files have a comment of two words. A set counts
if the bytes decode strictly and come back unchanged, and the text consists of the characters that its
language uses most. Otherwise the text is Western: Windows-1252, or Latin-1, which decodes anything.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator

_SAMPLE_BYTES = 1 << 16
_MIN_COMMON = 0.75  # of the characters outside ASCII, how many must be common in the language
_MIN_RUN_LENGTH = 4
_HIGH_LINE = re.compile(rb"^[^\n]*[\x80-\xff][^\n]*", re.MULTILINE)
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_CHINESE = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子得于下自年过发后作里用道行所然家种事成方多经么去法学如"
    "都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想日文字数据件名标题明计算函返回结果显示设置配程序输入错误读取写类型值"
    "這個們來為國說時會對於過發後裡種經麼學現當沒動還進開從樣數據標題計結顯設錯誤讀寫類檔資料變測試"
)
_KOREAN = (
    "이다는의에을가고하를지은사기도로한자어나인시아해대서그수리부정스일과것있보들원라장전주제만게위구비성여면할안상경오"
    "동공화무신선세용우거유모소방조파름명데터함값력출결설읽쓰표류문열회행입석계산중국변환코"
)
_JAPANESE = "のはにをたがでてとしれさいるなきかうりもこらすっんまけりめスンルトリイクラアコメ日本語"
_RUSSIAN = "оеаинтсрвлкмдпуябыгзчй"
_GREEK = "αοιετσνηυρπκμλςάίόέή"

_Kind = bool | None
"""Whether a character is common in a language; None if it says nothing, such as punctuation."""


def guess_charset(data: bytes, *, is_whole: bool) -> str:
    """Return the codec of `data`, which is not UTF-8. With `is_whole` it encodes back to the same bytes."""
    sample = _sample(data)
    candidates = sorted(_rate_candidates(sample), reverse=True)
    for _, name in candidates:
        if _fits(name, data, is_whole=is_whole):
            is_gbk = is_whole and name == "gb18030" and _fits("gbk", data, is_whole=True)
            return "gbk" if is_gbk else name
    has_windows_signs = re.search(rb"[\x80-\x9f]", data) is not None
    return "cp1252" if has_windows_signs and _fits("cp1252", data, is_whole=is_whole) else "latin-1"


def guess_utf16(data: bytes, *, is_whole: bool) -> str:
    """Return the codec if `data`, which contains NULs, is UTF-16 without a mark, else an empty string."""
    low, high = data[0::2].count(0), data[1::2].count(0)
    name = "utf-16-le" if low * 20 < high else "utf-16-be" if high * 20 < low else ""
    if not name or (is_whole and len(data) % 2):
        return ""
    try:
        text = codecs.getincrementaldecoder(name)().decode(data, is_whole)
    except UnicodeDecodeError:
        return ""
    is_text = "\n" in text and re.sub(r"[\t\n\r\f\ufeff\u3000]", "", text).isprintable()
    return name if is_text and (4 * (low + high) >= len(data) or not _is_utf8_with_nuls(data)) else ""


def _is_utf8_with_nuls(data: bytes) -> bool:
    """Return whether the bytes are UTF-8 but for a few NULs in between."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data.replace(b"\0", b""))
    except UnicodeDecodeError:
        return False
    return True


def _sample(data: bytes) -> bytes:
    """Return the first lines that are not ASCII, for the same guess from a file's head and its whole."""
    lines: list[bytes] = []
    size = 0
    for match in _HIGH_LINE.finditer(data):
        lines.append(match[0])
        size += len(match[0])
        if size > _SAMPLE_BYTES:
            break
    return b"\n".join(lines)[:_SAMPLE_BYTES]


def _fits(name: str, data: bytes, *, is_whole: bool) -> bool:
    try:
        text = codecs.getincrementaldecoder(name)().decode(data, is_whole)
        return not is_whole or text.encode(name) == data
    except UnicodeError:
        return False


def _rate_candidates(sample: bytes) -> Iterator[tuple[float, str]]:
    for name, is_common, frequent in _CANDIDATES:
        try:
            text = codecs.getincrementaldecoder(name)().decode(sample)
        except UnicodeDecodeError:
            continue
        chars = [char for char in text if char > "\x7f"]
        kinds = [is_common(char) for char in chars]
        common, rare = kinds.count(True), kinds.count(False)
        if not common or common < _MIN_COMMON * (common + rare) or not _has_words(name, sample):
            continue
        yield (common + sum(char in frequent for char in chars)) / (common + rare), name


def _has_words(name: str, sample: bytes) -> bool:
    """Return whether the bytes outside ASCII make words, as in scripts without ASCII letters: "Größe" has
    none."""
    if name not in _ALPHABETS:
        return True
    runs = [len(match[0]) for match in _HIGH_RUN.finditer(sample)]
    return max(runs) >= _MIN_RUN_LENGTH and sum(length for length in runs if length > 1) > 0.7 * sum(runs)


def _is_kana(char: str) -> bool:
    return "\u3041" <= char <= "\u30fe"


def _lead(char: str, name: str) -> int:
    """Return the first of a character's two bytes in a character set, or 0 if the set lacks it."""
    try:
        encoded = char.encode(name)
    except UnicodeEncodeError:
        return 0
    return encoded[0] if len(encoded) == 2 else 0


def _is_chinese(char: str) -> _Kind:
    lead = _lead(char, "gb2312")
    return None if lead in (0xA1, 0xA3) else 0xB0 <= lead <= 0xD7


def _is_traditional(char: str) -> _Kind:
    lead = _lead(char, "big5")
    return None if 0xA1 <= lead <= 0xA3 else 0xA4 <= lead <= 0xC6


def _is_korean(char: str) -> _Kind:
    lead = _lead(char, "euc_kr")
    return None if lead in (0xA1, 0xA3) else 0xB0 <= lead <= 0xC8


def _is_japanese(char: str) -> _Kind:
    lead = _lead(char, "euc_jp")
    return None if lead in (0xA1, 0xA3) else _is_kana(char) or 0xB0 <= lead <= 0xCF


def _is_cyrillic(char: str) -> _Kind:
    return None if char in "\xa0\xab\xbb\u2013\u2014\u2116" else "\u0430" <= char <= "\u0451"


def _is_greek(char: str) -> _Kind:
    return None if char in "\xa0\xab\xbb\u2013\u2014" else "\u03ac" <= char <= "\u03ce"


_ALPHABETS = frozenset({"cp1251", "koi8_r", "cp866", "cp1253"})
_CANDIDATES: tuple[tuple[str, Callable[[str], _Kind], str], ...] = (
    ("gb18030", _is_chinese, _CHINESE),
    ("big5", _is_traditional, _CHINESE),
    ("cp932", _is_japanese, _JAPANESE),
    ("euc_jp", _is_japanese, _JAPANESE),
    ("cp949", _is_korean, _KOREAN),
    ("cp1251", _is_cyrillic, _RUSSIAN),
    ("koi8_r", _is_cyrillic, _RUSSIAN),
    ("cp866", _is_cyrillic, _RUSSIAN),
    ("cp1253", _is_greek, _GREEK),
)
