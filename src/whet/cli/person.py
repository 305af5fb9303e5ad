"""The human of a one-shot: nobody, or whoever sits at the terminal that standard error shows.

The terminal chat has its own, `cli/prompting.py`. Silence, an empty line and anything unclear are a no.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from whet.cli.wording import printable, quoted
from whet.contract.protocols import Answer, ApprovalRequest

ANSWERS: dict[str, Answer] = {"o": "once", "s": "session", "a": "always", "n": "no"}


class LinePerson:
    """Whoever reads standard error and types lines on standard input; both are terminals."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        """Ask once, in one paragraph; Enter and the end of input are a no."""
        async with self._turn:
            _say(f"\nWhet wants to run {printable(request.tool)}:\n{quoted(request.subject)}\n")
            for reason in request.reasons:
                _say(f"  - {printable(reason)}\n")
            if request.grant:
                _say(f"  session and always allow {printable(request.grant)}\n")
            always = " [a]lways" if request.grant else ""
            _say(f"Allow it? [o]nce [s]ession{always} [N]o: ")
            return answer_of((await _line()).strip()[:1], request) or "no"

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask; a number picks a choice, the end of input gives None."""
        async with self._turn:
            _say(f"\n{printable(question)}\n")
            for number, choice in enumerate(choices, 1):
                _say(f"  {number}. {printable(choice)}\n")
            _say("> ")
            line = await _line()
            return chosen(line.strip(), choices) if line else None


def answer_of(key: str, request: ApprovalRequest) -> Answer | None:
    """Give the answer that a key stands for, None for another key. There is an always only where the
    request says what that would allow.
    """
    answer = ANSWERS.get(key.lower())
    return None if answer == "always" and not request.grant else answer


def chosen(text: str, choices: Sequence[str]) -> str:
    """Give the choice that a typed number names, else the text itself."""
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return text


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


async def _line() -> str:
    """Wait for a line on standard input without a thread, so that a cancel leaves nothing behind."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    fd = sys.stdin.fileno()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096).decode("utf-8", "replace")
