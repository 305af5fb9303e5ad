"""The protocol of a server behind the gateway, and an MCP server that is a local program."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from whet.contract.errors import ConfigError

CHUNK = 65_536
MAX_LINE = 64 * 1024 * 1024
GRACE_S = 5.0


class GatedServer(Protocol):
    """The server behind the gateway, as lines of JSON."""

    async def start(self) -> None:
        """Reach the server. Raises ConfigError."""
        ...

    async def send(self, line: bytes) -> None:
        """Pass a message on."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """Yield what the server sends, until it ends."""
        ...

    def end_input(self) -> None:
        """End the server's input. `lines` ends once the server has answered."""
        ...

    async def finish(self) -> int:
        """Wait until the server has ended, and return its exit code."""
        ...

    async def stop(self) -> None:
        """End the server now, if it has not ended."""
        ...


class ProgramServer:
    """A server on the standard input and output of a process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the program, without the token of the confirmation service. Raises ConfigError."""
        environ = {name: value for name, value in os.environ.items() if name != "CONFIRMATION_TOKEN"}
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, env=environ
            )
        except OSError as error:
            raise ConfigError(f"can't start {self._command[0]}: {error.strerror}") from error

    async def send(self, line: bytes) -> None:
        """Write a line to the program."""
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the program's lines."""
        stream = self._process.stdout if self._process is not None else None
        if stream is not None:
            async for line in split_lines(lambda: stream.read(CHUNK)):
                yield line

    def end_input(self) -> None:
        """Close the program's input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def finish(self) -> int:
        """Return the program's exit code, or 1 if it does not end in time."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    return await self._process.wait()
        return 1

    async def stop(self) -> None:
        """Kill the program if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def split_lines(read_chunk: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield lines with their ends. Raises ConfigError for an endless one."""
    buffer = bytearray()
    while chunk := await read_chunk():
        position = len(buffer)  # bytes before it are searched already
        buffer += chunk
        while (end := buffer.find(b"\n", position) + 1) > 0:
            yield bytes(buffer[:end])
            del buffer[:end]
            position = 0
        if len(buffer) > MAX_LINE:
            raise ConfigError(f"a message is longer than {MAX_LINE:,} bytes")
    if buffer:
        yield bytes(buffer)
