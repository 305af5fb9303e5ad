"""Lay out what surrounds the input: the live area and a rule above it, a rule and the status line below.

The library splits what a prompt shows into characters at each key, and its own toolbar would query the
cursor's position. So both are windows of their own, which keep their characters until their text changes.
This module knows neither keys nor questions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from prompt_toolkit.filters import Condition, to_filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.containers import ConditionalContainer, FloatContainer, HSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.layout import walk
from prompt_toolkit.layout.mouse_handlers import MouseHandlers
from prompt_toolkit.layout.screen import Char, Screen, WritePosition


class FrameText(msgspec.Struct, frozen=True):
    """What a redraw shows: the live area with its rule, the sign before the input, the rule and the status
    line below it. It was built for `columns` columns."""

    above: StyleAndTextTuples = []
    sign: StyleAndTextTuples = []
    rule: str = ""
    status: str = ""
    columns: int = 0


class KeptText(Window):
    """A window over the whole width that lays its text out again only if the text or its room has changed."""

    def __init__(self, text: Callable[[], StyleAndTextTuples], height: int | None = None) -> None:
        super().__init__(FormattedTextControl(text), height=height, dont_extend_height=True)
        self._text = text
        self._measured: object = None
        self._height = Dimension()
        self._written: object = None
        self._rows: list[dict[int, Char]] = []

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        """Return the height that the text needs."""
        measured = (self._text(), width, max_available_height)
        if measured != self._measured:
            self._height = super().preferred_height(width, max_available_height)
            self._measured = measured
        return self._height

    def write_to_screen(
        self,
        screen: Screen,
        mouse_handlers: MouseHandlers,
        write_position: WritePosition,
        parent_style: str,
        erase_bg: bool,
        z_index: int | None,
    ) -> None:
        """Write the text to the screen, or the characters that the last redraw wrote for it."""
        left, top, width, height = (
            write_position.xpos,
            write_position.ypos,
            write_position.width,
            write_position.height,
        )
        written = (self._text(), left, width, height, parent_style, erase_bg)
        if written != self._written:
            super().write_to_screen(screen, mouse_handlers, write_position, parent_style, erase_bg, z_index)
            lines = screen.visible_windows_to_write_positions.get(self)
            self._rows = [dict(screen.data_buffer[top + row]) for row in range(lines.height if lines else 0)]
            self._written = written
            return
        for row, cells in enumerate(self._rows):
            screen.data_buffer[top + row].update(cells)
        screen.height = max(screen.height, top + len(self._rows))


def add_frame(layout: Layout, frame: Callable[[], FrameText], is_done: Callable[[], bool]) -> None:
    """Surround the input of a prompt with the windows of its frame. `frame` returns their current text."""
    for window in layout.find_all_windows():
        window.dont_extend_height = to_filter(True)
    above = KeptText(lambda: frame().above)
    rule = KeptText(lambda: [("class:dim", frame().rule)], height=1)
    status = KeptText(lambda: [("class:dim", frame().status)], height=1)
    has_status = Condition(lambda: bool(frame().status) and not is_done())
    below = ConditionalContainer(status, has_status)
    is_open = Condition(lambda: not is_done())
    parts = layout.container.get_children()
    floats = next(part for part in walk(layout.container) if isinstance(part, FloatContainer))
    # Menus float over the live area, too. There are neither other menus nor texts at the right.
    floats.floats = floats.floats[:1]
    floats.content = HSplit([above, *floats.content.get_children()[:2]])
    layout.container = HSplit([floats, *parts[3:5], ConditionalContainer(rule, is_open), below])
