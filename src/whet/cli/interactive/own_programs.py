"""Commands of `whet` inside the chat: `/mcp list` runs `whet mcp list` for the home of this chat.

The command runs in a process of its own, with no input to read; its lines are shown as they come.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whet.contract.errors import ConfigError
from whet.contract.events import Emit
from whet.terminal.themes import THEMES, find_theme
from whet.terminal.wording import printable

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl

_AT_NEXT_START = "Changes hold from the next start of whet."
_INIT = (
    "Write {verb} in this folder, for agents and people who change this code. Look first: the README, the"
    " build and package files, the tests and how they are run, the layout of the folders, and the rules that"
    " the code follows. Then write at most 60 lines: what the project is, the commands to build, test and"
    " check it, where things belong, and what must not break. State only what you have read or run."
)


async def run_mcp(chat: ChatControl, argument: str) -> None:
    """Run `whet mcp`; without an argument list the servers."""
    _run(chat, ["mcp", *(_split(argument) or ["list"])])


async def run_hooks(chat: ChatControl, argument: str) -> None:
    """Run `whet hooks`; without an argument list the hooks."""
    _run(chat, ["hooks", *_split(argument)])


async def run_config(chat: ChatControl, argument: str) -> None:
    """Show a setting, set it (KEY VALUE), or run a command of `whet config`; without an argument list the
    settings that are not the default."""
    words = _split(argument)
    if not words:
        _run(chat, ["config", "list", "--changed"])
    elif "." in words[0]:
        _run(chat, ["config", "set" if len(words) > 1 else "get", *words], _AT_NEXT_START * (len(words) > 1))
    else:
        _run(chat, ["config", *words])


async def run_login(chat: ChatControl, argument: str) -> None:
    """Run `whet model login`."""
    _run(chat, ["model", "login", *_split(argument)], "The key is used from the next start of whet.")


async def run_agents(chat: ChatControl, argument: str) -> None:
    """Run `whet agents`."""
    _run(chat, ["agents", *_split(argument)])


async def choose_theme(chat: ChatControl, argument: str) -> None:
    """Set the theme, for this chat and later ones; without an argument let the person pick one."""
    name = argument
    if not name:
        picked = await chat.choose("Which colours?", list(THEMES.items()))
        if picked is None:
            chat.say(f"/theme NAME sets one: {', '.join(THEMES)}", "dim")
            return
        name = list(THEMES)[picked]
    if name not in THEMES:
        raise ConfigError(f"there is no theme {name[:40]!r}", hint=f"/theme with one of {', '.join(THEMES)}")
    chat.painter.theme = find_theme(name, os.environ)
    _run(chat, ["config", "set", "ui.theme", name])


async def write_instructions(chat: ChatControl, argument: str) -> None:
    """Have the model write or improve AGENTS.md from what the repository shows."""
    exists = (chat.services.workspace / "AGENTS.md").exists()
    message = _INIT.format(
        verb="a better AGENTS.md in place of the present one" if exists else "an AGENTS.md"
    )
    chat.send(f"{message} {argument}".strip())


def _split(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise ConfigError(f"{argument[:40]!r} can't be read: {error}") from error


def _run(chat: ChatControl, words: Sequence[str], note: str = "") -> None:
    """Run `whet` with arguments in the background of the input."""

    async def work(emit: Emit) -> None:
        await _show_output(chat.say, words, str(chat.services.home.root), chat.width())
        if note:
            chat.say(note, "dim")

    chat.work("running", work)


async def _show_output(say: Callable[[str, str], None], words: Sequence[str], home: str, width: int) -> None:
    environ = {**os.environ, "WHET_HOME": home, "COLUMNS": str(width), "NO_COLOR": "1"}
    environ.pop("WHET_PROFILE", None)  # the home is the profile's own
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "whet",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            say(printable(line.decode("utf-8", "replace").rstrip()), "")
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
