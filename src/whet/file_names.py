"""Names of files as one line of text, and back to the files."""

from __future__ import annotations

import os
from pathlib import Path

from whet.contract.errors import BadInput
from whet.late import late_pattern
from whet.lookalike import find_similar_paths

_BYTE_ESCAPE = late_pattern(r"\\x([89a-fA-F][0-9a-fA-F])")
_CHARACTER_ESCAPE = late_pattern(r"\\u([0-9a-fA-F]{4})")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(name: str) -> str:
    r"""Format a file name on one line: newlines as \n, bytes that are not UTF-8 as \xNN."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else _escape_char(char) for char in name)


def find_named_path(folder: Path, name: str) -> str:
    """Return the full path of the file that a name stands for: of that name, else whose printed form it is,
    else whose name looks the same. If there is none, the path of that name.

    Every check of a path must begin with this one, because what opens the file does. Raises BadInput if two
    files look like it.
    """
    full_name = os.path.join(folder, name)
    if os.path.lexists(full_name):
        return full_name
    if "\\" not in name:
        return _find_lookalike(folder, name) or full_name
    raw = _BYTE_ESCAPE.sub(lambda match: chr(0xDC00 + int(match[1], 16)), name)
    raw = _CHARACTER_ESCAPE.sub(lambda match: chr(int(match[1], 16)), raw)
    for char, escape in _ESCAPES.items():
        raw = raw.replace(escape, char)
    unescaped_name = os.path.join(folder, raw)
    is_printed_form = printable(raw) == name  # `\u002e` is the printed form of no dot
    return unescaped_name if is_printed_form and os.path.lexists(unescaped_name) else full_name


def _find_lookalike(folder: Path, name: str) -> str:
    """Return the existing path that looks like the name, or an empty string. Raises BadInput for two."""
    paths = find_similar_paths(folder, name)
    if len(paths) > 1:
        shown = ", ".join(ascii(path.name) for path in paths[:3])
        raise BadInput(
            f"{printable(name)} could be any of {len(paths)} files: {shown}", hint="list the folder"
        )
    return os.fspath(paths[0]) if paths else ""


def _escape_char(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return _ESCAPES.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
