"""The terminal of the chat: an input line that stays at the bottom, and text that scrolls above it.

One prompt_toolkit application runs for the program's whole life, so that a message can be typed while a
turn runs; `terminal/questions.py` shows questions instead of the input line. Neither knows about turns or
sessions.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, to_filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from whet.contract.protocols import Person
from whet.terminal.keys import InputKeys
from whet.terminal.permission_question import has_colour
from whet.terminal.prompt import open_history, open_input
from whet.terminal.questions import PickQuestion, TerminalPerson, TerminalQuestion
from whet.terminal.redraws import Redraws
from whet.terminal.screen import LiveLines, PromptSignal, StatusLine, Typed, picked_choice
from whet.terminal.signs import Marks

_TICK_S = 0.12
_ESCAPE_S = 0.3
_STYLES = {
    "dark": {"dim": "ansibrightblack", "ask": "ansiyellow bold", "sign": "ansicyan bold"},
    "light": {"dim": "ansibrightblack", "ask": "ansimagenta bold", "sign": "ansiblue bold"},
    "plain": {"dim": "", "ask": "bold", "sign": "bold"},
}
T = TypeVar("T")


def _size() -> Size:
    """Return the terminal's own size. COLUMNS, which some shells export, may be outdated."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return Size(rows=size.lines or 24, columns=size.columns or 80)


class Terminal:
    """A screen with an input line at the bottom, a live area above it, and questions in between."""

    def __init__(
        self, marks: Marks, completer: Completer, history: Path, *, theme: str = "dark", vi: bool = False
    ) -> None:
        self.person: Person = TerminalPerson(self, marks)
        self.stop_turn: Callable[[], object] = partial(self.wake, PromptSignal.INTERRUPT)
        self._marks = marks
        self._status: StatusLine = lambda width: ""
        self._keys = InputKeys()
        self._asking = asyncio.Lock()
        self._prompt: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            complete_while_typing=True,
            completer=completer,
            history=open_history(history),
            key_bindings=self._keys.bindings(lambda: self._prompt.default_buffer),
            style=Style.from_dict(_STYLES[theme]),
            color_depth=None if has_colour() else ColorDepth.DEPTH_1_BIT,
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            prompt_continuation="  ",
            erase_when_done=True,
            reserve_space_for_menu=0,
            input=open_input(),
            output=Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        self._prompt.default_buffer.on_text_changed += self._keys.note_typing
        self._prompt.default_buffer.on_completions_changed += self._make_room
        self._app = self._prompt.app
        self._redraws = Redraws(self._app.invalidate)
        self._app.before_render += self._note_drawing
        self._app.ttimeoutlen, self._app.timeoutlen = 0.1, _ESCAPE_S
        self._add_status()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, live: LiveLines, status: StatusLine) -> None:
        """Take over the terminal, and return after the first render.

        `live` returns the lines above the input, `status` the line below it.
        """
        self._keys.live, self._status = live, status
        ready = asyncio.Event()

        def note_render(app: Application[str]) -> None:
            ready.set()

        self._app.after_render += note_render
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._tick())]
        first_render = asyncio.ensure_future(ready.wait())
        await asyncio.wait({self._tasks[0], first_render}, return_when=asyncio.FIRST_COMPLETED)
        first_render.cancel()

    def write(self, text: str) -> None:
        """Write finished text above the input line. The live area is erased in the same output."""
        if not self._app.is_running:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        self._app.renderer.erase()
        self._app.output.write_raw(text)
        self._app.output.flush()
        self._app.invalidate()

    echo = write

    def refresh(self) -> None:
        """Redraw the live area: at once if it was quiet, at most 20 times a second."""
        self._redraws.request()

    def width(self) -> int:
        """Return the terminal's current width in columns."""
        return self._app.output.get_size().columns

    def height(self) -> int:
        """Return the terminal's current height in rows."""
        return self._app.output.get_size().rows

    def is_quiet(self) -> bool:
        """Whether the input is empty and no question is open."""
        return not self._prompt.default_buffer.text and self._keys.question is None

    async def read(self) -> Typed | PromptSignal:
        """Wait for a sent line, Ctrl-C or the end of input."""
        return await self._keys.inputs.get()

    def put_back(self, text: str) -> None:
        """Put text back into the input line, before its present text."""
        buffer, text = self._prompt.default_buffer, self._keys.pastes.take_back(text)
        buffer.text = f"{text}\n{buffer.text}" if buffer.text else text
        buffer.cursor_position = len(buffer.text)

    def put_in(self, text: str) -> None:
        """Insert text into the input line at the cursor."""
        self._prompt.default_buffer.insert_text(text)

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
        """Put a question in place of the input line, one at a time, and return its answer. A message that was
        half typed is put back afterwards."""
        async with self._asking:
            buffer, draft = self._prompt.default_buffer, self._prompt.default_buffer.text
            buffer.reset()
            if question.typed is not None:
                question.typed.is_followed = self._has_input
            self._keys.question = question
            self._keys.typing.show()
            self._redraws.draw_now()
            try:
                return await question.answer
            finally:
                self._keys.question = None
                if question.typed is not None:
                    question.typed.close()
                draft, self._keys.typed_ahead = draft + self._keys.typed_ahead, ""
                buffer.reset(Document(draft))
                self._redraws.draw_now()

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Have the person pick one of some (line, preview); None if they leave it."""
        buffer = self._prompt.default_buffer
        answer = await self.ask(PickQuestion(title, choices, lambda: buffer.text))
        return None if answer is None else int(answer)

    async def decide(self, title: str, choices: Sequence[tuple[str, str]]) -> int | str:
        """Have the person decide for one of some (line, preview), or return the words that they typed."""
        buffer = self._prompt.default_buffer
        question = PickQuestion(title, choices, lambda: buffer.text, decides=True)
        answer = await self.ask(question)
        return picked_choice(question.line, choices) if answer is None else int(answer)

    async def lend(self, work: Callable[[], T]) -> T:
        """Release the terminal to another program while `work` runs on a thread."""
        try:
            return await run_in_terminal(work, in_executor=True)
        finally:
            self._keys.typing.end_line()

    async def _run(self) -> None:
        try:
            await self._prompt.prompt_async()
        except EOFError:
            pass
        finally:
            self._keys.inputs.put_nowait(PromptSignal.END)

    async def _tick(self) -> None:
        """Redraw while something runs, so that durations advance. Otherwise only the timer runs."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._keys.live(1, 1):
                self._app.invalidate()  # past the limit, so that no token waits behind a duration

    def _note_drawing(self, _: object) -> None:
        """Note that the question is about to be drawn: keys that wait now were typed before."""
        question = self._keys.question
        if question is not None and not question.is_drawn:
            question.is_drawn = True
            self._keys.typing.show(has_input=self._has_input())

    def _has_input(self) -> bool:
        return bool(select.select([self._app.input.fileno()], [], [], 0)[0])

    def _message(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        rows = self._keys.live(size.columns - 1, max(3, size.rows // 3))
        if self._keys.question:
            rows += self._keys.question.rows(size.columns - 1, max(6, size.rows - 8))
        text: StyleAndTextTuples = []
        for row in rows:
            text += [*row, ("", "\n")]
        if rows:
            text.insert(0, ("", "\n"))
        if self._keys.question and self._keys.question.keys:
            return [*text, ("class:ask", self._keys.question.keys)]
        return [*text, ("class:sign", self._marks.prompt)]

    def _add_status(self) -> None:
        """Show the status line below the input. The library's own toolbar would query the cursor position."""
        layout = self._app.layout
        for window in layout.find_all_windows():
            window.dont_extend_height = to_filter(True)
        line = FormattedTextControl(lambda: [("class:dim", self._status(self.width() - 1))])
        has_status = Condition(lambda: bool(self._status(self.width() - 1)) and not self._app.is_done)
        below = ConditionalContainer(Window(line, height=1, dont_extend_height=True), has_status)
        layout.container = HSplit([layout.container, below])

    def _make_room(self, buffer: Buffer) -> None:
        """Reserve lines below the input only while there are completions."""
        count = len(buffer.complete_state.completions) if buffer.complete_state else 0
        self._prompt.reserve_space_for_menu = min(count + 1, 8) if count else 0
