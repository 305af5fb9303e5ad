"""The chat's screen: an input line that stays at the bottom, and text that scrolls above it.

One prompt_toolkit application runs for the whole life of the program, so that a message can be typed while a
turn runs. A question replaces the input line (`terminal/questions.py`).
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import DynamicStyle, Style

from whet.contract.protocols import Person
from whet.terminal.first_frame import FirstFrame
from whet.terminal.frame_layout import FrameText, add_frame
from whet.terminal.input_history import open_history
from whet.terminal.key_protocol import KeyProtocol
from whet.terminal.keys import InputKeys
from whet.terminal.pager import find_pager, is_long, run_pager
from whet.terminal.prompt import (
    KEY_PAUSE_S,
    InputCompleter,
    PasteNames,
    has_completions,
    open_input,
)
from whet.terminal.questions import PickQuestion, TerminalPerson, TerminalQuestion
from whet.terminal.redraws import Redraws, draw_keys_once
from whet.terminal.reflow import erase_frame
from whet.terminal.render import Painter
from whet.terminal.screen import LiveLines, PromptSignal, StatusLine, Typed, picked_choice
from whet.terminal.signs import Fragment, Marks
from whet.terminal.themes import Theme
from whet.terminal.wrapping import wrap_lines

_TICK_S = 0.12
_ESCAPE_S = 0.3
_ROWS_BELOW = 6  # taken by the input and the status line
_ROWS_AROUND = 3  # taken by the rules above and below the answer of a question, and by the status line
_QUESTION_ROWS = 12  # a question on a small screen gets this many rows before any are left free
T = TypeVar("T")


def _read_size() -> Size:
    """Return the terminal's own size. COLUMNS, which some shells export, may be outdated."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return Size(rows=size.lines or 24, columns=size.columns or 80)


def _has_input(app: Application[str]) -> bool:
    return bool(select.select([app.input.fileno()], [], [], 0)[0])


def _draw_rule(marks: Marks, width: int) -> str:
    """Return the line above and below the input."""
    return marks.fit("─" * (width - 1))


class _ThemeStyle:
    """The style of a painter's theme. It returns the same object until the theme changes, because
    prompt_toolkit parses every new one."""

    def __init__(self, painter: Painter) -> None:
        self._painter = painter
        self._parsed: tuple[Theme, Style] | None = None

    def get(self) -> Style:
        """Return the style."""
        theme = self._painter.theme
        if self._parsed is None or self._parsed[0] is not theme:
            self._parsed = theme, Style.from_dict(dict(theme.prompt))
        return self._parsed[1]


class Terminal:
    """A screen with an input line at the bottom, a live area above it, and questions in between."""

    def __init__(
        self,
        marks: Marks,
        completer: InputCompleter,
        history: Path,
        painter: Painter,
        frame: FirstFrame | None = None,
        *,
        vi: bool = False,
    ) -> None:
        self.person: Person = TerminalPerson(self, marks, painter)
        self.stop_turn: Callable[[], object] = partial(self.wake, PromptSignal.INTERRUPT)
        self._marks, self._painter = marks, painter
        self._folder = completer.folder
        self._frame = frame
        self._written_meanwhile: list[str] = []
        self._status: StatusLine = lambda width: ""
        self._keys = InputKeys()
        self._protocol = KeyProtocol()
        self._question_lock = asyncio.Lock()
        self._prompt: PromptSession[str] = PromptSession(
            lambda: self._drawn.sign,
            multiline=True,
            complete_while_typing=Condition(lambda: has_completions(self._prompt.default_buffer.document)),
            completer=completer,
            history=open_history(history, self._keys.pastes),
            input_processors=[PasteNames(self._keys.pastes.show)],
            key_bindings=self._keys.bindings(lambda: self._prompt.default_buffer),
            style=DynamicStyle(_ThemeStyle(painter).get),
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            prompt_continuation="  ",
            erase_when_done=True,
            reserve_space_for_menu=0,
            input=open_input(self._set_pause, self._protocol),
            output=Vt100_Output(sys.stdout, _read_size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        self._prompt.default_buffer.on_text_changed += self._keys.note_typing
        self._prompt.default_buffer.on_completions_changed += partial(_make_room, self._prompt)
        self._app = self._prompt.app
        self._redraws = Redraws(self._app.invalidate)
        self.refresh: Callable[[], None] = self._redraws.request
        self._app.before_render += self._note_drawing
        self._app.after_render += self._redraws.note_end
        self._app.ttimeoutlen, self._app.timeoutlen = KEY_PAUSE_S, _ESCAPE_S
        draw_keys_once(self._prompt)
        add_frame(self._app.layout, lambda: self._drawn, lambda: self._app.is_done)
        self._tasks: list[asyncio.Task[None]] = []
        self._full_input = lambda: self._keys.pastes.fill(self._prompt.default_buffer.text)
        self._draft = ""  # the input line while a question has its place
        self._drawn_rows: list[list[Fragment]] = []
        self._drawn = FrameText()

    def _set_pause(self, seconds: float) -> None:
        """Set the pause after which the input is flushed."""
        self._app.ttimeoutlen = seconds

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Take over the terminal, and return after the first render.

        `live` returns the lines above the input, `status` the line below it.
        """
        self._keys.live, self._status = live, status
        if self._frame:
            self._frame.hand_over()
        ready = _watch_render(self._app)
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._tick())]
        first_render = asyncio.ensure_future(ready.wait())
        await asyncio.wait({self._tasks[0], first_render}, return_when=asyncio.FIRST_COMPLETED)
        first_render.cancel()
        loop = asyncio.get_running_loop()
        # prompt_toolkit's own handler would erase the frame, which `_note_drawing` does
        loop.add_signal_handler(signal.SIGWINCH, self._app.invalidate)

    def write(self, text: str) -> None:
        """Write finished text above the input line. The live area is erased in the same output."""
        if self._keys.is_lent:
            self._written_meanwhile.append(text)
            return
        if not self._app.is_running:
            if self._frame:
                self._frame.close()
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        erase_frame(self._app, self._protocol.version)
        self._app.output.write_raw(text)
        self._app.output.flush()
        self._app.invalidate()

    echo = write

    def width(self) -> int:
        """Return the terminal's current width in columns."""
        return self._app.output.get_size().columns

    def height(self) -> int:
        """Return the terminal's current height in rows."""
        return self._app.output.get_size().rows

    def is_quiet(self) -> bool:
        """Return whether the input is empty and no question is open."""
        return not self._prompt.default_buffer.text and self._keys.question is None

    async def read(self) -> Typed | PromptSignal:
        """Wait for a sent line, Ctrl-C or the end of input."""
        return await self._keys.inputs.get()

    def put_in(self, text: str, *, is_sent: bool = False) -> None:
        """Insert text into the input line at the cursor, or with `is_sent` before the present text."""
        if not is_sent:
            self._prompt.default_buffer.insert_text(text)
            return
        buffer, text = self._prompt.default_buffer, self._keys.pastes.take_back(text)
        buffer.text = f"{text}\n{buffer.text}" if buffer.text else text
        buffer.cursor_position = len(buffer.text)

    def wake(self, signal: PromptSignal) -> None:
        """Make `read` return `signal` now, as if the person had caused it."""
        self._keys.inputs.put_nowait(signal)

    async def aclose(self) -> None:
        """End the application and restore the terminal."""
        if self._app.is_running:
            self._app.exit(result="")
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, question: TerminalQuestion) -> str | None:
        """Show a question in place of the input line, one at a time, and return its answer. A half-typed
        message is put back afterwards."""
        async with self._question_lock:
            buffer, self._draft = self._prompt.default_buffer, self._prompt.default_buffer.text
            buffer.reset()
            if question.typed is not None:
                question.typed.is_followed = partial(_has_input, self._app)
            self._keys.question = question
            self._keys.typing.show()
            self._redraws.draw_now()
            try:
                return await question.answer
            finally:
                self._keys.question = None
                if question.typed is not None:
                    question.typed.close()
                draft, self._keys.typed_ahead = self._draft + self._keys.typed_ahead, ""
                buffer.reset(Document(draft))
                self._redraws.draw_now()

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Let the person pick one of `choices` (line, preview), and return its index, or None."""
        answer = await self.ask(PickQuestion(title, choices, self._full_input))
        return None if answer is None else int(answer)

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Ask the person to decide between `choices` (line, preview), and return its index, or the words
        that they typed."""
        question = PickQuestion(title, choices, self._full_input, decides=True)
        answer = await self.ask(question)
        return picked_choice(question.line, choices) if answer is None else int(answer)

    async def edit_input(self) -> None:
        """Let the person edit the input line in their editor, pastes with their texts. Raises ConfigError."""
        from whet.terminal.editor import edit_text  # noqa: PLC0415 - few inputs are edited elsewhere

        pastes, buffer = self._keys.pastes, self._prompt.default_buffer
        text = pastes.to_tags(buffer.text)
        edited = await self.lend_terminal(lambda: edit_text(text, ".md", os.environ))
        if edited == text:
            return
        if self._keys.question is None:
            buffer.document = Document(pastes.from_tags(edited))
        else:  # it was asked meanwhile, and has the place of the input line
            self._draft = pastes.from_tags(edited)

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Release the terminal to another program while `function` runs on a thread. Text that is written
        meanwhile is shown afterwards. If this is cancelled, it still waits for `function`."""
        running = asyncio.ensure_future(run_in_terminal(function, in_executor=True))
        self._keys.is_lent = True
        try:
            return await asyncio.shield(running)
        finally:
            await asyncio.wait({running})
            self._keys.is_lent = False
            self._keys.typing.forget_keys()
            texts, self._written_meanwhile = self._written_meanwhile, []
            if texts:
                self.write("".join(texts))

    async def page(self, text: str) -> None:
        """Show a text of any length: in the person's pager if it is longer than the screen."""
        command: list[str] = []
        if is_long(text, self.width(), self.height() - _ROWS_BELOW):
            command = find_pager(os.environ, str(self._folder()))
        if not command:
            return self.write(text)
        await self.lend_terminal(lambda: run_pager(command, text, os.environ))

    async def _run(self) -> None:
        try:
            with suppress(EOFError):
                await self._prompt.prompt_async()
        finally:
            self._keys.inputs.put_nowait(PromptSignal.END)

    async def _tick(self) -> None:
        """Redraw several times a second, if the live area has changed, such as a duration in it."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._live_rows() != self._drawn_rows:
                self._app.invalidate()  # not through `_redraws`, so that no token waits for a duration

    def _note_drawing(self, _: object) -> None:
        """Build the texts of this redraw. Keys that wait now were typed before a new question was drawn."""
        self._redraws.note_begin()
        if self._drawn.columns != self.width():
            erase_frame(self._app, self._protocol.version)
        self._drawn = self._build_frame()
        self._prompt.color_depth = ColorDepth(f"DEPTH_{self._painter.theme.colour_bits}_BIT")
        question = self._keys.question
        if question is not None and not question.is_drawn:
            question.is_drawn = True
            self._keys.typing.show(has_input=_has_input(self._app))

    def _live_rows(self) -> list[list[Fragment]]:
        size = self._app.output.get_size()
        return self._keys.live(size.columns - 1, max(3, size.rows // 3))

    def _build_frame(self) -> FrameText:
        size = self._app.output.get_size()
        self._drawn_rows = self._live_rows()
        rows = list(self._drawn_rows)
        if question := self._keys.question:
            rows = _question_rows(question, rows, size.columns, size.rows)
        above: StyleAndTextTuples = []
        if rows and (question is None or len(rows) < _room_above(question, size.columns, size.rows)):
            above.append(("", "\n"))
        for row in rows:
            above += [*row, ("", "\n")]
        rule = _draw_rule(self._marks, size.columns)
        above.append(("class:dim", rule))
        status = self._status(size.columns - 1)
        if question and question.keys:
            keys = "\n".join(wrap_lines(question.keys, size.columns))
            return FrameText(above, [("class:ask", keys)], rule, status, size.columns)
        return FrameText(above, [("class:sign", self._marks.prompt)], rule, status, size.columns)


def _watch_render(app: Application[str]) -> asyncio.Event:
    """Return an event that is set after the next render."""
    event = asyncio.Event()

    def note_render(_: object) -> None:
        event.set()

    app.after_render += note_render
    return event


def _make_room(prompt: PromptSession[str], buffer: Buffer) -> None:
    """Reserve lines below the input only while there are completions."""
    count = len(buffer.complete_state.completions) if buffer.complete_state else 0
    prompt.reserve_space_for_menu = min(count + 1, 8) if count else 0


def _room_above(question: TerminalQuestion, width: int, height: int) -> int:
    """Return the number of rows above the rule over the answer."""
    return height - _ROWS_AROUND - len(wrap_lines(question.keys, width))


def _question_rows(
    question: TerminalQuestion, live: list[list[Fragment]], width: int, height: int
) -> list[list[Fragment]]:
    """Return the question's rows, after as many of the last live rows as there is room for."""
    room = _room_above(question, width, height)
    rows = question.rows(width - 1, max(6, height - 8, min(room, _QUESTION_ROWS)))
    spare = max(room - len(rows) - 1, 0)
    return [*live[len(live) - min(spare, len(live)) :], *rows]
