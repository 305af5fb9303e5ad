"""The human of a one-shot: nobody, or whoever sits at the terminal that standard error shows.

The terminal chat has its own, `cli/prompting.py`. Silence, an empty line and anything unclear are a no.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence

from whet.cli.deciding import Deciding, answer_of, coloured, has_colour
from whet.cli.wording import exact, printable
from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Reply


class LinePerson:
    """Whoever reads standard error and types lines on standard input; both are terminals."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask in one paragraph until something is decided; Enter and the end of input are a no."""
        async with self._turn:
            deciding = Deciding(request)
            _show(deciding, whole=False)
            while True:
                if len(request.scopes) > 1:
                    _say(f"a lasting yes now means: {printable(deciding.covers())}\n")
                _say(f"Allow it? {deciding.keys(_ONE_LINE).strip()}: ")
                line = (await _line()).strip()
                reply = await self._decided(deciding, line)
                if reply is not None:
                    return reply.short

    async def _decided(self, deciding: Deciding, line: str) -> Reply | None:
        """Give what a line decides; None where the question stands."""
        key, request = line[:1].lower(), deciding.request
        if deciding.choose(key):
            return None
        if key == "v":
            _show(deciding, whole=True)
            return None
        if key == "e":
            return await self._edited(request)
        if key == "b":
            _say("No, because: ")
            return Reply("no", words=(await _line()).strip())
        answer = answer_of(key, request) or "no"
        if answer == "no":
            return Reply("no", words=_words(line))
        return deciding.reply(answer)

    async def _edited(self, request: ApprovalRequest) -> Reply | None:
        from whet.cli.rewriting import rewrite  # noqa: PLC0415 - most questions are not edited

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
        """Ask; a number picks a choice, the end of input gives None."""
        async with self._turn:
            _say(f"\n{printable(question)}\n")
            for number, choice in enumerate(choices, 1):
                _say(f"  {number}. {printable(choice)}\n")
            _say("> ")
            line = await _line()
            return chosen(line.strip(), choices) if line else None


def chosen(text: str, choices: Sequence[str]) -> str:
    """Give the choice that a typed number names, else the text itself."""
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    return text


_ONE_LINE = 1_000


def _words(line: str) -> str:
    """Give what a person wrote after their no: "no, because it is Friday" gives "it is Friday"."""
    found = re.fullmatch(r"(?i)(?:no?|nope)[\s,.:;-]+(?:because\s+)?(.+)", line)
    return found[1].strip() if found else ""


def _show(deciding: Deciding, *, whole: bool) -> None:
    colour = has_colour()
    _say(f"\nWhet asks: {printable(deciding.question.title)}\n")
    for prefix, row in deciding.rows(whole=whole):
        _say(f"{prefix}{coloured(row, exact(row.text), colour=colour)}\n")


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
