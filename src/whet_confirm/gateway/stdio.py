"""Relays between an MCP client on standard input and output and a server: a program, or one over HTTP.

Messages pass byte for byte in both directions, with two exceptions. Tool calls that must wait are held, and
passed on unchanged once a person has approved them; a held call delays no other message. In lists of tools,
definitions that no person has accepted are replaced. What a server prints besides messages goes to standard
error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import threading
from typing import Any, cast

import msgspec

from whet.contract.errors import ConfigError
from whet.rpc import read_message
from whet_confirm.gateway.gate import GateResult, ToolGate
from whet_confirm.gateway.messages import (
    LIST_CHANGED,
    AmbiguousMessage,
    HeldCall,
    encode_error,
    encode_progress,
    encode_refusal,
    id_key,
    parse_line,
    read_call,
)
from whet_confirm.gateway.program import CHUNK, GRACE_S, GatedServer, split_lines

_PROGRESS_S = 20.0  # clients give up after a minute without progress, or later
_logger = logging.getLogger("whet_confirm.gateway")


class StdioGateway:
    """One client, one server."""

    def __init__(self, gate: ToolGate, server: GatedServer) -> None:
        self._gate = gate
        self._server = server
        self._held: dict[str, asyncio.Task[None]] = {}
        self._tickets: dict[str, str] = {}
        self._reports: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Relay until the client or the server ends, and return the server's exit code.

        Raises ConfigError.
        """
        await self._server.start()
        inbound = asyncio.create_task(self._relay_client())
        outbound = asyncio.create_task(self._relay_server())
        try:
            await asyncio.wait((inbound, outbound), return_when=asyncio.FIRST_COMPLETED)
            if inbound.done():
                inbound.result()  # raises if a message was too long
            await self._end_held()
            self._server.end_input()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await outbound
            if self._reports:
                await asyncio.wait(self._reports, timeout=GRACE_S)
            return await self._server.finish()
        finally:
            inbound.cancel()
            outbound.cancel()
            await self._end_held()
            await self._server.stop()

    async def _end_held(self) -> None:
        """Cancel the held calls, and with them their requests."""
        tasks = [*self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay_client(self) -> None:
        async for line in split_lines(_read_stdin().get):
            try:
                await self._take_line(line)
            except (ValueError, OverflowError) as error:  # also for values that a rule can't compare
                _write_client(encode_error(line, str(error)))

    async def _take_line(self, line: bytes) -> None:
        message = parse_line(line)
        call = read_call(message) if message is not None else None
        if call is not None and not self._gate.is_free(call):
            if call.id is None:
                raise AmbiguousMessage("a tool call without an id can't be held")
            task = asyncio.create_task(self._hold(line, call))
            key = id_key(call.id)
            while key in self._held:  # the client used an id twice
                key += "'"
            self._held[key] = task
            task.add_done_callback(lambda _: self._held.pop(key, None))
            return
        if message is not None and message.get("method") == "notifications/cancelled":
            params: object = message.get("params")
            key = id_key(cast("dict[str, Any]", params).get("requestId")) if isinstance(params, dict) else ""
            if (task := self._held.get(key)) is not None:
                task.cancel()
                return  # the server never saw the call
        await self._server.send(line)

    async def _hold(self, line: bytes, call: HeldCall) -> None:
        progress = asyncio.create_task(_send_progress(call))
        try:
            result = await self._gate.decide(call)
        except ConfigError as error:  # the accepted definition can't be stored
            result = GateResult(False, why=error.message)
        finally:
            progress.cancel()
        if not result.may_run:
            _write_client(encode_refusal(call.id, f"Not run: {result.why}."))
            return
        if result.accepts_definition:
            _write_client(LIST_CHANGED)
        self._tickets[id_key(call.id)] = result.ticket_id
        await self._server.send(line)

    async def _relay_server(self) -> None:
        async for line in self._server.lines():
            if line.strip() and not line.lstrip().startswith((b"{", b"[")):  # a program's word, no message
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
            else:
                _write_client(self._screen(line))

    def _screen(self, line: bytes) -> bytes:
        """Return the line for the client in place of a line of the server.

        A line that may contain a list of tools and can't be parsed is dropped, because the client might parse
        it. A list is recognised by its fields, not by its id, which a client may compare differently.
        """
        may_list = b'"tools"' in line or b"\\u" in line
        if not may_list and not self._tickets:
            return line
        message = read_message(line)
        if message is None:
            return _drop(line) if may_list else line
        self._report_answer(message)
        result: object = message.get("result")
        if not isinstance(result, dict):
            return line
        try:
            shown = self._gate.pins.observe(cast("dict[str, Any]", result))
        except RecursionError:
            return _drop(line)
        return line if shown is None else msgspec.json.encode(message | {"result": shown}) + b"\n"

    def _report_answer(self, message: dict[str, Any]) -> None:
        """Report the result of an approved call, if this is its answer."""
        if "id" not in message or "method" in message:
            return
        key = id_key(message["id"])
        if (ticket_id := self._tickets.pop(key, "")) != "":
            result: object = message.get("result")
            is_failed = not isinstance(result, dict) or cast("dict[str, Any]", result).get("isError") is True
            report = asyncio.create_task(self._gate.report(ticket_id, is_failed=is_failed))
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)


async def _send_progress(call: HeldCall) -> None:
    """Report progress of a held call to the client, if it follows that. Many extend their time limit."""
    if call.progress_token is None:
        return
    for number in itertools.count(1):
        _write_client(encode_progress(call.progress_token, number))
        await asyncio.sleep(_PROGRESS_S)


def _read_stdin() -> asyncio.Queue[bytes]:
    """Return a queue of the chunks of standard input, ended by an empty one.

    Standard input may be a pipe, a file or a terminal.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        with contextlib.suppress(RuntimeError, OSError):  # the loop has ended
            while chunk := os.read(sys.stdin.fileno(), CHUNK):
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, name="gateway-stdin", daemon=True).start()
    return queue


def _drop(line: bytes) -> bytes:
    _logger.warning("a line of the server can't be read and is not passed on: %r", line[:200])
    return b""


def _write_client(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
