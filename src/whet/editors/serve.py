"""Speak the Agent Client Protocol on this process's standard input and output, until the editor disconnects.

Standard output carries only the protocol. All other output, such as a plugin's, goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from acp import Agent, RequestError, run_agent

from whet import log
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.slash import SlashCommand
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError
from whet.editors.agent import EditorAgent
from whet.editors.commands import EditorCommands
from whet.editors.sessions import SOURCE, Furnish, Program

_MAX_LINE_BYTES = 50 * 1024 * 1024


async def serve(
    home: Home, read_settings: Callable[[], Settings], shared: Sequence[SlashCommand[Any]]
) -> None:
    """Answer the editor until it closes standard input or output, or SIGTERM arrives. Then cancel turns.

    `read_settings` is called in a thread at the first session, whose request gets its error. `shared` are
    the terminal's slash commands.
    """
    hung_up = asyncio.Event()
    reader, writer = await _open_streams(hung_up)

    async def start(furnish: Furnish) -> Program:
        return await open_program(home, await asyncio.to_thread(read_settings), furnish)

    agent = EditorAgent(start, EditorCommands(shared))
    running = asyncio.ensure_future(run_agent(cast(Agent, agent), writer, reader, use_unstable_protocol=True))
    ended = asyncio.ensure_future(hung_up.wait())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, hung_up.set)
    async with aclosing(agent):
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        ended.cancel()
        with suppress(asyncio.CancelledError, ConnectionError, RequestError):
            await running


async def open_program(home: Home, settings: Settings, furnish: Furnish) -> Program:
    """Open the program for many sessions. `furnish` returns the editor's parts of a session.

    The gate's mode is ask, because each session has a mode of its own, by which its person answers. Raises
    WhetError.
    """
    log.start_logging(home.logs)
    mode = settings.approval.mode
    if mode == "auto":
        approval = msgspec.structs.replace(settings.approval, mode="ask")
        settings = msgspec.structs.replace(settings, approval=approval)
    people = PersonRouter()
    workspace = Path(settings.tools.workspace or os.getcwd()).expanduser().absolute()
    app = await App.start(home, settings, load_secrets(home, os.environ), people, workspace, source=SOURCE)
    app.reviews.start()
    app.services.schedules.get().start()
    return Program(SessionHost(app.sessions, people, furnish=furnish), people, mode, app.aclose)


class _WriteProtocol(asyncio.streams.FlowControlMixin):
    """The writing side of the connection. Sets `hung_up` when the editor closes it."""

    def __init__(self, hung_up: asyncio.Event) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._hung_up = hung_up

    def connection_lost(self, exc: Exception | None) -> None:
        """Set `hung_up`."""
        super().connection_lost(exc)
        self._hung_up.set()


async def _open_streams(hung_up: asyncio.Event) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Reserve standard input and output for the protocol. From now on, printed output goes to standard error.

    Sets `hung_up` when the editor closes the output.
    """
    loop = asyncio.get_running_loop()
    if not all(_is_pipe(number) for number in (0, 1)):
        raise ConfigError(
            "standard input and output are not pipes",
            hint="name `whet acp` as the agent in your editor's settings",
        )
    input_fd, output_fd = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    reader = _JsonLines(limit=_MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(input_fd, "rb"))
    transport, protocol = await loop.connect_write_pipe(
        lambda: _WriteProtocol(hung_up), os.fdopen(output_fd, "wb")
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _is_pipe(number: int) -> bool:
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _JsonLines(asyncio.StreamReader):
    """Skips lines that are not a JSON object, which would end the SDK's reading."""

    _is_continued = False

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        """Read a line, or the rest of one that was too long for the buffer."""
        while True:
            try:
                line = await super().readuntil(separator)
            except asyncio.LimitOverrunError:
                self._is_continued = True
                raise
            except asyncio.IncompleteReadError as error:
                is_json = self._is_continued or error.partial.lstrip()[:1] == b"{"
                raise asyncio.IncompleteReadError(error.partial if is_json else b"", None) from error
            is_continuation, self._is_continued = self._is_continued, False
            if is_continuation or line.lstrip()[:1] == b"{":
                return line
