"""Lay out what surrounds the input: the live area and a rule above it, a rule and the status line below.

The library splits what a prompt shows into characters at each key, and its own toolbar would query the
cursor's position. So both are windows of their own. This module knows neither keys nor questions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from prompt_toolkit.filters import Condition, to_filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.containers import ConditionalContainer, FloatContainer, HSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.layout import walk


class FrameText(msgspec.Struct, frozen=True):
    """What a redraw shows: the live area with its rule, the sign before the input, the rule and the status
    line below it. It was built for `columns` columns."""

    above: StyleAndTextTuples = []
    sign: StyleAndTextTuples = []
    rule: str = ""
    status: str = ""
    columns: int = 0


def add_frame(layout: Layout, frame: Callable[[], FrameText], is_done: Callable[[], bool]) -> None:
    """Surround the input of a prompt with the windows of its frame. `frame` returns their current text."""
    for window in layout.find_all_windows():
        window.dont_extend_height = to_filter(True)
    above = Window(FormattedTextControl(lambda: frame().above), dont_extend_height=True)
    rule = Window(FormattedTextControl(lambda: [("class:dim", frame().rule)]), height=1)
    status = FormattedTextControl(lambda: [("class:dim", frame().status)])
    has_status = Condition(lambda: bool(frame().status) and not is_done())
    below = ConditionalContainer(Window(status, height=1, dont_extend_height=True), has_status)
    is_open = Condition(lambda: not is_done())
    parts = layout.container.get_children()
    floats = next(part for part in walk(layout.container) if isinstance(part, FloatContainer))
    # Menus float over the live area, too. There are neither other menus nor texts at the right.
    floats.floats = floats.floats[:1]
    floats.content = HSplit([above, *floats.content.get_children()[:2]])
    layout.container = HSplit([floats, *parts[3:5], ConditionalContainer(rule, is_open), below])
