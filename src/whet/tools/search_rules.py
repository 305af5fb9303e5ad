"""Drop from the result of a search what deny rules protect.

A search program opens files by name, so a folder that a command replaces by a link meanwhile could lead it to
a protected file. Each row is therefore shown only if the file has it that is opened without following links.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from whet.beneath import open_beneath
from whet.tools.search_output import SearchResult, has_row
from whet.tools.walk import FILE_BYTES, decode_text


def drop_closed(result: SearchResult, root: Path, folder: Path, is_closed: Callable[[str], bool]) -> None:
    """Drop the files that a deny rule closes to readers, and say so whether they match or not. `folder` is
    where the names of the result begin, below `root`. Blocks while it reads the files with rows."""
    for name, rows in list(result.rows.items()):
        path = os.path.join(folder, name)
        if is_closed(path) or (rows and not _holds_rows(root, path, rows)):
            result.count -= max(1, len(result.rows.pop(name)))
    result.binary = {name for name in result.binary if not is_closed(os.path.join(folder, name))}
    result.unread.append("files that are closed to tools")


def _holds_rows(root: Path, path: str, rows: list[tuple[int, str]]) -> bool:
    """Return whether a file has these lines now."""
    try:
        with open_beneath(root, os.path.relpath(path, root)) as file:
            text = decode_text(file.read(FILE_BYTES))
    except OSError:
        return False
    lines = [] if text is None else text.split("\n")
    return all(number <= len(lines) and has_row(lines[number - 1], row) for number, row in rows)
