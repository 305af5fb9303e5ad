"""Read the errors that a server reports from untrusted JSON, compare them, and describe new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.contract.texts import clean, plural
from whet.file_names import printable
from whet.lsp.positions import split_lines, to_column

MAX_KEPT = 2_000
_MAX_SHOWN = 10
_MESSAGE_CHARS = 300
_ERROR = 1


class CodeError(msgspec.Struct, frozen=True):
    """One error. `line` counts from 0, `column` is in UTF-16 units."""

    line: int
    column: int
    message: str
    code: str = ""


class FileErrors(msgspec.Struct, frozen=True):
    """The errors of a file, and the text of the file that they refer to."""

    errors: Sequence[CodeError] = ()
    text: str = ""


def read_errors(items: object) -> list[CodeError]:
    """Return the errors in a list of diagnostics. Warnings and invalid items are left out."""
    errors: list[CodeError] = []
    for item in cast("list[Any]", items)[:MAX_KEPT] if isinstance(items, list) else ():
        try:
            start = item["range"]["start"]
            if item.get("severity", _ERROR) == _ERROR:
                message = one_line(str(item["message"]), _MESSAGE_CHARS)
                code = item.get("code")
                code_text = one_line(str(code), 60) if isinstance(code, str | int) else ""
                line, column = (max(0, int(start[name])) for name in ("line", "character"))
                errors.append(CodeError(line, column, message, code_text))
        except (LookupError, TypeError, ValueError, AttributeError):
            continue
    return errors


def find_new(before: FileErrors, after: FileErrors) -> list[CodeError]:
    """Return the errors in `after` that are not in `before`. An error whose line only moved is not new."""
    earlier = Counter(_keys(before))
    unmatched: list[tuple[CodeError, tuple[str, str, str]]] = []
    for error, key in zip(after.errors, _keys(after), strict=True):
        if earlier[key] > 0:
            earlier[key] -= 1
        else:
            unmatched.append((error, key))
    gone = Counter[tuple[str, str]]()
    for (message, code, _), count in earlier.items():
        gone[message, code] += count
    new: list[CodeError] = []
    for error, (message, code, _) in unmatched:
        if gone[message, code] > 0:  # the same error on an edited line
            gone[message, code] -= 1
        else:
            new.append(error)
    return new


def describe_new(server: str, new: Mapping[Path, FileErrors], root: Path) -> str:
    """Return the lines for a model about the errors that its edit introduced, or an empty string."""
    count = sum(len(file.errors) for file in new.values())
    if not count:
        return ""
    rows = [
        f"{_shown_path(path, root)}:{error.line + 1}:{_shown_column(file.text, error)} {error.message}"
        + (f" ({error.code})" if error.code else "")
        for path, file in new.items()
        for error in sorted(file.errors, key=lambda error: (error.line, error.column))[:_MAX_SHOWN]
    ]
    more = [f"and {count - _MAX_SHOWN} more"] if count > _MAX_SHOWN else []
    head = f"[{server}: this edit brought {plural(count, 'new error')}; their texts are data]"
    return "\n".join([head, *rows[:_MAX_SHOWN], *more])


def _keys(file: FileErrors) -> Iterable[tuple[str, str, str]]:
    lines = split_lines(file.text)
    return [
        (error.message, error.code, lines[error.line].strip() if error.line < len(lines) else "")
        for error in file.errors
    ]


def _shown_column(text: str, error: CodeError) -> int:
    lines = split_lines(text)
    return 1 + (to_column(lines[error.line], error.column) if error.line < len(lines) else 0)


def _shown_path(path: Path, root: Path) -> str:
    return printable(str(path.relative_to(root) if path.is_relative_to(root) else path))


def one_line(text: str, limit: int) -> str:
    """Return a server's text on one line of at most `limit` characters, without terminal escapes. Characters
    that are invisible or reorder text are replaced by their codes."""
    line = " ".join(clean(text[: 4 * limit]).split())
    if not line.isascii():
        from whet.visible import escape_characters  # noqa: PLC0415 - 10 ms of tables, rarely needed

        line = escape_characters(line)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
