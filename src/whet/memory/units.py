"""Find the whole sentence or line around a quote, so that no "not", condition or value gets lost.

In doubt more text is kept. Who said it does not matter here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from whet.memory.folding import PACKED, UNSPACED, fill_marks, strip_marks
from whet.memory.subjects import is_parallel
from whet.shell.fetches import reaches_out
from whet.shell.programs import UNKNOWN, program
from whet.shell.reading import read

# Characters that end a sentence in any script (Sentence_Terminal of Unicode), but for those of Latin and CJK
# text.
_SENTENCE_ENDS = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362\u1367\u1368"
    "\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b\u1c3c\u1c7e\u1c7f"
    "\u203c\u203d\u2047-\u2049\u2e2e\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9"
    "\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb"
)
# A stop ends a sentence if a new one clearly begins: after a word of three letters, not before a lower-case
# letter.
_STOP = re.compile(
    r"(?<=[^\W\d_]{3}[.])[)\"'”»]*\s+(?=[^\s\Wa-zà-öø-ÿа-я])|(?<=[\w)`\"'”»][!?…])[)\"'”»]*\s+|(?<=[。！？])[」』”]*"
    r"|(?<=[\w)`\"'”»][ \u00a0\u202f][!?])[)\"'”»]*\s+"  # French sets a space before the mark
    rf"|(?<=[\w)][!?])(?=[{UNSPACED}])"  # no blank before the next sentence
    rf"|(?<=[{_SENTENCE_ENDS}])[)\"'”»]*\s*"
    # a line that continues in lower case belongs to the same sentence
    r"|\n(?![a-zà-öø-ÿа-я])\n*|(?<=[.!?…:;])\n+"
)
# In casual text a new sentence may begin in lower case; a stop after an abbreviation looks the same.
_CASUAL_STOP = re.compile(r"(?<=\w{3}[.!;])\s+|\n+")
_STOP_AFTER_VALUE = re.compile(r"(?<=[\d)`\"'”»%/][.])\s+(?=[^\s\Wa-zà-öø-ÿа-я])")
PLACEHOLDER = re.compile(r"<[\w-]+>|\{\w+\}|[A-Z][A-Z0-9_]+|\$\w+")
"""A placeholder for a name in an error message."""
_QUOTED_COMMAND = re.compile(r"[`'\"‘“]([^`'\"’”\n]+)[`'\"’”]")
_ADDED_WORDS = 5
_CONDITION_WORDS = 16
_ADDED_UNSPACED = 12
MAX_CHARS = 400
"""The longest statement or line that is kept whole."""
_STRETCH_CHARS = 160
_LAST_WORDS = re.compile(rf"(?:(?<!\S)\S+\s+){{0,{_CONDITION_WORDS}}}\S*\Z")
_NEXT_WORDS = re.compile(rf"\S*(?:\s+\S+(?!\S)){{0,{_CONDITION_WORDS}}}")
_PLAIN = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[,.;!?]?$")
_COMMENT = re.compile(r"\s*(?:#+(?![#\[{])|//+|--|/\*+|\*+|;+|%+|<!--|\"\"\"|''')\s*[^\W\d_]")
_TRAILING = re.compile(r"\s(?:#|//|--|/\*|<!--)\s+([^\W\d_].*)$")
_PACKED = re.compile(f"[{UNSPACED}，、]{{6,}}")
_SETTING = re.compile(r"(?<![\w:/.])[^\W\d][\w .-]*[\"'\])]?\s*(?:=|:(?=\s))|^\s*[\w.-]+\s+\S*\d\S*$")
_MIN_PACKED = 4
_OTHER_WORD = re.compile(rf"[^\W\d_{UNSPACED}]{{2,}}")
_SHORT_PACKED = re.compile(f"[{UNSPACED}，、]{{4,}}")
_QUERY = re.compile(r"[?&][\w.-]+=\S+")
_SEVEN_WORDS = re.compile(r"(?:(?<![\w./-])[^\W\d_]{1,20}[,']?\s+){6,}[^\W\d_]{2,}")
_QUESTION = re.compile(
    r"[?](?![.=&$/(\[]?[a-z0-9_])|[？؟¿՞፧⁇⁈⁉⸮꘏꛷]|[\u0370-\u03ff].*;\Z|(?:[吗呢까]|ますか|ですか)[。.]*\Z"
)
_TICKED = re.compile(r"`([^`\n]+)`")
_PIECES = re.compile(r"[-_]+|(?<=[a-zß-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])")
_MAX_RUN_LENGTH = 5
_SPOKEN_NAME = 3
# A word beside an e-mail or web address: "always x@pay.example".
_ADDRESS = r"(?:[^\s@]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}|\w+://\S+)"
_SPOKEN_ADDRESS = re.compile(rf"(?<!\S)(?:[^\W\d_]{{2,}}\s+{_ADDRESS}|{_ADDRESS}\s+[^\W\d_]{{2,}}(?!\S))")
_CELLS = re.compile(r"[|;\t\"“”<>]|,(?!\d)|\s{2,}|[:=](?=\s)|(?<=\w)=|(?<=[^\W\d_]):(?=[^\W\d_])")
_RUN = re.compile("111|11.1|1.11")
_AMOUNT = re.compile(r"[v(]?\d[\w.,:%()-]*$")
_NO_VALUE = re.compile(r"[\W_]*|(?:[^\W\d_]\.)+[^\W\d_]")  # punctuation only, or "e.g"
_NAME = re.compile(r"[(\[+*]?[^\W\d_]+(?:['’-][^\W\d_]+)*(?:\.[a-z]{1,4})?[,.;!?]?$")
_DENSE = re.compile("[\uac00-\ud7af]{2,}[,.;!?]?$")
_PLAIN_SHARE = 0.76


class Unit(msgspec.Struct, frozen=True):
    """A whole statement and its position in the text."""

    text: str
    start: int
    end: int


def find_sentence(text: str, start: int, end: int) -> Unit:
    """Return the sentences that [start, end) touches, plus the short ones that follow in the same paragraph.

    "Not on Fridays." belongs to the sentence before it. "Bus 5 leaves at 9." after "Bus 4 leaves at 8." does
    not.
    """
    spans = list(_find_spans(text))
    first = next((n for n, (_, stop) in enumerate(spans) if stop > start), len(spans) - 1)
    last = next((n for n, (_, stop) in enumerate(spans) if stop >= end), len(spans) - 1)
    while last + 1 < len(spans) and "\n" not in text[spans[last][1] : spans[last + 1][0]]:
        sentence, following = (text[slice(*spans[at])] for at in (last, last + 1))
        if not _is_short(following) or is_parallel(sentence, following):
            break
        last += 1
    return _strip_unit(text, spans[first][0], spans[last][1])


def find_following(text: str, end: int) -> Unit | None:
    """Return the sentence after `end` in the same paragraph, or None if it is long or a question and so can't
    be a condition."""
    start, stop = next((span for span in _find_spans(text) if span[0] >= end), (len(text), len(text)))
    unit = _strip_unit(text, start, stop)
    is_near = unit.text and "\n" not in text[end:start] and not is_question(unit.text)
    return unit if is_near and len(unit.text.split()) <= _CONDITION_WORDS else None


def shorten(text: str, unit: Unit, start: int, end: int) -> str:
    """Return a statement. If it is too long, return the words around [start, end), with ellipses.

    Dictated text may have no full stop at all.
    """
    if len(unit.text) <= MAX_CHARS:
        return unit.text
    before = _LAST_WORDS.search(text[unit.start : start][-_STRETCH_CHARS:])
    after = _NEXT_WORDS.match(text[end : unit.end][:_STRETCH_CHARS])
    lead, rest = before[0] if before else "", after[0] if after else ""
    begin, stop = start - len(lead), end + len(rest)
    marks = ("… " if begin > unit.start else "", " …" if stop < unit.end else "")
    return text[begin:stop].strip().join(marks)


def find_line(text: str, start: int, end: int) -> Unit:
    """Return the lines that [start, end) touches, preceded by the headings that they are indented under.

    A key's value without its section could belong to another section.
    """
    begin = text[:start].rfind("\n") + 1
    stop = end - 1 + len(text[end - 1 :].partition("\n")[0])
    unit = _strip_unit(text, begin, stop)
    heads = _find_headings(text[:begin], text[begin:stop])
    return Unit("\n".join([*heads, unit.text]), unit.start, unit.end)


def find_prose(text: str, start: int, end: int) -> Unit:
    """Return the sentences of wrapped prose that [start, end) touches, across line ends."""
    begin = text[:start].rfind("\n\n") + 1
    block = text[begin:end] + text[end:].partition("\n\n")[0]
    sentence = find_sentence(block.replace("\n", " "), start - begin, end - begin)
    return Unit(" ".join(sentence.text.split()), begin + sentence.start, begin + sentence.end)


def is_prose(line: str) -> bool:
    """Return whether a line addresses its reader: a comment, or a run of plain words.

    Values, tables, settings and progress output of programs do not.
    """
    line = strip_marks(line)
    if _COMMENT.match(line) or _PACKED.search(line):
        return True
    if match := _TRAILING.search(line):
        return len(match[1].split()) >= _MAX_RUN_LENGTH - 1 or is_packed(match[1])
    words = _strip_code(line).split()
    plain = sum(map(bool, map(_PLAIN.match, words)))
    if plain > 1 and plain == len(words) and any(" " in code.strip() for code in _TICKED.findall(line)):
        return True  # "Run `kit sync` first."
    return _longest_run(words) >= _MAX_RUN_LENGTH or (len(words) >= 3 and plain / len(words) > _PLAIN_SHARE)


def has_prose(line: str) -> bool:
    """Return whether a line contains prose, also inside a value, a cell or a name."""
    line = _QUERY.sub(lambda match: re.sub(r"\+|%20", " ", match[0]), strip_marks(line))
    for cell in _CELLS.split(_strip_code(line)):
        words = cell.split()
        plain = [bool(_NAME.match(word)) for word in words]
        has_other = any(not (_NAME.match(word) or _AMOUNT.match(word)) for word in words)
        is_run = _RUN.search("".join(map("01".__getitem__, plain)))
        if is_run or (has_other and sum(plain) >= 0.6 * max(len(words), 3)):
            return True
    pieces = map(_PIECES.split, re.split(r"[\s/]+", line))
    return is_prose(line) or any(sum(map(str.isalpha, each)) >= _MAX_RUN_LENGTH for each in pieces)


def has_short_sentence(line: str) -> bool:
    """Return whether a line may hold a short sentence: in a script without blanks, as a name of three words
    or more (push-to-x-first.md), or as a word beside an address in a value. A setting's key is not
    checked."""
    if any(map(_SPOKEN_ADDRESS.search, _CELLS.split(strip_marks(line))[1:])):
        return True
    if setting := _SETTING.search(line):
        # The value may be a sentence: it has four letters of such a script, or two beside words of another.
        value = line[setting.end() :]
        packed_count = len(PACKED.findall(value))
        return packed_count >= _MIN_PACKED or (packed_count > 1 and _OTHER_WORD.search(value) is not None)
    if is_packed(line):
        return True
    pieces = map(_PIECES.split, re.split(r"[\s/.:]+", line))
    return any(sum(map(str.isalpha, each)) >= _SPOKEN_NAME for each in pieces)


def is_packed(text: str) -> bool:
    """Return whether a text holds a run of a script without blanks that is long enough for a sentence."""
    return _SHORT_PACKED.search(text) is not None


def find_commands(text: str) -> list[str]:
    """Return the commands in a text: code in back ticks with operands, and values of settings that run
    several commands or reach out."""
    ticked = [form for form in _TICKED.findall(text) if " " in form.strip() or not form.isascii()]
    values = (line[match.end() :] for line in text.splitlines() if (match := _SETTING.search(line)))
    return [*ticked, *filter(_is_command, (value.strip().strip("\"',") for value in values))]


def _is_command(value: str) -> bool:
    """Return whether a value names a known program and runs several commands or reaches out."""
    parts = read(value).parts if re.search(r"[\s;|&`]", value) else ()
    is_run = any(program(part.name) is not UNKNOWN for part in parts)
    return is_run and (len(parts) > 1 or reaches_out(value))


def _strip_code(line: str) -> str:
    """Return the line without code in backticks. A sentence in backticks is kept."""
    return _TICKED.sub(lambda m: m[1] if _longest_run(m[1].split()) >= _MAX_RUN_LENGTH else " ", line)


def _longest_run(words: Sequence[str]) -> int:
    """Return the length of the longest run of plain words. A Korean word counts as two."""
    longest = run = 0
    for word in words:
        run = run + (2 if _DENSE.match(word) else 1) if _PLAIN.match(word) else 0
        longest = max(longest, run)
    return longest


def is_talk(line: str) -> bool:
    """Return whether a line contains whole sentences, such as an echoed text or a long commit message."""
    return bool(_PACKED.search(line) or _SEVEN_WORDS.search(line))


def is_question(text: str) -> bool:
    """Return whether a statement is a question, by its mark or by a question particle.

    A mark inside a word or in code (`?v=2` in an address, `colou?r`) asks nothing.
    """
    bare = _strip_code(text).strip().rstrip("\"'”»」』) ")
    return _QUESTION.search(bare) is not None


def _find_spans(text: str) -> Iterator[tuple[int, int]]:
    letters = fill_marks(text)
    cuts = sorted({m.span() for p in (_STOP, _STOP_AFTER_VALUE) for m in p.finditer(letters)})
    begin = 0
    for start, end in [*cuts, (len(text), len(text))]:
        if text[begin:start].strip():
            yield begin, start
        begin = max(begin, end)


def _is_short(text: str) -> bool:
    return len(text.split()) <= _ADDED_WORDS and len(re.findall(f"[{UNSPACED}]", text)) <= _ADDED_UNSPACED


def _find_headings(before: str, line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    heads: list[str] = []
    for above in reversed(before.splitlines()[-200:]):
        if not above.strip():
            continue
        if re.match(r"\s*\[[^\]\n]+\]\s*$", above):
            return [above.strip(), *heads]
        depth = len(above) - len(above.lstrip())
        if depth < indent:
            heads.insert(0, above.strip())
            indent = depth
    return heads


def _strip_unit(text: str, start: int, end: int) -> Unit:
    part = text[start:end]
    lead = len(part) - len(part.lstrip())
    return Unit(part.strip(), start + lead, start + len(part.rstrip()))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end].strip() for start, end in _find_spans(text)]


def find_statements(text: str) -> list[str]:
    """Return the parts of a text that ask nothing, split at every stop, also before a lower-case letter."""
    parts = (part for sentence in split_sentences(text) for part in _CASUAL_STOP.split(sentence))
    return [part for part in parts if not is_question(part)]


def find_quoted_commands(text: str) -> list[str]:
    """Return the commands that a text quotes, most with placeholders: "run `prep ITEM` first"."""
    return _QUOTED_COMMAND.findall(text)


def find_values(text: str) -> frozenset[str]:
    """Return the parts of a text that must be exact: words with digits or signs, and code in backticks."""
    matches = re.findall(
        r"`([^`\n]+)`|(?<![\w.])([^\s`\"'“”(),;!?]*[\d/_=@][^\s`\"'“”(),;!?]*|--?[a-z][\w-]*|\w+[.-]\w[\w.-]*)",
        text.lower(),
    )
    stripped = ((ticked or bare).rstrip(".:") for ticked, bare in matches)
    return frozenset(value for value in stripped if not _NO_VALUE.fullmatch(value))


def mask_values(text: str) -> str:
    """Return a line with its values masked. Two lines of the same shape make the same statement about one
    subject."""
    text = re.sub(r"([=:])\s*\S.*$" if len(text.split()) <= 4 else r"(=)\S+", r"\1#", text.lower())
    return " ".join(re.sub(r"\S*\d\S*", "#", text).split())
