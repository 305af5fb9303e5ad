"""Run commands of `whet` inside the chat: `/mcp list` runs `whet mcp list` for the chat's home and folder.

The command runs in a process of its own, without input, and its output is shown as it comes. A command that
asks the person something gets the terminal instead.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.interactive.chat_words import name_chat_commands
from whet.contract.errors import ConfigError, NotFound
from whet.contract.events import Emit
from whet.terminal.themes import THEMES, find_theme
from whet.terminal.wording import printable

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl

_AT_NEXT_START = "Changes hold from the next start of whet."
_END_S = 2.0
_NO_VARIABLES: Mapping[str, str] = {}
_ENDLESS = ("acp", "chat", "confirm", "demo", "eval", "gateway", "practice", "run", "serve", "worker")
_ASKING = (["config", "edit"], ["hooks", "accept"], ["plugins", "install"])
_INIT = (
    "Write {verb} in this folder, for agents and people who change this code. Look first: the README, the"
    " build and package files, the tests and how they are run, the layout of the folders, and the rules that"
    " the code follows. Then write at most 60 lines: what the project is, the commands to build, test and"
    " check it, where things belong, and what must not break. State only what you have read or run."
)


async def run_mcp(chat: ChatControl, argument: str) -> None:
    """Run `whet mcp`; without an argument list the servers."""
    await _run(chat, ["mcp", *(_split(argument) or ["list"])])


async def run_hooks(chat: ChatControl, argument: str) -> None:
    """Run `whet hooks`; without an argument list the hooks."""
    await _run(chat, ["hooks", *_split(argument)])


async def run_config(chat: ChatControl, argument: str) -> None:
    """Show a setting (KEY), set it (KEY VALUE), or run a command of `whet config`. Without an argument, list
    the settings that are not the default. A secret's value is asked for without showing it."""
    words = _split(argument)
    if words[:1] == ["set"] and words[1:2] and not words[1].startswith("-"):
        words = words[1:] if len(words) > 2 or words[1].isupper() else words
    is_key = bool(words) and ("." in words[0] or words[0].isupper())
    if not words:
        await _run(chat, ["config", "list", "--changed"])
    elif not is_key:
        await _run(chat, ["config", *words])
    elif "." not in words[0] and len(words) > 1:
        raise ConfigError(
            f"a secret that is typed here stays in the history of the input, so {words[0]} was not stored",
            hint=f"/config {words[0]} asks for it unseen",
        )
    elif "." not in words[0]:
        await _lend_terminal(chat, ["config", "set", words[0]], _AT_NEXT_START)
    else:
        is_set = len(words) > 1
        await _run(chat, ["config", "set" if is_set else "get", *words], _AT_NEXT_START * is_set)


async def run_login(chat: ChatControl, argument: str) -> None:
    """Run `whet model login`, by default for OpenRouter."""
    words = _split(argument) or ["openrouter"]
    await _run(chat, ["model", "login", *words], "The key is used from the next start of whet.")


async def run_at_terminal(chat: ChatControl, name: str, argument: str) -> None:
    """Run a command of `whet` for which the chat has no slash command. Raises NotFound if it runs until it is
    stopped, such as a server."""
    if name in _ENDLESS:
        reason = f"it goes on for long, so run `whet {name}` in a terminal of its own"
        raise NotFound(f"there is no command /{name}", hint=reason)
    await _lend_terminal(chat, [name, *_split(argument)])


async def list_models(chat: ChatControl) -> None:
    """Run `whet model list`, which marks the chat's model."""
    await _run(chat, ["model", "list"], environ={"WHET_MODEL_MODEL": chat.session.model.model})


async def run_agents(chat: ChatControl, argument: str) -> None:
    """Run `whet agents`."""
    await _run(chat, ["agents", *_split(argument)])


async def run_doctor(chat: ChatControl, argument: str) -> None:
    """Run `whet doctor`."""
    await _run(chat, ["doctor", *_split(argument)])


async def run_plugins(chat: ChatControl, argument: str) -> None:
    """Run `whet plugins`; without an argument list the plugins."""
    await _run(chat, ["plugins", *(_split(argument) or ["list"])])


async def run_cron(chat: ChatControl, argument: str) -> None:
    """Run `whet cron`; without an argument list the schedules."""
    await _run(chat, ["cron", *(_split(argument) or ["list"])])


async def run_sandbox(chat: ChatControl, argument: str) -> None:
    """Run `whet sandbox`; without an argument show its status."""
    await _run(chat, ["sandbox", *(_split(argument) or ["status"])])


async def search_sessions(chat: ChatControl, argument: str) -> None:
    """Run `whet sessions search`. Raises ConfigError if nothing is searched for."""
    if not argument:
        raise ConfigError("there is nothing to search for", hint="/search WORDS")
    await _run(chat, ["sessions", "search", "--", argument])


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
    await _run(chat, ["config", "set", "ui.theme", name])


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


async def _run(
    chat: ChatControl, words: Sequence[str], note: str = "", environ: Mapping[str, str] = _NO_VARIABLES
) -> None:
    """Run `whet` with arguments, and with `environ` besides the chat's environment, while the person can
    type. If it succeeds, show `note`."""
    if list(words[:2]) in _ASKING:
        await _lend_terminal(chat, words, note)
        return

    async def run(emit: Emit) -> None:
        variables = {**_environ(chat), **environ}
        code = await _show_output(chat.say, words, variables, chat.session.workspace)
        if note and code == 0:
            chat.say(note, "dim")

    chat.start_task("running", run)


async def _lend_terminal(chat: ChatControl, words: Sequence[str], note: str = "") -> None:
    """Run `whet` with arguments in the terminal itself. If it succeeds, show `note`."""
    environ = {key: value for key, value in _environ(chat).items() if key not in ("NO_COLOR", "COLUMNS")}
    command, folder = _command(words), chat.session.workspace
    process = await chat.lend_terminal(lambda: subprocess.run(command, env=environ, cwd=folder, check=False))
    if note and process.returncode == 0:
        chat.say(note, "dim")


def _environ(chat: ChatControl) -> dict[str, str]:
    home, width = str(chat.services.home.root), str(chat.width())
    environ = {**os.environ, "WHET_HOME": home, "COLUMNS": width, "NO_COLOR": "1"}
    environ.pop("WHET_PROFILE", None)  # the home is the profile's own
    return environ


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "whet", *words]


async def _show_output(
    say: Callable[[str, str], None], words: Sequence[str], environ: dict[str, str], folder: Path
) -> int:
    """Run `whet` with arguments, show its lines, and return its exit code. If cancelled, ends it and all
    programs that it started."""
    process = await asyncio.create_subprocess_exec(
        *_command(words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environ,
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            say(name_chat_commands(printable(line.decode("utf-8", "replace").rstrip())), "")
        return await process.wait()
    except asyncio.CancelledError:
        for number in (signal.SIGTERM, signal.SIGKILL):  # one of its programs may ignore the first
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await process.wait()
        raise
