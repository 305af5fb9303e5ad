"""Stand between an MCP client on standard input and output and the server that this process starts.

Lines pass byte for byte in both directions; only tool calls that must wait are taken out, and passed on
unchanged once a person has approved them. A held call delays no other message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from whet.contract.errors import ConfigError
from whet.rpc import read_message
from whet_confirm.gateway.gate import ToolGate
from whet_confirm.gateway.messages import (
    HeldCall,
    Unclear,
    encode_error,
    encode_refusal,
    id_key,
    parse_line,
    read_call,
)

_CHUNK = 65_536
_MAX_LINE = 64 * 1024 * 1024
_GRACE_S = 5.0


class StdioGateway:
    """One client, one server."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate
        self._held: dict[str, asyncio.Task[None]] = {}
        self._lists: set[str] = set()
        self._tickets: dict[str, str] = {}
        self._reports: set[asyncio.Task[None]] = set()
        self._server: asyncio.subprocess.Process | None = None

    async def run(self, command: Sequence[str]) -> int:
        """Relay until the client or the server ends, and return the server's exit code.

        Raises ConfigError.
        """
        environ = {name: value for name, value in os.environ.items() if name != "CONFIRMATION_TOKEN"}
        pipe = asyncio.subprocess.PIPE
        try:
            server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environ)
        except OSError as error:
            raise ConfigError(f"can't start {command[0]}: {error.strerror}") from error
        self._server = server
        inbound = asyncio.create_task(self._relay_client())
        outbound = asyncio.create_task(self._relay_server())
        try:
            await asyncio.wait((inbound, outbound), return_when=asyncio.FIRST_COMPLETED)
            await self._end_held()
            if server.stdin is not None:
                server.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(outbound, _GRACE_S)
            if self._reports:
                await asyncio.wait(self._reports, timeout=_GRACE_S)
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(server.wait(), _GRACE_S)
            return 1
        finally:
            inbound.cancel()
            outbound.cancel()
            await self._end_held()
            if server.returncode is None:
                server.kill()
                await server.wait()

    async def _end_held(self) -> None:
        """Cancel the held calls, and with them their requests."""
        tasks = [*self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay_client(self) -> None:
        async for line in _read_stdin():
            try:
                await self._take_line(line)
            except Unclear as error:
                _write_client(encode_error(str(error)))

    async def _take_line(self, line: bytes) -> None:
        message = parse_line(line)
        call = read_call(message) if message is not None else None
        if call is not None and not self._gate.is_free(call):
            if call.id is None:
                raise Unclear("a tool call without an id can't be held")
            task = asyncio.create_task(self._hold(line, call))
            key = id_key(call.id)
            while key in self._held:  # the client used an id twice
                key += "'"
            self._held[key] = task
            task.add_done_callback(lambda _: self._held.pop(key, None))
            return
        if message is not None and message.get("method") == "tools/list":
            self._lists.add(id_key(message.get("id")))
        if message is not None and message.get("method") == "notifications/cancelled":
            params: object = message.get("params")
            key = id_key(cast("dict[str, Any]", params).get("requestId")) if isinstance(params, dict) else ""
            if (task := self._held.get(key)) is not None:
                task.cancel()
                return  # the server never saw the call
        await self._send_server(line)

    async def _hold(self, line: bytes, call: HeldCall) -> None:
        result = await self._gate.decide(call)
        if not result.may_run:
            _write_client(encode_refusal(call.id, f"Not run: {result.why}."))
            return
        self._tickets[id_key(call.id)] = result.ticket_id
        await self._send_server(line)

    async def _send_server(self, line: bytes) -> None:
        if self._server is None or self._server.stdin is None:
            return
        with contextlib.suppress(ConnectionError):
            self._server.stdin.write(line)
            await self._server.stdin.drain()

    async def _relay_server(self) -> None:
        stream = self._server.stdout if self._server is not None else None
        if stream is None:
            return
        buffer = b""
        while chunk := await stream.read(_CHUNK):
            buffer += chunk
            if (end := buffer.rfind(b"\n") + 1) == 0:
                continue
            lines, buffer = buffer[:end], buffer[end:]
            if self._lists or self._tickets:
                for line in lines.split(b"\n"):
                    self._read_answer(line)
            _write_client(lines)
        _write_client(buffer)

    def _read_answer(self, line: bytes) -> None:
        """Note the tools of a list, and report what became of an approved call."""
        message = read_message(line)
        if message is None or "id" not in message or "method" in message:
            return
        key = id_key(message["id"])
        if key in self._lists:
            self._lists.discard(key)
            self._gate.pins.observe(message.get("result"))
        if (ticket_id := self._tickets.pop(key, "")) != "":
            result: object = message.get("result")
            is_failed = not isinstance(result, dict) or cast("dict[str, Any]", result).get("isError") is True
            report = asyncio.create_task(self._gate.report(ticket_id, is_failed=is_failed))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)


async def _read_stdin() -> AsyncIterator[bytes]:
    """Yield the lines of standard input with their ends. It may be a pipe, a file or a terminal."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        with contextlib.suppress(RuntimeError, OSError):  # the loop has ended
            while chunk := os.read(sys.stdin.fileno(), _CHUNK):
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, name="gateway-stdin", daemon=True).start()
    buffer = b""
    while chunk := await queue.get():
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(buffer) > _MAX_LINE:
            raise ConfigError(f"a message is longer than {_MAX_LINE:,} bytes")
    if buffer:
        yield buffer


def _write_client(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
