"""The text around the input: laid out again only if it or its room has changed, and a redraw for each key."""

from __future__ import annotations

import asyncio
from io import StringIO

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.layout.containers import Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.mouse_handlers import MouseHandlers
from prompt_toolkit.layout.screen import Screen, WritePosition
from prompt_toolkit.output.vt100 import Vt100_Output

from whet.terminal.frame_layout import KeptText
from whet.terminal.redraws import draw_keys_once

_TEXTS: tuple[StyleAndTextTuples, ...] = (
    [("", "\n"), ("class:tool", "read 漢字.txt"), ("", "\n"), ("class:dim", "─" * 30)],
    [("class:dim", "─" * 30)],
)


def draw(window: Window, top: int, width: int) -> tuple[Screen, list[tuple[int, int, str, str]]]:
    """Return the screen that a window drew on, and its characters with their styles."""
    screen = Screen()
    height = window.preferred_height(width, 20).preferred
    position = WritePosition(0, top, width, height)
    window.write_to_screen(screen, MouseHandlers(), position, "class:frame", erase_bg=False, z_index=None)
    cells = [
        (y, x, char.char, char.style) for y, row in screen.data_buffer.items() for x, char in row.items()
    ]
    return screen, sorted(cells)


def test_a_kept_text_is_drawn_as_any_other_and_laid_out_once() -> None:
    shown = {"text": _TEXTS[0]}
    kept = KeptText(lambda: shown["text"])
    plain = Window(FormattedTextControl(lambda: shown["text"]), dont_extend_height=True)
    laid_out: list[bool] = []
    for text, top, width in (
        (_TEXTS[0], 0, 40),
        (_TEXTS[0], 0, 40),
        (_TEXTS[0], 3, 40),  # it moves, and is the same
        (_TEXTS[1], 3, 40),
        (_TEXTS[1], 3, 20),
        (_TEXTS[1], 3, 20),
    ):
        shown["text"] = text
        screen, cells = draw(kept, top, width)
        expected, plain_cells = draw(plain, top, width)
        assert (cells, screen.height) == (plain_cells, expected.height)
        laid_out.append(kept in screen.visible_windows_to_write_positions)
    assert laid_out == [True, False, False, True, True, False]


@pytest.mark.parametrize("text", ["x", "some words"])
async def test_a_key_is_drawn_in_the_next_pass_of_the_loop_and_once(text: str) -> None:
    renders: list[int] = []
    with create_pipe_input() as keys:
        output = Vt100_Output(StringIO(), lambda: Size(rows=10, columns=40), enable_cpr=False)
        prompt: PromptSession[str] = PromptSession(
            "> ", complete_while_typing=False, input=keys, output=output
        )
        draw_keys_once(prompt)
        is_open = asyncio.Event()

        def note_render(_: object) -> None:
            renders.append(1)
            is_open.set()

        prompt.app.after_render += note_render
        running = asyncio.create_task(prompt.prompt_async())
        await is_open.wait()
        renders.clear()
        keys.send_text(text)
        for _ in range(6):
            await asyncio.sleep(0)
        assert renders == [1]
        for _ in range(50):
            await asyncio.sleep(0)
        assert renders == [1]
        prompt.app.exit(result="")
        await running
