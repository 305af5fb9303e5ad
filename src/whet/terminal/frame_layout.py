"""Lay out the frame of the input: the live area and a rule above it, a rule and the status line below it.

prompt_toolkit would lay out all text of a prompt again at each key, and its own toolbar queries the cursor's
position. So the parts of the frame are windows that keep their characters until their text changes.
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
    """The texts of one redraw: the live area with its rule, the sign before the input, the rule and the
    status line below the input. They were built for `columns` columns."""

    above: StyleAndTextTuples = []
    sign: StyleAndTextTuples = []
    rule: str = ""
    status: str = ""
    columns: int = 0


class KeptText(Window):
    """A window that lays its text out again only if the text or the available space has changed."""

    def __init__(self, text: Callable[[], StyleAndTextTuples], height: int | None = None) -> None:
        super().__init__(FormattedTextControl(text), height=height, dont_extend_height=True)
        self._text = text
        self._measured: object = None
        self._height = Dimension()
        self._written: object = None
        self._rows: list[dict[int, Char]] = []

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        """Return the height that the text needs."""
        arguments = (self._text(), width, max_available_height)
        if arguments != self._measured:
            self._height = super().preferred_height(width, max_available_height)
            self._measured = arguments
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
        top, size = write_position.ypos, (write_position.width, write_position.height)
        arguments = (self._text(), write_position.xpos, size, parent_style, erase_bg)
        if arguments != self._written:
            super().write_to_screen(screen, mouse_handlers, write_position, parent_style, erase_bg, z_index)
            lines = screen.visible_windows_to_write_positions.get(self)
            self._rows = [dict(screen.data_buffer[top + row]) for row in range(lines.height if lines else 0)]
            self._written = arguments
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
    # Completion menus may cover the live area. The other floats, texts at the right, are not used.
    floats.floats = floats.floats[:1]
    floats.content = HSplit([above, *floats.content.get_children()[:2]])
    layout.container = HSplit([floats, *parts[3:5], ConditionalContainer(rule, is_open), below])
