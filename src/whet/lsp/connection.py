"""JSON-RPC with one running language server over its pipes: framing, requests, and the server's own requests.

A server's output is untrusted: the size of a message and the bytes between two requests are limited, text
between messages is skipped, and requests to edit a file or start a program are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from whet.contract.errors import ToolError
from whet.contract.texts import NOT_JSON, as_object, clean
from whet.lsp.errors import one_line
from whet.rpc import METHOD_NOT_FOUND, read_message

if TYPE_CHECKING:
    from whet.sandbox.jail import Started

MAX_MESSAGE_BYTES = 32_000_000
MAX_UNASKED_BYTES = 64_000_000
_MAX_HEADER_BYTES = 64_000
_STDERR_BYTES = 4_000
_PIPE_BYTES = 65_536
_QUIT_S = 2.0

Handle = Callable[[str, Any], Any]
"""Handles a server's request or notification, by method and parameters, and returns the result of a request.
Raises LookupError if the method is unknown."""


class ServerEnded(ToolError):
    """The server has ended, or Whet has ended it because it broke the protocol."""


class _Reader(asyncio.Protocol):
    """Splits a server's output into messages, and skips lines that are not headers."""

    def __init__(self, message: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._message = message
        self._ended = ended
        self._buffer = bytearray()
        self._length = -1
        self._is_body = False

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._take_body() if self._is_body else self._take_line():
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended("it closed its pipes")

    def _take_body(self) -> bool:
        if len(self._buffer) < self._length:
            return False
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length, self._is_body = -1, False
        self._message(body)
        return True

    def _take_line(self) -> bool:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEADER_BYTES:
                del self._buffer[:-100]
            return False
        line = bytes(self._buffer[:end]).strip()
        del self._buffer[: end + 1]
        name, _, value = line.rpartition(b":")
        if name.strip().lower().endswith(b"content-length") and value.strip().isdigit():
            self._length = int(value)
            if self._length > MAX_MESSAGE_BYTES:
                self._ended(f"it sent a message of {self._length:,} bytes")
                self._length = -1
        elif not line and self._length >= 0:
            self._is_body = True
        return True


class _Tail(asyncio.Protocol):
    """Stores the last bytes of a stream."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data = (self.data + data)[-_STDERR_BYTES:]


class ServerConnection:
    """The connection to one server process. `handle` is called with its requests and notifications,
    `when_ended` once when it ends."""

    def __init__(self, name: str, process: Started, handle: Handle, when_ended: Callable[[], None]) -> None:
        self._name = name
        self._process = process
        self._handle = handle
        self._when_ended = when_ended
        self._tail = _Tail()
        self._writer: asyncio.StreamWriter | None = None
        self._readers: list[asyncio.BaseTransport] = []
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._unasked_bytes = 0
        self._received_s = time.monotonic()
        self.ended: str = ""
        """Why the server ended; empty while it runs."""

    async def open(self) -> None:
        """Connect the pipes of the process."""
        loop, process = asyncio.get_running_loop(), self._process
        assert process.stdin and process.stdout and process.stderr
        reader = _Reader(self._receive, self._end)
        stdout, _ = await loop.connect_read_pipe(lambda: reader, process.stdout)
        stderr, _ = await loop.connect_read_pipe(lambda: self._tail, process.stderr)
        self._readers = [stdout, stderr]
        flow, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        self._writer = asyncio.StreamWriter(flow, protocol, None, loop)

    async def request(self, method: str, params: Mapping[str, Any] | None) -> Any:
        """Send a request and return its result, without a time limit. Cancelling cancels the request at the
        server. Raises ServerEnded, or ToolError with the server's own error."""
        self._next_id = call_id = self._next_id + 1
        self._unasked_bytes = 0
        self._pending[call_id] = future = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": call_id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            self._write({"method": "$/cancelRequest", "params": {"id": call_id}})
            raise
        finally:
            self._pending.pop(call_id, None)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Raises ServerEnded."""
        await self._send({"method": method, "params": params})

    def check(self) -> None:
        """Raise ServerEnded if the server has ended."""
        if self.ended:
            raise self._ended_error()

    def silent_s(self) -> float:
        """Return the seconds since the server last sent anything."""
        return time.monotonic() - self._received_s

    async def close(self) -> None:
        """Ask the server to end, wait briefly, then kill its processes."""
        if not self.ended:
            with contextlib.suppress(ToolError, TimeoutError):
                async with asyncio.timeout(_QUIT_S):
                    await self.request("shutdown", None)
                    await self.notify("exit", {})
        self._end("it was closed")
        await asyncio.to_thread(_end_process, self._process)

    def read_last_error_line(self) -> str:
        """Return the last line of the server's error output, made printable."""
        lines = clean(self._tail.data.decode("utf-8", "replace")).split("\n")
        return next((one_line(line, 200) for line in reversed(lines) if line.strip()), "")

    async def _send(self, message: Mapping[str, Any]) -> None:
        self._write(message)
        if self._writer is not None:
            try:
                await self._writer.drain()
            except OSError:
                self._end("it closed its pipes")
        self.check()

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._writer is None or self.ended or self._writer.is_closing():
            return
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def _receive(self, body: bytes) -> None:
        self._unasked_bytes += len(body)
        self._received_s = time.monotonic()
        if self._unasked_bytes > MAX_UNASKED_BYTES:
            return self._end(f"it sent {self._unasked_bytes:,} bytes that nothing asked for")
        message = read_message(body)
        if message is None or self.ended:
            return None
        method, call_id = message.get("method"), message.get("id")
        if isinstance(method, str):
            return self._handle_message(method, call_id, message.get("params"))
        future = self._pending.get(call_id) if isinstance(call_id, int) else None
        if future is None or future.done():
            return None
        if (error := message.get("error")) is not None:
            fields = as_object(error)
            text = one_line(str(fields.get("message")), 300)
            future.set_exception(ToolError(f"{self._name} refused: {text}"))
        else:
            future.set_result(message.get("result"))
        return None

    def _handle_message(self, method: str, call_id: object, params: Any) -> None:
        try:
            result = self._handle(method, params)
        except (LookupError, TypeError, ValueError, AttributeError, *NOT_JSON):
            if call_id is not None:
                error = {"code": METHOD_NOT_FOUND, "message": "not supported"}
                self._write({"id": call_id, "error": error})
            return
        if call_id is not None:
            self._write({"id": call_id, "result": result})

    def _end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = reason
        self._tail.data_received(_read_rest(self._process))
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._ended_error())
        if self._writer is not None:
            self._writer.close()
        for reader in self._readers:
            reader.close()
        _signal(self._process, signal.SIGKILL)
        self._when_ended()

    def _ended_error(self) -> ServerEnded:
        line = self.read_last_error_line()
        return ServerEnded(f"{self._name} has ended: {self.ended}{f' ({line})' if line else ''}")


def _read_rest(process: Started) -> bytes:
    """Return the part of the error output that the event loop has not read yet."""
    with contextlib.suppress(OSError, ValueError):
        if process.stderr is not None and not os.get_blocking(process.stderr.fileno()):
            return os.read(process.stderr.fileno(), _PIPE_BYTES)
    return b""


def _signal(process: Started, number: int) -> None:
    with contextlib.suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, number)


def _end_process(process: Started) -> None:
    _signal(process, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_QUIT_S)
