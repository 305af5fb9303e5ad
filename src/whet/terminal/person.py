"""The human of a one-shot: nobody, or whoever sits at the terminal that standard error shows.

The terminal chat has its own, `terminal/questions.py`. Only a whole line that is exactly an option's name or
key is a yes (`whet.typed_answer`). Lines that were typed before the question was shown, or that end sooner
than it can be read, and several lines at once are never a yes.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.terminal.wording import exact, printable
from whet.typed_answer import AnswerOption, may_count, read_line

if TYPE_CHECKING:
    from whet.terminal.permission_question import TerminalDecision


def raise_interrupt() -> None:
    """Do what Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


class LinePerson:
    """A person who reads standard error and types lines on standard input; both are terminals.

    `stop` cancels the running turn; an interface that can do so at once, and not by Ctrl-C's signal, sets it.
    """

    def __init__(
        self,
        stop: Callable[[], object] = raise_interrupt,
        theme: str = "auto",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stop = stop
        self._now_s = now_s
        self._theme = theme
        self._turn = asyncio.Lock()

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask in one paragraph until an answer decides. Enter and the end of input are a no."""
        from whet.terminal.permission_question import ANSWER_PROMPT, TerminalDecision  # noqa: PLC0415 - few one-shots ask
        from whet.terminal.themes import find_theme  # noqa: PLC0415 - as above

        async with self._turn:
            deciding = TerminalDecision(request, find_theme(self._theme, os.environ), has_keys=False)
            _show(deciding, full=False)
            while True:
                reply = await self._apply_line(deciding, await _ask_for_lines(ANSWER_PROMPT, self._now_s))
                if reply is not None:
                    return reply.short

    async def _apply_line(self, deciding: TerminalDecision, text: str) -> Reply | None:
        """Return the reply that a text is, or None if the question is asked again."""
        typed = read_line(text, deciding.options())
        if not may_count(typed.option, is_shown_whole=deciding.is_shown_whole):
            from whet.terminal.permission_question import UNSEEN  # noqa: PLC0415 - few one-shots ask

            _show(deciding, full=True)
            _say(f"{UNSEEN}\n")
            return None
        if grant := deciding.grant(typed.option):
            return deciding.reply(grant)
        match typed.option:
            case "view":
                _show(deciding, full=True)
                return None
            case "edit":
                return await self._edit(deciding.request)
            case "because":
                _say("No, because: ")
                return Reply("no", words=(await _line()).strip())
            case _:
                if typed.stops:
                    self.stop()
                    await asyncio.sleep(0)  # the cancel comes here: a stopped turn gets no answer
                return Reply("no", words=typed.words)

    async def _edit(self, request: ApprovalRequest) -> Reply | None:
        from whet.terminal.rewriting import rewrite  # noqa: PLC0415 - most questions are not edited

        try:
            arguments = await asyncio.to_thread(rewrite, request, os.environ)
        except ConfigError as error:
            _say(f"{printable(error.message)}\n")
            return None
        if arguments is None:
            _say("nothing was changed\n")
            return None
        return Reply("once", arguments=arguments)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask a question. A number picks a choice; returns None at the end of input."""
        async with self._turn:
            _say(f"\n{exact(question)}\n")
            for number, choice in enumerate(choices, 1):
                _say(f"  {number}. {exact(choice)}\n")
            line = await _ask_for_lines(answer_prompt(choices, has_keys=False), self._now_s)
            return resolve_choice(line.strip(), choices) if line else None


def answer_prompt(choices: Sequence[str], *, has_keys: bool = True) -> str:
    """Return the prompt of the line on which a question is answered. `has_keys`: Esc is a key of it."""
    what = "a number or your own words" if choices else "your answer"
    return f"Type {what}, then Enter. Enter alone {'and Esc give' if has_keys else 'gives'} no answer: "


def resolve_choice(text: str, choices: Sequence[str]) -> str:
    """Return the choice with a typed number, or the text itself."""
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return text


_SILENCE_S = 0.1
_BEGUN = "not an answer: this line was begun before the question\n"
_EARLY = "not an answer: this line came before the question could be read; answer again\n"


def _show(deciding: TerminalDecision, *, full: bool) -> None:
    lines = (*deciding.facts(), ("", ""), *deciding.choices(), *deciding.other_answers())
    rows = (
        *(row.to_line() for row in deciding.rows(unfold=full)),
        *(prefix + text for prefix, text in lines),
    )
    _say("\n".join(("", printable(deciding.question.title), *rows, "")))
    deciding.is_shown_whole = deciding.is_shown_whole or full


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


async def _line() -> str:
    """Wait for a line on standard input without a thread, so that a cancel leaves none behind."""
    await _readable()
    return os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")


async def _ask_for_lines(prompt: str, now_s: Callable[[], float]) -> str:
    """Prompt for a line, and return it with the lines that came at once with it, as from a paste.

    Lines that were begun before the prompt, or that end within `REACTION_S` of it, are dropped. Returns an
    empty string at the end of input.
    """
    from whet.terminal.typed_keys import REACTION_S  # noqa: PLC0415 - few one-shots ask

    while True:
        is_begun = drop_typed_ahead()
        _say(prompt)
        shown_s = now_s()
        lines = [await _line()]
        is_early = now_s() - shown_s < REACTION_S
        with suppress(TimeoutError):
            while lines[-1]:
                async with asyncio.timeout(_SILENCE_S):
                    await _readable()
                lines.append(await _line())
        if not lines[0] or not (is_begun or is_early):
            return "".join(lines)
        _say(_BEGUN if is_begun else _EARLY)


async def _readable() -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    fd = sys.stdin.fileno()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


def ask_yes(question: str) -> bool:
    """Ask at the terminal. Only the line "yes", typed after the question, is a yes."""
    from click import prompt  # noqa: PLC0415 - a one-shot's questions don't need it

    from whet.terminal.typed_keys import REACTION_S  # noqa: PLC0415 - as above

    while True:
        is_terminal = sys.stdin.isatty()
        is_begun = drop_typed_ahead()
        shown_s = time.monotonic()
        answer = prompt(question, default="no", show_default=False, err=True)
        is_early = is_terminal and time.monotonic() - shown_s < REACTION_S
        if not (is_begun or is_early):
            return read_line(answer, (AnswerOption("yes"),)).option == "yes"
        _say(_BEGUN if is_begun else _EARLY)


def drop_typed_ahead() -> bool:
    """Discard what was typed before the question was shown: it can't be an answer to it.

    Returns whether that ends in a line that was begun and not sent: the rest of it is still to come.
    """
    with suppress(termios.error, OSError):
        fd = sys.stdin.fileno()
        modes = termios.tcgetattr(fd)
        by_key = [*modes]
        by_key[3] &= ~termios.ICANON  # else the terminal keeps a line to itself until it is sent
        try:
            termios.tcsetattr(fd, termios.TCSANOW, by_key)
            ahead = os.read(fd, 65_536) if select.select([fd], [], [], 0)[0] else b""
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, modes)
        termios.tcflush(fd, termios.TCIFLUSH)
        return bool(ahead) and not ahead.endswith((b"\n", b"\r"))
    return False
