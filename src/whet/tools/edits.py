"""Find a block of text in a file and replace it, ignoring only differences in whitespace, quotes and dashes.

Exact text is tried first, then lines without trailing whitespace, then lines without indentation (the
replacement then takes the file's indentation), then all of these with curly quotes and long dashes
replaced by plain ones. Line endings are kept. No I/O.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from whet.contract.errors import BadInput
from whet.contract.texts import clean
from whet.tools.encoding import fit_lines, line_ending

Fold = Callable[[str], str]
LEVELS: tuple[tuple[str, Fold], ...] = (
    ("", str),
    ("trailing whitespace ignored", str.rstrip),
    ("indentation ignored", str.strip),
)
_TYPED = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00a0\u202f",
    "''''\"\"\"\"-------  ",
)
_NEAREST_LINES = 5_000


def plain_typography(text: str) -> str:
    """Replace typographic quotes, dashes and spaces by plain ones. The length stays the same."""
    return text.translate(_TYPED)


class TextEdit(msgspec.Struct, frozen=True):
    """A file's new text, the line numbers of its changes, and how loosely the text matched."""

    text: str
    lines: tuple[int, ...]
    how: str


class _Span(msgspec.Struct, frozen=True):
    start: int
    end: int
    new: str


def replace(text: str, old: str, new: str, *, every: bool) -> TextEdit:
    """Return `text` with `old` replaced by `new`: the only occurrence, or with `every` each one.

    Raises BadInput if `old` is not found (with the nearest lines) or found more than once (with the line
    numbers).
    """
    flat, old, new = (part.replace("\r\n", "\n") for part in (text, old, new))
    if not old:
        raise BadInput("old_string is empty or missing", hint="to create or fill a file use write_file")
    if old == new:
        raise BadInput("old_string and new_string are the same")
    how, spans = _spans(flat, old, new)
    numbers = tuple(flat.count("\n", 0, span.start) + 1 for span in spans)
    if not spans:
        raise _not_found(flat, old, new)
    if len(spans) > 1 and not every:
        raise BadInput(
            f"old_string is there {len(spans)} times, at lines {format_numbers(numbers)}",
            hint="give more of the surrounding lines, or set replace_all",
        )
    return TextEdit(_apply(text, spans), numbers, how)


def find_block(lines: Sequence[str], block: Sequence[str], fold: Fold) -> list[int]:
    """Return the indexes where `block` starts in `lines`, both folded. Blank blocks match only exactly."""
    folded_block = [fold(line) for line in block]
    if not folded_block or (fold is not str and not any(folded_block)):
        return []
    folded = [fold(line) for line in lines]
    first, count = folded_block[0], len(folded_block)
    return [
        index
        for index in range(len(folded) - count + 1)
        if folded[index] == first and folded[index : index + count] == folded_block
    ]


def reindent(lines: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return `lines` in the file's indentation, learnt from pairs of (line in the call, line in the file)."""
    indents: dict[str, str] = {}
    for line_in_call, real in pairs:
        if line_in_call.strip():
            indents.setdefault(_indent(line_in_call), _indent(real))
    return [_reindent_line(line, indents) for line in lines]


def nearest_note(lines: Sequence[str], block: Sequence[str]) -> str:
    """Describe the lines nearest to `block` and their differences, or return an empty string if none is
    near."""
    start = _nearest_start(lines, block)
    if start < 0:
        return ""
    rows: list[str] = []
    for index, expected in enumerate(block):
        number = start + index
        real = lines[number] if number < len(lines) else None
        if real == expected:
            continue
        has = f"has {_quote_line(real)}" if real is not None else "is past the end of the file"
        rows.append(f"line {number + 1} {has}, you gave {_quote_line(expected)}")
    more = [f"and {len(rows) - 6} more lines differ"] if len(rows) > 6 else []
    last = min(start + len(block), len(lines))
    return f"nearest is lines {start + 1}-{last}: " + "; ".join(rows[:6] + more)


def format_numbers(numbers: Sequence[int]) -> str:
    """Format up to ten numbers: 3, 8, 12 and 40 more."""
    more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    return ", ".join(str(number) for number in numbers[:10]) + more


def _spans(flat: str, old: str, new: str) -> tuple[str, list[_Span]]:
    exact = [_Span(match.start(), match.end(), new) for match in re.finditer(re.escape(old), flat)]
    if exact and not ("\n" in new and any(_is_shifted(flat, span.start, old) for span in exact)):
        return "", exact
    for how, fold in LEVELS[1:]:
        if spans := _block_spans(flat, old, new, fold):
            return how, spans
    if not exact and (plain_typography(flat), plain_typography(old)) != (flat, old):
        how, spans = _spans(plain_typography(flat), plain_typography(old), new)
        kept_spans = [_keep_typography(flat, span, old, new) for span in spans]
        if spans:
            return "; ".join(filter(None, ("quotes and dashes ignored", how))), kept_spans
    return ("", exact) if exact else _spans_in_other_form(flat, old, new)


def _spans_in_other_form(flat: str, old: str, new: str) -> tuple[str, list[_Span]]:
    """Find `old` with composed or decomposed accents, as the file has them. `new` takes the same form."""
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, old)
        if text != old and text in flat:
            spans = _spans(flat, text, unicodedata.normalize(form, new))[1]
            return f"accents in the file's form ({form})", spans
    return "", []


def count_common_start(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of equal characters (or lines) at the start of two texts (or lists)."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _keep_typography(flat: str, span: _Span, old: str, new: str) -> _Span:
    """Keep the file's own quotes and dashes in the parts that a replacement doesn't change."""
    real = flat[span.start : span.end]
    if len(real) != len(old) or span.new != new:
        return span
    head = count_common_start(old, new)
    tail = count_common_start(old[head:][::-1], new[head:][::-1])
    middle = new[head : len(new) - tail]
    return _Span(span.start, span.end, f"{real[:head]}{middle}{real[len(real) - tail :]}")


def _is_shifted(flat: str, start: int, old: str) -> bool:
    """Return whether a match begins inside a line's indentation, so that its further lines would be
    misindented."""
    before = flat[flat.rfind("\n", 0, start) + 1 : start]
    return bool(before) and not before.strip() and old[0] in " \t"


def _block_spans(flat: str, old: str, new: str, fold: Fold) -> list[_Span]:
    lines = flat.split("\n")
    block = old.removesuffix("\n").split("\n")
    offsets = list(accumulate((len(line) + 1 for line in lines), initial=0))
    spans: list[_Span] = []
    for start in find_block(lines, block, fold):
        end = start + len(block)
        if spans and offsets[start] < spans[-1].end:
            continue
        span = _block_span(flat, (offsets[start], offsets[end]), old, new)
        if fold is str.strip:
            pairs = list(zip(block, lines[start:end], strict=True))
            span = _Span(span.start, span.end, "\n".join(reindent(span.new.split("\n"), pairs)))
        spans.append(span)
    return spans


def _block_span(flat: str, bounds: tuple[int, int], old: str, new: str) -> _Span:
    start, end = bounds
    if end > len(flat):
        return _Span(start, len(flat), new.removesuffix("\n") if old.endswith("\n") else new)
    return _Span(start, end if old.endswith("\n") else end - 1, new)


def _apply(text: str, spans: Sequence[_Span]) -> str:
    """Replace spans, whose offsets count CRLF as one character, in the original text."""
    ending = line_ending(text)
    returns = [match.start() - count for count, match in enumerate(re.finditer("\r\n", text))]

    def real(offset: int) -> int:
        return offset + bisect_left(returns, offset)

    is_mixed = 0 < len(returns) < text.count("\n")
    pieces: list[str] = []
    position = 0
    for span in spans:
        start, end = real(span.start), real(span.end)
        new = fit_lines(span.new, text[start:end], ending) if is_mixed else span.new.replace("\n", ending)
        pieces += (text[position:start], new)
        position = end
    return "".join([*pieces, text[position:]])


def _not_found(flat: str, old: str, new: str) -> BadInput:
    lines = flat.split("\n")
    if new.strip() and new in flat:
        number = flat.count("\n", 0, flat.index(new)) + 1
        return BadInput(
            f"old_string is not in the file, but new_string is, at line {number}",
            hint="perhaps the change was made already",
        )
    note = nearest_note(lines, old.removesuffix("\n").split("\n"))
    message = "old_string is not in the file" + (f"; {note}" if note else "")
    return BadInput(message, hint="read the file and copy the text exactly")


def _nearest_start(lines: Sequence[str], block: Sequence[str]) -> int:
    positions: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        positions.setdefault(line.strip(), []).append(index)
    votes: Counter[int] = Counter()
    for index, line in enumerate(block):
        line_numbers = positions.get(line.strip(), []) if len(line.strip()) > 2 else []
        for line_number in line_numbers[:200]:
            votes[max(0, line_number - index)] += 1
    if votes:
        best = max(votes.values())
        return min(start for start, count in votes.items() if count == best)
    return _most_alike(lines, block)


def _most_alike(lines: Sequence[str], block: Sequence[str]) -> int:
    index, anchor = max(enumerate(block), key=lambda pair: len(pair[1].strip()))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(anchor.strip()[:300])
    best, best_line = 0.6, -1
    for number, line in enumerate(lines[:_NEAREST_LINES]):
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, best_line = ratio, number
    return max(0, best_line - index) if best_line >= 0 else -1


def _reindent_line(line: str, indents: dict[str, str]) -> str:
    if not line.strip():
        return line
    indent = _indent(line)
    if indent in indents:
        return indents[indent] + line[len(indent) :]
    inner = [indent_in_call for indent_in_call in indents if indent.startswith(indent_in_call)]
    if inner:
        base = max(inner, key=len)
        return indents[base] + _step(indent[len(base) :], indents) + line[len(indent) :]
    for indent_in_call, real in indents.items():
        if indent_in_call.startswith(indent):
            cut = len(_step(indent_in_call[len(indent) :], indents))
            return real[: max(0, len(real) - cut)] + line[len(indent) :]
    return line


def _step(extra: str, indents: dict[str, str]) -> str:
    """Write further indentation as the file does: tabs for spaces, or spaces for tabs."""
    real = "".join(indents.values())
    indents_in_call = "".join(indents)
    if "\t" in real and " " not in real and extra and not extra.strip(" "):
        return "\t" * max(1, round(len(extra) / _tab_width(indents)))
    if " " in real and "\t" not in real and "\t" in indents_in_call + extra:
        return extra.replace(
            "\t", " " * _tab_width({real: indents_in_call for indents_in_call, real in indents.items()})
        )
    return extra


def _tab_width(indents: dict[str, str]) -> int:
    """Return the number of spaces per tab in these pairs, or 4 if they don't show it."""
    for spaces, tabs in indents.items():
        if tabs and spaces and not tabs.strip("\t") and not spaces.strip(" "):
            return max(1, len(spaces) // len(tabs))
    return 4


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _quote_line(line: str) -> str:
    shortened = line if len(line) <= 160 else line[:157] + "..."
    return '"' + clean(shortened.replace("\t", "\\t").replace("\r", "\\r")) + '"'
