"""Serve JSON-RPC on standard input and output as MCP hosts speak it: one message a line, calls concurrent.

While serving, standard output belongs to the protocol, and other output goes to standard error. The MCP
client uses the versions, the error codes and the parser of messages, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import sys
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, BinaryIO, cast

import msgspec

from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, as_object, from_foreign_json

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The supported MCP versions, newest first."""
STATELESS_VERSION = "2026-07-28"
"""The version without a handshake; our client speaks it with servers that refuse one."""
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32600, -32601, -32602, -32603
RESOURCE_NOT_FOUND = -32002
_MESSAGE_START = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error|method|params)"')
_MAX_STARTS = 8
_LINE_LIMIT = 2 * 1024 * 1024
_STUCK_S = 30.0
_GRACE_S = 1.0


class BadCall(WhetError):
    """A message that violates the protocol. `code` is the JSON-RPC error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


Notify = Callable[[str, dict[str, Any]], None]
"""Sends the client a notification while a call runs."""


class RpcCall(msgspec.Struct, frozen=True):
    """One call of a client."""

    method: str
    params: dict[str, Any]
    notify: Notify

    @property
    def tool(self) -> tuple[str, dict[str, Any]]:
        """The name and arguments of a tools/call. Raises BadCall."""
        arguments: object = self.params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise BadCall(INVALID_PARAMS, "arguments must be an object")
        return str(self.params.get("name")), cast("dict[str, Any]", arguments)


Answer = Callable[[RpcCall], Awaitable[dict[str, Any]]]
"""Returns the result of a call. Raises BadCall for a bad call, and WhetError if the work failed."""


def read_message(line: bytes) -> dict[str, Any] | None:
    """Return the message of a line, with replacement characters for invalid UTF-8 and lone surrogates, or
    None if it is not a message."""
    try:
        value: object = from_foreign_json(line.decode("utf-8", "replace"), object)
    except NOT_JSON:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def find_message(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line that also holds other output, such as a progress bar, or None.

    A call with an id counts only after a carriage return: elsewhere it may be the log of a call that the
    other side received.
    """
    after_return = line.rstrip().rpartition(b"\r")[2]
    if (message := read_message(after_return)) is not None and "jsonrpc" in message:
        return message
    end = line.rfind(b"}") + 1
    for start in islice(_MESSAGE_START.finditer(line), _MAX_STARTS):
        message = read_message(line[start.start() : end])
        if message is not None and "jsonrpc" in message:
            return None if "method" in message and "id" in message else message
    return None


def answer_initialize(params: dict[str, Any], name: str, *capabilities: str) -> dict[str, Any]:
    """Answer `initialize` for a server with tools and these further capabilities."""
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms, and only a server needs it

    requested = params.get("protocolVersion")
    return {
        "protocolVersion": requested if requested in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}, **{capability: {} for capability in capabilities}},
        "serverInfo": {"name": name, "version": version("whet-agent")},
    }


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool result that is text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


async def serve_stdio(answer: Answer) -> None:
    """Answer calls until stdin ends, then cancel those that still run after another second. A call that the
    client cancels gets no answer."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        async with asyncio.TaskGroup() as group:
            running: dict[str, asyncio.Task[None]] = {}
            while (line := await _read_line(reader)) is not None:
                _handle_line(line, answer, out, group, running)
            if running:
                await asyncio.wait([*running.values()], timeout=_GRACE_S)
            for task in running.values():
                task.cancel()
    finally:
        pipe.close()
        out.close()


async def _read_line(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next line, an empty one if it is too long, or None at the end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial or None
    except asyncio.LimitOverrunError as error:
        await reader.readexactly(max(1, error.consumed))
        return b""


def _handle_line(
    line: bytes,
    answer: Answer,
    out: BinaryIO,
    group: asyncio.TaskGroup,
    running: dict[str, asyncio.Task[None]],
) -> None:
    if not line.strip():
        return
    message = read_message(line) or {}
    call_id = message.get("id")
    if (cancelled_key := parse_cancellation(message)) is not None:
        if task := running.get(cancelled_key):
            task.cancel()
    elif call_id is not None or message.get("method") is None:
        key = call_key(call_id)
        if call_id is not None and key in running:  # otherwise the first call could no longer be cancelled
            error = {"code": INVALID_REQUEST, "message": "a call with this id is under way"}
            return _write(out, {"jsonrpc": "2.0", "id": call_id, "error": error})
        running[key] = task = group.create_task(_answer_call(out, message, answer))
        task.add_done_callback(lambda _done: running.pop(key, None))


async def reply_to(message: dict[str, Any], answer: Answer, notify: Notify) -> dict[str, Any]:
    """Return the reply to a call, which is an error if the message has no method."""
    method, params = str(message.get("method") or ""), as_object(message.get("params"))
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    try:
        if not method:
            raise BadCall(INVALID_REQUEST, "this is not a JSON-RPC call")
        reply["result"] = {} if method == "ping" else await answer(RpcCall(method, params, notify))
    except BadCall as error:
        reply["error"] = {"code": error.code, "message": error.message}
    except WhetError as error:
        reply["error"] = {"code": INTERNAL, "message": error.message}
    return reply


def parse_cancellation(message: dict[str, Any]) -> str | None:
    """Return the key of the call that a message cancels, or None for any other message."""
    params = message.get("params")
    if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
        return None
    return call_key(cast("dict[str, Any]", params).get("requestId"))


def call_key(call_id: object) -> str:
    """Return a key for a call's id. The ids 1 and "1" have different keys."""
    return repr(call_id)


async def _answer_call(out: BinaryIO, message: dict[str, Any], answer: Answer) -> None:
    def notify(method: str, params: dict[str, Any]) -> None:
        _write(out, {"jsonrpc": "2.0", "method": method, "params": params})

    _write(out, await reply_to(message, answer, notify))


def _write(out: BinaryIO, message: dict[str, Any]) -> None:
    """Write a message as one line. Stops if the client has exited or reads nothing for half a minute."""
    remaining = memoryview(msgspec.json.encode(message) + b"\n")
    with contextlib.suppress(OSError):
        while remaining:
            written = out.write(remaining)  # None if the pipe is full and non-blocking, as stdin's may be
            remaining = remaining[written or 0 :]
            if not written and not select.select([], [out], [], _STUCK_S)[1]:
                return
