"""Parse unified diffs as models write them, and apply their hunks to a text.

Line numbers and counts may be wrong, blank context lines may lack their space, and whitespace may differ
as in `edits.py`; the lines themselves may not differ. No I/O. Format: GNU diffutils manual, "Detailed
Description of Unified Format"; quoted names as git writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from whet.contract.errors import BadInput
from whet.tools.edits import (
    LEVELS,
    Fold,
    find_block,
    format_numbers,
    nearest_note,
    plain_typography,
    reindent,
)
from whet.tools.encoding import line_ending

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_REFUSED = {
    "rename from ": "renames a file",
    "copy from ": "copies a file",
    "GIT binary patch": "is binary",
    "Binary files ": "is binary",
}
FOLDS: tuple[tuple[str, Fold], ...] = (
    *LEVELS,
    ("indentation, quotes and dashes ignored", lambda line: plain_typography(line).strip()),
)
_JOIN_HINT = "join hunks that overlap, and give the hunks in the order of the file"
_OCTAL = re.compile(rb"\\([0-7]{3}|.)")
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b'"': b'"', b"\\": b"\\"}


class HunkRow(msgspec.Struct, frozen=True):
    """One line of a hunk: `sign` is space, - or +; `ending` is as in the diff, empty if there is no
    newline."""

    sign: str
    text: str
    ending: str = "\n"


class Hunk(msgspec.Struct, frozen=True):
    """A change: its rows, and its claimed first line in the old file (None if not given).

    `below` is a line that occurs somewhere above it.
    """

    start: int | None
    rows: tuple[HunkRow, ...]
    below: str = ""

    @property
    def old(self) -> list[str]:
        """The lines that the file must contain."""
        return [row.text for row in self.rows if row.sign != "+"]


class FilePatch(msgspec.Struct, frozen=True):
    """All hunks for one file. An empty `old` name creates the file, an empty `new` name deletes it."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]


def parse(diff: str, path: str = "") -> list[FilePatch]:
    """Parse a diff of one or more files. `path` names the file if the diff has no file header.

    Raises BadInput with the line number in the diff.
    """
    if diff.lstrip().startswith("*** Begin Patch"):
        from whet.tools.envelope import parse_envelope  # noqa: PLC0415 - it makes this module's values

        return parse_envelope(diff)
    lines = diff.split("\n")
    if lines[-1] == "":
        lines.pop()
    files: list[tuple[str, str, list[Hunk]]] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("@@"):
            if not files:
                files.append((_require_path(path, index), path, []))
            hunk, index = _parse_hunk(lines, index)
            files[-1][2].append(hunk)
        else:
            if _is_file_header(lines, index):
                files.append((*_parse_names(line[4:], lines[index + 1][4:]), []))
            _refuse(line)
            index += 1
    patches = [FilePatch(old, new, tuple(hunks)) for old, new, hunks in files]
    if not patches or not all(patch.hunks for patch in patches):
        raise BadInput(
            "the diff holds no hunk", hint="a unified diff has lines --- FILE, +++ FILE, @@ -1,3 +1,4 @@"
        )
    return patches


def find_named_files(arguments: Mapping[str, Any]) -> list[str]:
    """Return the files that a call's arguments name, including those in its diff. Raises BadInput."""
    path, diff = arguments.get("path") or "", arguments.get("diff") or ""
    names = (name for patch in (parse(diff, path) if diff else ()) for name in (patch.old, patch.new))
    return list(dict.fromkeys(filter(None, (path, *names)))) or [""]


def apply(text: str, hunks: Sequence[Hunk]) -> tuple[str, list[str]]:
    """Return `text` with the hunks applied in order, and notes on tolerated differences. A text without a
    newline at its end gets one only from a diff that marks its absence.

    Raises BadInput if a hunk does not fit; the caller then changes nothing.
    """
    rows = text.split("\n")
    endings = ["\r\n" if row.endswith("\r") else "\n" for row in rows[:-1]]
    lines = [row.removesuffix("\r") for row in rows[:-1]]
    if rows[-1]:
        lines.append(rows[-1])
        endings.append("")
    usual = "" if _has_meaningful_endings(hunks, endings) else line_ending(text)
    done: list[tuple[str, str]] = []
    notes: list[str] = []
    position = drift = 0
    for number, hunk in enumerate(hunks, 1):
        start, level = _locate(lines, hunk, position, drift, number)
        expected = _expected_start(hunk, drift)
        if expected is not None and start != expected:
            notes.append(f"hunk {number} found at line {start + 1}, not {expected + 1}")
            drift += start - expected
        if FOLDS[level][0]:
            notes.append(f"hunk {number}: {FOLDS[level][0]}")
        done += zip(lines[position:start], endings[position:start], strict=True)
        position = start + len(hunk.old)
        done += _rewrite_hunk(hunk, (lines[start:position], endings[start:position]), usual, level)
    done += zip(lines[position:], endings[position:], strict=True)
    if rows[-1] and done and all(row.ending for hunk in hunks for row in hunk.rows):
        done[-1] = (done[-1][0], "")  # the diff knows nothing of the missing newline
    last = len(done) - 1
    joined = "".join(
        line + (end or ("" if at == last else usual or "\n")) for at, (line, end) in enumerate(done)
    )
    return joined, notes


def _rewrite_hunk(
    hunk: Hunk, matched: tuple[list[str], list[str]], usual: str, level: int
) -> list[tuple[str, str]]:
    """Return the hunk's result: context lines as in the file, new lines in the file's indentation and line
    endings.

    If `usual` is empty, the diff's own line endings are used.
    """
    lines, endings = matched
    rows = [row for row in hunk.rows if row.sign == "+"]
    texts = [row.text for row in rows]
    if level >= len(LEVELS) - 1:
        texts = reindent(texts, list(zip(hunk.old, lines, strict=True)))
    fresh = iter(zip(rows, texts, strict=True))
    near = next((ending for ending in endings if ending), usual)
    done: list[tuple[str, str]] = []
    at = 0
    for row in hunk.rows:
        if row.sign == "+":
            new, text = next(fresh)
            done.append((text, near if usual and new.ending else new.ending))
            continue
        if row.sign == " ":
            done.append((lines[at], endings[at]))
        near = endings[at] or near
        at += 1
    return done


def _has_meaningful_endings(hunks: Sequence[Hunk], endings: Sequence[str]) -> bool:
    """Return whether the diff's own line endings are meaningful: it has CRLF, and not simply everywhere."""
    has_crlf = [row.ending == "\r\n" for hunk in hunks for row in hunk.rows if row.ending]
    return any(has_crlf) and ("\r\n" in endings or not all(has_crlf))


def _expected_start(hunk: Hunk, drift: int) -> int | None:
    if hunk.start is None:
        return None
    return max(0, hunk.start - (1 if hunk.old else 0) + drift)


def _locate(lines: list[str], hunk: Hunk, after: int, drift: int, number: int) -> tuple[int, int]:
    """Return the hunk's start index, at or after `after`, and the level at which it matched."""
    expected, old = _expected_start(hunk, drift), hunk.old
    if not old:
        if expected is None and lines:
            raise BadInput(f"hunk {number} has neither line numbers nor lines to find its place by")
        start = expected or 0
        if start < after:
            raise BadInput(
                f"hunk {number} adds after line {start}, but hunk {number - 1} ends at line {after}",
                hint=_JOIN_HINT,
            )
        if start > len(lines):
            raise BadInput(f"hunk {number} adds after line {start}, but the file has {len(lines)} lines")
        return start, 0
    if expected is not None and expected >= after and lines[expected : expected + len(old)] == old:
        return expected, 0
    lowest = _first_line(lines, hunk, after, number)
    expected = lowest if hunk.below else expected
    for level, (_, fold) in enumerate(FOLDS):
        starts = [start + lowest for start in find_block(lines[lowest:], old, fold)]
        if len(starts) > 1 and expected is None:
            raise BadInput(
                f"hunk {number} fits {len(starts)} places, at lines "
                f"{format_numbers([s + 1 for s in starts])}",
                hint="give line numbers or more context",
            )
        if starts:
            return min(starts, key=lambda start: abs(start - (expected or 0))), level
    _refuse_earlier_match(lines, hunk, lowest, number)
    note = nearest_note(lines, old)
    raise BadInput(
        f"hunk {number} does not fit the file" + (f"; {note}" if note else ""),
        hint="read the file and make the diff against what it holds",
    )


def _refuse_earlier_match(lines: list[str], hunk: Hunk, lowest: int, number: int) -> None:
    """Raise BadInput if the hunk fits the file, but only at lines that begin above the first possible one."""
    for _, fold in FOLDS:
        for start in find_block(lines, hunk.old, fold):
            limit = f"below {hunk.below!r}" if hunk.below else f"after hunk {number - 1}"
            end = start + len(hunk.old)
            raise BadInput(
                f"hunk {number} does not fit {limit}: its lines are lines {start + 1}-{end}, "
                f"and it must begin at line {lowest + 1} or later",
                hint=_JOIN_HINT,
            )


def _first_line(lines: list[str], hunk: Hunk, after: int, number: int) -> int:
    """Return the first possible line of a hunk. Raises BadInput if the line above it is missing."""
    if not hunk.below:
        return after
    marks = find_block(lines[after:], [hunk.below], lambda line: plain_typography(line).strip())
    if not marks:
        raise BadInput(f"hunk {number} is below {hunk.below!r}, which the file does not hold")
    return after + marks[0]


def _parse_hunk(lines: Sequence[str], index: int) -> tuple[Hunk, int]:
    header = _HEADER.match(lines[index])
    start = int(header[1]) if header else None
    if header:
        counts = (int(header[2] or 1), int(header[4] or 1))
        rows, end = _read_counted(lines, index + 1, counts)
        if rows is not None:
            return _require_change(Hunk(start, tuple(rows)), index), end
    end = index + 1
    while end < len(lines) and not _ends_hunk(lines, end):
        end += 1
    after = end
    while lines[end - 1] in ("", "\r"):
        end -= 1
    body: list[HunkRow] = []
    for at in range(index + 1, end):
        _add_row(body, lines[at], at)
    return _require_change(Hunk(start, tuple(body)), index), after


def _require_change(hunk: Hunk, index: int) -> Hunk:
    if all(row.sign == " " for row in hunk.rows):
        raise BadInput(f"the hunk at line {index + 1} of the diff changes nothing")
    return hunk


def _read_counted(
    lines: Sequence[str], index: int, counts: tuple[int, int]
) -> tuple[list[HunkRow] | None, int]:
    """Read as many lines as the header counts. Returns None if the body has another length."""
    rows: list[HunkRow] = []
    old, new = counts
    while index < len(lines) and (old > 0 or new > 0 or lines[index].startswith("\\")):
        line = lines[index]
        sign = line[:1] or " "
        if sign not in " +-\\":
            return None, index
        old -= sign in " -"
        new -= sign in " +"
        if sign == "\\" and not rows:
            return None, index
        _add_row(rows, line, index)
        index += 1
    goes_on = index < len(lines) and lines[index][:1] in (" ", "+", "-")
    if old or new or (goes_on and not _is_file_header(lines, index)):
        return None, index
    return rows, index


def _add_row(rows: list[HunkRow], line: str, index: int) -> None:
    line = " \r" if line == "\r" else line
    sign, text = line[:1] or " ", line[1:]
    if sign == "\\" and rows:
        last = rows[-1]
        rows[-1] = HunkRow(last.sign, last.text + last.ending[:-1], "")
    elif sign in (" ", "+", "-"):
        is_crlf = text.endswith("\r")
        rows.append(HunkRow(sign, text.removesuffix("\r"), "\r\n" if is_crlf else "\n"))
    else:
        raise BadInput(
            f"line {index + 1} of the diff starts with {sign!r}",
            hint="begin each line of a hunk with a space, + or -",
        )


def _ends_hunk(lines: Sequence[str], index: int) -> bool:
    return lines[index].startswith(("@@", "diff --git ", "```")) or _is_file_header(lines, index)


def _is_file_header(lines: Sequence[str], index: int) -> bool:
    return lines[index].startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")


def _parse_names(old: str, new: str) -> tuple[str, str]:
    before, after = _parse_name(old), _parse_name(new)
    is_prefixed = (before.startswith("a/") or not before) and (after.startswith("b/") or not after)
    if is_prefixed:
        before, after = before[2:], after[2:]
    if before and after and before != after:
        raise BadInput(
            f"the diff renames {before!r} to {after!r}",
            hint="rename with the terminal, then patch the content",
        )
    return before, after


def _parse_name(header: str) -> str:
    header = header.rstrip("\r")
    if header.startswith('"') and header.rstrip().endswith('"'):
        raw = _OCTAL.sub(_unescape, header.rstrip()[1:-1].encode("utf-8", "surrogateescape"))
        return raw.decode("utf-8", "surrogateescape")
    name = header.partition("\t")[0].rstrip()
    return "" if name == "/dev/null" else name


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _SIMPLE.get(code, code)


def _require_path(path: str, index: int) -> str:
    if not path:
        raise BadInput(
            f"line {index + 1} of the diff is a hunk of no file", hint="give path, or --- and +++ lines"
        )
    return path


def _refuse(line: str) -> None:
    for start, problem in _REFUSED.items():
        if line.startswith(start):
            raise BadInput(
                f"the diff {problem}", hint="send a unified text diff; for the rest use the terminal"
            )
