"""The terminal of the chat: an input line that stays at the bottom, and text that scrolls above it.

One prompt_toolkit application runs for the program's whole life, so that a message can be typed while a
turn runs; `TerminalPerson` puts questions in its place. Neither knows about turns or sessions.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import Style

from whet.cli import wording
from whet.cli.deciding import Deciding, answer_of, coloured, has_colour
from whet.cli.live import Fragment, Marks, wrapped
from whet.cli.person import chosen
from whet.cli.prompting import Pastes, open_history, open_input
from whet.cli.screen import LiveLines, PromptSignal, Typed
from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Person, Reply
from whet.question import RowKind

_REFRESH_S = 0.05
_TICK_S = 0.12
_TYPING_S = 1.0
_STYLE = Style.from_dict({"dim": "ansibrightblack", "ask": "ansiyellow bold", "sign": "ansicyan bold"})
_BAR = "  | "
_ROW_STYLES: dict[RowKind, str] = {
    "added": "ansigreen",
    "removed": "ansired",
    "hunk": "ansicyan",
    "file": "bold",
    "fold": "class:dim",
}
T = TypeVar("T")
_GRANTS = {"session": "for this session", "always": "from now on"}


def _size() -> Size:
    size = shutil.get_terminal_size()
    return Size(rows=size.lines or 24, columns=size.columns or 80)


def _nothing(width: int, height: int) -> list[list[Fragment]]:
    return []


def _suspend(event: KeyPressEvent) -> None:
    event.app.suspend_to_background()


def _leave(event: KeyPressEvent) -> None:
    """Do nothing: nobody asked for the mouse, and colours that come as keys look like it to the library."""


class TerminalQuestion:
    """A question on the screen and its coming answer; `keys` names the keys of which one answers.

    Each line has a prefix. Every row of what would run gets its bar, and the rows of a long reason are set in
    below its dash, so that none can pass for a line of ours.
    """

    def __init__(
        self,
        lines: Sequence[tuple[str, str] | tuple[str, str, str]],
        *,
        keys: str = "",
        accepts: Callable[[str], bool] = bool,
    ) -> None:
        self.keys = keys
        self.accepts = accepts
        self.wary = False
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._lines = lines

    def give(self, answer: str | None) -> None:
        """Answer, once."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def rows(self, width: int, height: int) -> list[list[Fragment]]:
        """Lay the question out; one that is too long for the screen keeps its head and its end."""
        rows: list[Fragment] = []
        for prefix, line, *style in self._lines:
            further = prefix if prefix == _BAR else " " * len(prefix)
            for at, row in enumerate(wrapped(line, max(width - len(prefix), 8))):
                rows.append((style[0] if style else "", (further if at else prefix) + row))
        if len(rows) > height:
            hidden = len(rows) - height + 1
            rows = [
                *rows[: height // 2],
                ("", f"  ... {hidden} lines ..."),
                *rows[hidden + height // 2 :],
            ]
        return [[row] for row in rows]


class Terminal:
    """A screen with an input line at the bottom, a live area above it, and questions in between."""

    def __init__(self, marks: Marks, completer: Completer, history: Path) -> None:
        self.person: Person = TerminalPerson(self, marks)
        self._marks = marks
        self._live: LiveLines = _nothing
        self._pastes = Pastes()
        self._inputs: asyncio.Queue[Typed | PromptSignal] = asyncio.Queue()
        self._question: TerminalQuestion | None = None
        self._asking = asyncio.Lock()
        self._last_key_s = 0.0
        self._redraw: asyncio.TimerHandle | None = None
        self._prompt: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            complete_while_typing=True,
            completer=completer,
            history=open_history(history),
            key_bindings=self._keys(),
            style=_STYLE,
            prompt_continuation="  ",
            erase_when_done=True,
            reserve_space_for_menu=0,
            input=open_input(),
            output=Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        self._prompt.default_buffer.on_text_changed += self._note_typing
        self._prompt.default_buffer.on_completions_changed += self._make_room
        self._app = self._prompt.app
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, live: LiveLines) -> None:
        """Take the terminal, and return when it is in our hands; `live` gives the lines above the input."""
        self._live = live
        ready = asyncio.Event()

        def drawn(app: Application[str]) -> None:
            ready.set()

        self._app.after_render += drawn
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._tick())]
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait({self._tasks[0], waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    def write(self, text: str) -> None:
        """Put finished text above the input line, in one go with taking the live area away."""
        if not self._app.is_running:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        self._app.renderer.erase()
        self._app.output.write_raw(text)
        self._app.output.flush()
        self._app.invalidate()

    def refresh(self) -> None:
        """Have the live area redrawn, at most 20 times a second."""
        if self._redraw is None:
            self._redraw = asyncio.get_running_loop().call_later(_REFRESH_S, self._redraw_now)

    def width(self) -> int:
        """The columns of the terminal now."""
        return self._app.output.get_size().columns

    def height(self) -> int:
        """The rows of the terminal now."""
        return self._app.output.get_size().rows

    def is_quiet(self) -> bool:
        """Whether nothing is half typed and nothing is asked."""
        return not self._prompt.default_buffer.text and self._question is None

    async def read(self) -> Typed | PromptSignal:
        """Wait for a sent line, Ctrl-C or the end of input."""
        return await self._inputs.get()

    def put_back(self, text: str) -> None:
        """Put text into the input line again, before what is there."""
        buffer = self._prompt.default_buffer
        buffer.text = f"{text}\n{buffer.text}" if buffer.text else text
        buffer.cursor_position = len(buffer.text)

    def wake(self, signal: PromptSignal) -> None:
        """Have `read` give `signal` now, as if the person had done it."""
        self._inputs.put_nowait(signal)

    async def aclose(self) -> None:
        """End the application and give the terminal back."""
        if self._app.is_running:
            self._app.exit(result="")
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, question: TerminalQuestion) -> str | None:
        """Put a question in place of the input line, one at a time, and give its answer."""
        async with self._asking:
            question.wary = time.monotonic() - self._last_key_s < _TYPING_S
            self._question = question
            self._redraw_now()
            try:
                return await question.answer
            finally:
                self._question = None
                self._redraw_now()

    async def lend(self, work: Callable[[], T]) -> T:
        """Give the terminal to another program while `work` runs on a thread."""
        return await run_in_terminal(work, in_executor=True)

    async def _run(self) -> None:
        try:
            await self._prompt.prompt_async()
        except EOFError:
            pass
        finally:
            self._inputs.put_nowait(PromptSignal.END)

    async def _tick(self) -> None:
        """Redraw while something runs, so that durations move; otherwise cost nothing but a timer."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._live(1, 1):
                self.refresh()

    def _redraw_now(self) -> None:
        if self._redraw is not None:
            self._redraw.cancel()
            self._redraw = None
        self._app.invalidate()

    def _message(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        rows = self._live(size.columns - 1, max(3, size.rows // 3))
        if self._question:
            rows += self._question.rows(size.columns - 1, max(6, size.rows - 8))
        text: StyleAndTextTuples = []
        for row in rows:
            text += [*row, ("", "\n")]
        if rows:
            text.insert(0, ("", "\n"))
        if self._question and self._question.keys:
            return [*text, ("class:ask", self._question.keys)]
        return [*text, ("class:sign", self._marks.prompt)]

    def _send(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        shown = buffer.text
        if not shown.strip():
            return
        if not shown.startswith(" "):
            buffer.append_to_history()
        buffer.reset()
        self._last_key_s = 0.0  # what was sent is said; only unfinished typing makes a question wary
        text = self._pastes.expand(shown, mark=not self._question and not shown.lstrip().startswith("/"))
        if self._question:
            self._question.give(text)
        else:
            self._inputs.put_nowait(Typed(shown.strip(), text.strip()))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        asked = Condition(lambda: self._question is not None)
        one_key = Condition(lambda: self._question is not None and bool(self._question.keys))
        empty = Condition(lambda: not self._prompt.default_buffer.text)

        @keys.add("enter", filter=~one_key & ~is_searching)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._send(event)

        @keys.add("escape", "enter", filter=~one_key)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste, filter=~one_key)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._pastes.take(event.data))

        @keys.add("c-c", eager=True)
        @keys.add("<sigint>", eager=True)
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        keys.add("c-z", eager=True)(_suspend)
        keys.add(Keys.Vt100MouseEvent)(_leave)

        @keys.add("c-d", filter=empty & ~asked)
        def _(event: KeyPressEvent) -> None:
            self._inputs.put_nowait(PromptSignal.END)

        @keys.add(Keys.Any, filter=one_key, eager=True)
        @keys.add("enter", filter=one_key, eager=True)
        @keys.add(Keys.BracketedPaste, filter=one_key, eager=True)
        def _(event: KeyPressEvent) -> None:
            self._one_key(event)

        @keys.add("escape", filter=asked)
        def _(event: KeyPressEvent) -> None:
            if self._question:
                self._question.give(None)

        return keys

    def _make_room(self, buffer: Buffer) -> None:
        """Keep lines free below the input only while there is something to complete."""
        found = len(buffer.complete_state.completions) if buffer.complete_state else 0
        self._prompt.reserve_space_for_menu = min(found + 1, 8) if found else 0

    def _note_typing(self, _: object) -> None:
        """Remember when a person last typed, so that a question does not take a word for its answer."""
        self._last_key_s = time.monotonic()

    def _one_key(self, event: KeyPressEvent) -> None:
        question = self._question
        if question is None:
            return
        now_s = time.monotonic()
        if question.wary and now_s - self._last_key_s < _TYPING_S:
            self._last_key_s = now_s
            return
        question.wary = False
        if event.data in ("\r", "\n"):
            question.give("n")
        elif question.accepts(event.data):
            question.give(event.data)

    def _interrupt(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if self._question:
            self._question.give(None)
        elif event.app.layout.is_searching:
            stop_search()
            return
        elif buffer.text and not self._live(1, 1):
            buffer.reset()
            return
        self._inputs.put_nowait(PromptSignal.INTERRUPT)


class TerminalPerson:
    """The person at a terminal: the gate's questions take one key, the model's a line."""

    def __init__(self, terminal: Terminal, marks: Marks) -> None:
        self._terminal = terminal
        self._marks = marks

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask with one key; Enter, Esc and Ctrl-C are a no. Other keys narrow, show all, edit, say why."""
        deciding = Deciding(request, max(self._terminal.height() - 20, 8))
        while True:
            key = await self._terminal.ask(self._question(deciding)) or "n"
            if deciding.choose(key):
                continue
            if key.lower() == "v":
                self._show_whole(deciding)
            elif key.lower() == "e":
                if edited := await self._edited(request):
                    return edited
            elif key.lower() == "b":
                words = await self._terminal.ask(TerminalQuestion([("", "No, because:")]))
                return Reply("no", words=words or "")
            else:
                return self._said(deciding, answer_of(key, request) or "no")

    def _question(self, deciding: Deciding) -> TerminalQuestion:
        lines = [("", wording.printable(deciding.question.title), "bold")]
        for prefix, row in deciding.rows():
            style = _ROW_STYLES.get(row.kind, "") if has_colour() else ""
            lines.append((prefix, wording.exact(row.text), style))
        return TerminalQuestion(
            lines, keys=deciding.keys(self._terminal.width() - 1), accepts=deciding.accepts
        )

    def _said(self, deciding: Deciding, answer: Answer) -> Answer | Reply:
        if answer not in _GRANTS:
            return answer
        said = f"allowed {_GRANTS[answer]}: {deciding.covers() or deciding.request.subject}"
        self._terminal.write(wording.clip(wording.printable(said), self._terminal.width()) + "\n")
        return deciding.reply(answer).short

    def _show_whole(self, deciding: Deciding) -> None:
        rows = [f"{prefix}{wording.exact(row.text)}" for prefix, row in deciding.rows(whole=True)]
        painted = [
            coloured(row, text, colour=has_colour())
            for (_, row), text in zip(deciding.rows(whole=True), rows, strict=True)
        ]
        self._terminal.write("\n".join([wording.printable(deciding.question.title), *painted]) + "\n")

    async def _edited(self, request: ApprovalRequest) -> Reply | None:
        from whet.cli.rewriting import rewrite  # noqa: PLC0415 - most questions are not edited

        try:
            arguments = await self._terminal.lend(lambda: rewrite(request, os.environ))
        except ConfigError as error:
            self._terminal.write(f"{wording.printable(error.message)}\n")
            return None
        if arguments is None:
            self._terminal.write("nothing was changed\n")
            return None
        return Reply("once", arguments=arguments)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask for a line; a number picks a choice, Esc gives no answer."""
        options = [(f"  {number}. ", wording.printable(choice)) for number, choice in enumerate(choices, 1)]
        answer = await self._terminal.ask(TerminalQuestion([("", wording.printable(question)), *options]))
        if answer is None:
            return None
        answer = chosen(answer.strip(), choices)
        said = f"{wording.printable(question)}\n  {self._marks.prompt}{wording.printable(answer)}\n"
        self._terminal.write(said)
        return answer
