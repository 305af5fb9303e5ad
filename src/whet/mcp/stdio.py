"""Run an MCP server as a child process with one message per line on its stdin and stdout.

Lines that are not messages are counted and dropped; oversized lines are not even kept in memory. The server
has its own process group and only the environment given here. When it ends, its remaining group is killed.
Errors include the first and the last lines of its stderr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.log import mask
from whet.mcp.exits import ChildExit, signal_group
from whet.mcp.transport import MAX_MESSAGE_BYTES, Dropped, Ended, Received, ServerFailed
from whet.rpc import find_message, read_message
from whet.tools.guardian import Guardian

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail, Started

log: logging.Logger = logging.getLogger("whet.mcp")
_PASSED_VARIABLES = (
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "USER",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "XDG_RUNTIME_DIR",
)
_LAST_WORDS_S = 1.0
_STDERR_BYTES = 4_000
_QUOTED_LINES = 4
_QUOTED_CHARS = 300
_EXIT_S = 1.0
_TERM_S = 2.0
_GARBAGE_CHARS = 120
_FEW_PARTS = 4
MAX_GARBAGE = 100_000
_LAST_OUTPUT_S = 0.2


class Launch(msgspec.Struct, frozen=True):
    """The command to start. `environment` is complete; `given` are the variables set by the server's
    settings."""

    command: str
    args: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path | None = None
    given: frozenset[str] = frozenset()


class ServerJail(msgspec.Struct, frozen=True):
    """A server's sandbox, and the variables that it has there unless its settings set them."""

    jail: Jail
    variables: Mapping[str, str] = {}


def server_environment(source: Mapping[str, str], additions: Mapping[str, str]) -> dict[str, str]:
    """Return a server's environment: the few variables of `source` that any program needs, and
    `additions`."""
    passed = {k: v for k, v in source.items() if k in _PASSED_VARIABLES or k.startswith("LC_")}
    return {**passed, **additions}


def _start_jailed(launch: Launch, server_jail: ServerJail) -> Started:
    from whet.sandbox.jail import JailedCommand  # noqa: PLC0415 - only where servers are confined

    jail = server_jail.jail
    defaults = {name: value for name, value in server_jail.variables.items() if name not in launch.given}
    environment = {**jail.environment(launch.environment), **defaults}
    cwd = launch.cwd or jail.policy.workspace
    return jail.spawn_with_pipes(JailedCommand([launch.command, *launch.args], environment, cwd))


class _LineSplitter(asyncio.Protocol):
    """Splits a server's output into lines. Lines longer than `MAX_MESSAGE_BYTES` are only measured."""

    def __init__(self, line: Callable[[bytes], None], too_long: Callable[[int], None]) -> None:
        self.ended = asyncio.Event()
        self._line = line
        self._too_long = too_long
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def begun(self) -> bytes:
        """The beginning of the line that is still incomplete."""
        return b"".join(self._parts[:_FEW_PARTS])

    def data_received(self, data: bytes) -> None:
        *ends, partial = data.split(b"\n")
        for end in ends:
            self._take(end)
            self._finish()
        if partial:
            self._take(partial)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_MESSAGE_BYTES:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _finish(self) -> None:
        size, parts = self._size, self._parts
        self._size, self._parts = 0, []
        if size > MAX_MESSAGE_BYTES:
            self._too_long(size)
        else:
            self._line(b"".join(parts))


def _quote(line: bytes) -> str:
    """Return the beginning of a line that is not a message, without secrets."""
    return mask(line[:_STDERR_BYTES].decode("utf-8", "replace"))[:_GARBAGE_CHARS]


class _Tail(asyncio.Protocol):
    """Keeps the end of a server's stderr."""

    def __init__(self) -> None:
        self.kept = b""
        self.is_whole = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.kept = (self.kept + data)[-_STDERR_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_whole.set()


class StdioTransport:
    """One run of a server. `guardian` ends its group if this process dies. `jail` returns its sandbox."""

    def __init__(
        self,
        name: str,
        launch: Launch,
        guardian: Guardian,
        jail: Callable[[], ServerJail | None] | None = None,
    ) -> None:
        self._jail = jail
        self._server_jail: ServerJail | None = None
        self._name = name
        self._launch = launch
        self._guardian = guardian
        self._popen: Started | None = None
        self._exit: ChildExit | None = None
        self._tail = _Tail()
        self._readers: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None
        self._watch: asyncio.Task[None] | None = None
        self._received: Received = lambda _message: None
        self._dropped: Dropped = lambda _what: None
        self._garbage = 0
        self._first_garbage = self._last_garbage = ""
        self._output: _LineSplitter | None = None
        self._too_large = 0
        self._has_quoted = False

    async def start(self, received: Received, dropped: Dropped, ended: Ended) -> None:
        """Start the process. Raises ServerFailed if the command can't be started."""
        self._received, self._dropped = received, dropped
        self._server_jail = await asyncio.to_thread(self._jail) if self._jail is not None else None
        self._popen = popen = self._spawn(self._server_jail)
        self._guardian.add(popen.pid)
        self._exit = exit_ = ChildExit(popen)
        loop = asyncio.get_running_loop()
        assert popen.stdin and popen.stdout and popen.stderr
        self._output = out = _LineSplitter(self._take_line, self._report_dropped)
        stdout, _ = await loop.connect_read_pipe(lambda: out, popen.stdout)
        self._readers.append(stdout)
        stderr, _ = await loop.connect_read_pipe(lambda: self._tail, popen.stderr)
        self._readers.append(stderr)
        flow, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, popen.stdin)
        self._writer = asyncio.StreamWriter(flow, protocol, None, loop)
        self._watch = asyncio.create_task(self._until_gone(out, exit_, ended))

    def _spawn(self, jail: ServerJail | None) -> Started:
        launch = self._launch
        try:
            if jail is not None:
                return _start_jailed(launch, jail)
            return subprocess.Popen(
                [launch.command, *launch.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(launch.environment),
                cwd=launch.cwd,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise self._spawn_error(error, jail) from error

    def _spawn_error(self, error: OSError | ValueError, jail: ServerJail | None) -> ServerFailed:
        """Return the reason why the command can't be started, and what to do about it."""
        command, name = self._launch.command, self._name
        search_path = self._launch.environment.get("PATH")
        is_missing = isinstance(error, FileNotFoundError)
        if is_missing and "/" not in command and not shutil.which(command, path=search_path):
            return ServerFailed(
                f"{command} is not installed or not on PATH, so the MCP server {name} can't be started",
                hint="install it, or write its whole path",
            )
        path = os.path.join(self._launch.cwd or "", command)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = f"whet mcp test {name}"
        if "/" in command and not os.path.exists(path):
            hint = "check the path of its command"
        elif "/" in command and not (os.path.isfile(path) and os.access(path, os.X_OK)):
            hint = "its command must be a file that you may execute"
        elif jail is not None and os.path.exists(path):
            hint = f"in the sandbox it is not whole: mcp.servers.{name}.openings: [read FOLDER]"
        return ServerFailed(f"the MCP server {name} can't be started: {command}: {reason}", hint=hint)

    async def send(
        self,
        message: bytes,
        answer: asyncio.Future[dict[str, Any]] | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Write one line, waiting as long as the server does not read. Raises ServerFailed."""
        del answer, headers
        writer = self._writer
        if writer is None or writer.is_closing():
            raise await self._ended_error()
        try:
            writer.write(message + b"\n")
            await writer.drain()
        except (OSError, RuntimeError) as error:
            raise await self._ended_error() from error

    async def _ended_error(self) -> ServerFailed:
        """Return the error of a server that has ended, after reading the end of its stderr."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._tail.is_whole.wait()
        return ServerFailed(f"the MCP server {self._name} has ended{self._last_words()}")

    def listen(self) -> None:
        """Do nothing, because the server's output is always read."""

    def explain(self) -> str:
        """Return a description of output that was not a message, the last line of stderr, and hosts that the
        sandbox refused."""
        statements: list[str] = []
        if self._too_large:
            statements.append(f"it sent a message of {self._too_large:,} bytes, which was dropped")
        if self._garbage:
            is_single = self._garbage == 1
            lines = (
                "a line that is not a message"
                if is_single
                else f"{self._garbage:,} lines that are not messages, the first"
            )
            last = "" if is_single else f", the last: {self._last_garbage!r}"
            statements.append(f"it printed {lines}: {self._first_garbage!r}{last}")
        if self._output is not None and (begun := self._output.begun.strip()):
            statements.append(f"it printed a line without an end: {_quote(begun)!r}")
        if (last := self._last_stderr_line()) and not self._has_quoted:
            statements.append(f"its last line on stderr: {last}")
        if self._server_jail is not None and (refused := self._server_jail.jail.take_refused_hosts()):
            statements.append(f"the sandbox did not let it reach {', '.join(dict.fromkeys(refused))}")
        return "; ".join(statements)

    async def aclose(self) -> None:
        """Close stdin, wait briefly, then end the process group."""
        popen, self._popen = self._popen, None
        if popen is None or self._exit is None:
            return
        if self._watch is not None:
            self._watch.cancel()
        try:
            if self._writer is not None:
                self._writer.close()
            if popen.returncode is None and not await self._exit.wait(_EXIT_S):
                signal_group(popen.pid, signal.SIGTERM)
                await self._exit.wait(_TERM_S)
        finally:
            self._exit.kill_group()
            for reader in self._readers:
                reader.close()
            if self._writer is None:  # cancelled while it started
                for pipe in (popen.stdin, *(popen.stdout, popen.stderr)[len(self._readers) :]):
                    if pipe is not None:
                        pipe.close()
            self._guardian.drop(popen.pid)

    async def _until_gone(self, out: _LineSplitter, exit_: ChildExit, ended: Ended) -> None:
        """Wait until the server ends or closes its output. Then kill its remaining group and call `ended`."""
        ends = [asyncio.create_task(event.wait()) for event in (out.ended, exit_.ended)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # Read its last output. A child of its own may keep the output open, so the wait is limited.
            await asyncio.wait(ends, timeout=_LAST_OUTPUT_S if exit_.ended.is_set() else _EXIT_S)
        finally:
            for end in ends:
                end.cancel()
        has_exited, popen = exit_.ended.is_set(), self._popen
        code = exit_.kill_group()
        how = f"ended with exit code {code}" if has_exited else "closed its output"
        if has_exited and code is not None and code < 0:
            how = f"was ended by signal {-code}"
        if self._garbage >= MAX_GARBAGE:
            how = f"was ended after {self._garbage:,} lines that are not messages"
        if self._writer is not None:
            self._writer.close()
        if popen is not None:
            self._guardian.drop(popen.pid)
        ended(ServerFailed(f"the MCP server {self._name} {how}{self._last_words()}"))

    def _take_line(self, line: bytes) -> None:
        if not line.strip():
            return
        if (message := read_message(line)) is not None:
            self._received(message)
            return
        if (message := find_message(line)) is not None:
            self._received(message)
        self._last_garbage = _quote(line)
        if not self._garbage:
            self._first_garbage = self._last_garbage
            log.warning(
                "the MCP server %s printed what is not a message: %s", self._name, self._first_garbage
            )
        self._garbage += 1
        if self._garbage == MAX_GARBAGE and self._popen is not None and self._popen.returncode is None:
            signal_group(self._popen.pid, signal.SIGKILL)

    def _report_dropped(self, size: int) -> None:
        self._too_large = size
        problem = f"a message of {size:,} bytes, more than the {MAX_MESSAGE_BYTES:,} that are read"
        log.warning("the MCP server %s sent %s", self._name, problem)
        self._dropped(problem)

    def _stderr_lines(self) -> list[str]:
        kept = self._tail.kept.decode("utf-8", "replace")
        lines = [line.rstrip() for line in kept.splitlines() if line.strip()]
        # our own errors end with a hint line
        return [line for line in lines if not line.startswith("hint:")] or lines

    def _last_stderr_line(self) -> str:
        lines = self._stderr_lines()
        return mask(lines[-1].strip())[:300] if lines else ""

    def _last_words(self) -> str:
        """Return the first and the last lines of stderr in parentheses, or an empty string.

        Some programs print the cause first, some last. Indented lines, as in a traceback, are left out.
        """
        lines = self._stderr_lines()
        self._has_quoted = bool(lines)
        if not lines:
            return ""
        outer = [line for line in lines if not line[0].isspace()] or [line.strip() for line in lines]
        distinct = list(dict.fromkeys(outer))
        if len(distinct) > _QUOTED_LINES:
            half = _QUOTED_LINES // 2
            distinct = [*distinct[:half], "...", *distinct[-half:]]
        return f" ({' | '.join(mask(line)[:_QUOTED_CHARS] for line in distinct)})"
