"""Erase a drawn frame after its terminal has become narrower.

Most terminals break rows that no longer fit, so that the frame begins further up than where it was drawn.
xterm, the Linux console, PuTTY and GNU screen cut the rows instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Screen

_CUTTING_TERMS = ("linux", "putty", "rxvt", "screen.")


def has_reflow(environ: Mapping[str, str], version: str) -> bool:
    """Return whether a terminal breaks rows that no longer fit. `version` is the name and version that it
    reports, or empty."""
    is_screen = "STY" in environ and "TMUX" not in environ
    return not (
        is_screen or environ.get("TERM", "").startswith(_CUTTING_TERMS) or version.startswith("XTerm")
    )


def erase_frame(app: Application[str], version: str) -> None:
    """Erase the frame of an application, with the rows that the terminal has broken since it was drawn."""
    screen, columns = app.renderer.last_rendered_screen, app.output.get_size().columns
    if screen is not None and has_reflow(os.environ, version):
        cursor = screen.get_cursor_position(app.layout.current_window)
        app.output.cursor_up(count_gained_rows(screen, cursor, columns))
    app.renderer.erase(leave_alternate_screen=False)


def count_gained_rows(screen: Screen, cursor: Point, columns: int) -> int:
    """Return the number of rows by which a drawn screen grows above the cursor if it has `columns`
    columns."""
    widths = [_width_of(screen, row) for row in range(cursor.y)]
    return sum((width - 1) // columns for width in widths if width) + cursor.x // columns


def _width_of(screen: Screen, row: int) -> int:
    cells = screen.data_buffer[row]
    return max((column + cell.width for column, cell in cells.items() if cell.char.strip()), default=0)
