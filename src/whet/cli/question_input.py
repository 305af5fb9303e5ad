"""Read the message of a one-shot: the question, the images that it names, and standard input.

A plain question does not import it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from whet.contract.errors import NotFound
from whet.contract.messages import ImagePart
from whet.contract.texts import plural

_STDIN_WAIT_S = 3.0


def find_mentioned(question: str, folder: Path) -> tuple[Sequence[Path], list[str]]:
    """Return the images that a question names, and a line for each named file that does not exist."""
    from whet.terminal import attach  # noqa: PLC0415 - few questions name files

    mentioned, missing = attach.find_images(question, folder)
    lines = [f"there is no image {name}; only its name is sent" for name in missing]
    files = attach.find_missing(question, folder)
    return mentioned, [*lines, *(f"there is no file {name}; only its name is sent" for name in files)]


def load_images(paths: Sequence[Path], folder: Path, deny: Sequence[str]) -> list[ImagePart]:
    from whet.terminal.attach import load_image  # noqa: PLC0415 - few questions have images

    return [load_image(path, folder, deny) for path in paths]


def expand_command(question: str, root: Path, workspace: Path) -> str:
    """Return the text of the prompt file that a question calls, or the question itself, in which `//` stands
    for `/`. Raises NotFound if it calls a command that does not exist here."""
    from whet.app.conversations import own_commands, slash  # noqa: PLC0415 - few questions are commands

    typed = slash.parse(question.partition("\n")[0])
    text = own_commands.expand_command(question, root, workspace)
    if text != question and typed is not None:
        from whet.cli.interactive.slash_commands import is_built_in  # noqa: PLC0415 - few questions are commands

        if is_built_in(typed[0]):  # the chat, too, prefers its own command to a file
            problem = f"/{typed[0]} is a command of the chat; a file of that name is not called"
            raise NotFound(problem, hint=f"rename the file; `whet`, then /{typed[0]}; //{typed[0]} is text")
    if text == question and typed is not None and not os.path.lexists(f"/{typed[0]}"):
        own_commands.refuse_typo(typed[0], root, workspace, is_alone=question.strip() == f"/{typed[0]}")
    return slash.unescape(text)


def add_standard_input(question: str, is_piped: bool, notices: list[str]) -> str:
    """Return the question with the piped text. Adds a line to `notices` for each omitted part. Without a
    question, waits for the whole input."""
    from whet.terminal import attach  # noqa: PLC0415 - a short question without input needs none of it

    piped = ""
    if not question or is_piped:
        stdin_text = attach.read_pipe(
            wait_s=_STDIN_WAIT_S if question else None, slow_s=_STDIN_WAIT_S, report_slow=_report_slow_input
        )
        if stdin_text is None:
            notices.append(f"nothing came on standard input in {_STDIN_WAIT_S:.0f} s; going on without it")
        piped = stdin_text or ""
    text = question
    if not question or piped or attach.is_cut(question):
        text = attach.join_piped_text(question, piped)
    notices += filter(None, [attach.shortening_notice(question, piped)])
    return text


def _report_slow_input(count_bytes: int) -> None:
    """Tell the person on standard error that the program waits for the end of its input."""
    with suppress(OSError):  # a terminal that was closed
        sys.stderr.write(f"waiting for the end of standard input ({plural(count_bytes, 'byte')} so far)\n")
        sys.stderr.flush()
