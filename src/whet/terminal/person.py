"""Ask the person at the terminal in one-shots: questions on standard error, answers as lines of standard
input.

A line is a yes only if it is exactly an option's name or key (`whet.typed_answer`). A line that was begun
before the question was shown, or that ends sooner than the question can be read, is never a yes, nor are
several lines at once. The chat asks in `terminal/questions.py`.
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
    """Send this process the signal of Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


class LinePerson:
    """A person who reads standard error and types lines on standard input; both are terminals.

    `stop` cancels the running turn. By default it sends the signal of Ctrl-C; an interface with a more direct
    way replaces it.
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
        self._question_lock = asyncio.Lock()

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask until an answer decides. Enter and the end of input are a no."""
        from whet.terminal.permission_question import ANSWER_PROMPT, TerminalDecision  # noqa: PLC0415 - few one-shots ask
        from whet.terminal.themes import find_theme  # noqa: PLC0415 - as above

        async with self._question_lock:
            decision = TerminalDecision(request, find_theme(self._theme, os.environ), has_keys=False)
            _show(decision, full=False)
            while True:
                reply = await self._apply_line(decision, await _ask_for_lines(ANSWER_PROMPT, self._now_s))
                if reply is not None:
                    return reply.short

    async def _apply_line(self, decision: TerminalDecision, text: str) -> Reply | None:
        """Return the reply for a typed text, or None if the question must be asked again."""
        typed = read_line(text, decision.options())
        if not may_count(typed.option, is_shown_whole=decision.is_shown_whole):
            from whet.terminal.permission_question import UNSEEN  # noqa: PLC0415 - few one-shots ask

            _show(decision, full=True)
            _say(f"{UNSEEN}\n")
            return None
        if grant := decision.grant(typed.option):
            return decision.reply(grant)
        match typed.option:
            case "view":
                _show(decision, full=True)
                return None
            case "edit":
                return await self._edit(decision.request)
            case "because":
                _say("No, because: ")
                return Reply("no", words=(await _read_stdin()).strip())
            case _:
                if typed.stops:
                    self.stop()
                    await asyncio.sleep(0)  # the task is cancelled here, so a stopped turn gets no answer
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
        async with self._question_lock:
            _say(f"\n{exact(question)}\n")
            for number, choice in enumerate(choices, 1):
                _say(f"  {number}. {exact(choice)}\n")
            line = await _ask_for_lines(answer_prompt(choices, has_keys=False), self._now_s)
            return resolve_choice(line.strip(), choices) if line else None


def answer_prompt(choices: Sequence[str], *, has_keys: bool = True) -> str:
    """Return the prompt for the answer to a question. With `has_keys`, it mentions Esc."""
    noun = "a number or your own words" if choices else "your answer"
    return f"Type {noun}, then Enter. Enter alone {'and Esc give' if has_keys else 'gives'} no answer: "


def resolve_choice(text: str, choices: Sequence[str]) -> str:
    """Return the choice with a typed number, or the text itself."""
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return text


_SILENCE_S = 0.1
_LFLAG = 3  # the position in the list of termios.tcgetattr
_BEGUN = "not an answer: this line was begun before the question\n"
_EARLY = "not an answer: this line came before the question could be read; answer again\n"


def _show(decision: TerminalDecision, *, full: bool) -> None:
    lines = (*decision.facts(), ("", ""), *decision.choices(), *decision.other_answers())
    rows = (
        *(row.to_line() for row in decision.rows(unfold=full)),
        *(prefix + text for prefix, text in lines),
    )
    _say("\n".join(("", printable(decision.question.title), *rows, "")))
    decision.is_shown_whole = decision.is_shown_whole or full


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


async def _read_stdin() -> str:
    """Wait for a line on standard input, without a thread, which a cancel would leave behind."""
    await _wait_for_stdin()
    return os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")


async def _ask_for_lines(prompt: str, now_s: Callable[[], float]) -> str:
    """Prompt for a line and return it, together with lines that arrive at once with it, as from a paste.

    Lines that were begun before the prompt, or that end within `REACTION_S` after it, are dropped. Returns an
    empty string at the end of input.
    """
    from whet.terminal.typed_keys import REACTION_S  # noqa: PLC0415 - few one-shots ask

    while True:
        is_begun = drop_typed_ahead()
        _say(prompt)
        shown_s = now_s()
        lines = [await _read_stdin()]
        is_early = now_s() - shown_s < REACTION_S
        with suppress(TimeoutError):
            while lines[-1]:
                async with asyncio.timeout(_SILENCE_S):
                    await _wait_for_stdin()
                lines.append(await _read_stdin())
        if not lines[0] or not (is_begun or is_early):
            return "".join(lines)
        _say(_BEGUN if is_begun else _EARLY)


async def _wait_for_stdin() -> None:
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
    """Discard the input that was typed before a question is shown, as it can't be an answer.

    Returns whether the input ended in an unfinished line, the rest of which is still to come.
    """
    with suppress(termios.error, OSError):
        fd = sys.stdin.fileno()
        attributes = termios.tcgetattr(fd)
        changed = [*attributes]
        changed[_LFLAG] &= ~termios.ICANON  # makes an unfinished line readable
        try:
            termios.tcsetattr(fd, termios.TCSANOW, changed)
            ahead = os.read(fd, 65_536) if select.select([fd], [], [], 0)[0] else b""
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
        termios.tcflush(fd, termios.TCIFLUSH)
        return bool(ahead) and not ahead.endswith((b"\n", b"\r"))
    return False
