"""An MCP server over stdio with which an agent can ask for a confirmation and wait for it.

It has no tool that approves, denies or lists other people's requests, and the token that it uses can't
either. It speaks JSON-RPC itself: three methods and two notifications need no framework.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.metadata import version
from typing import Any, cast

import msgspec

from whet.confirm.client import Ask, ConfirmationRefused, ConfirmClient, Failed, Unreachable
from whet.contract.errors import WhetError

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_LONGEST_WAIT_S = 300.0
_LINE_LIMIT = 2 * 1024 * 1024
_TEXT: dict[str, Any] = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "request_confirmation",
        "description": "Ask a person to approve an action before you do it. Returns the request's id and"
        " status; the action may only be done after wait_for_confirmation says approved.",
        "inputSchema": {
            "type": "object",
            "required": ["action", "description"],
            "properties": {
                "action": {**_TEXT, "description": "what kind of action, e.g. deploy_production"},
                "description": {**_TEXT, "description": "what will happen, for a person"},
                "details": {"type": "object", "description": "the exact arguments"},
                "timeout_seconds": {"type": "integer", "description": "30 to 3600, default 300"},
            },
        },
    },
    {
        "name": "wait_for_confirmation",
        "description": "Wait for the decision on a request. Returns its status: pending means wait again;"
        " anything but approved means do not do it.",
        "inputSchema": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": _TEXT,
                "seconds": {"type": "number", "description": "how long to wait, at most 300, default 60"},
            },
        },
    },
]


class BadCall(WhetError):
    """A message that is not what the protocol asks for; `code` is JSON-RPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def serve_stdio(url: str = "") -> None:
    """Answer until stdin ends. Calls run side by side, so that waiting for one does not hold up others."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    async with ConfirmClient(url) as client, asyncio.TaskGroup() as group:
        running: dict[object, asyncio.Task[None]] = {}
        while line := await reader.readline():
            message = _parse(line)
            method, call_id = message.get("method"), message.get("id")
            if method == "notifications/cancelled":
                asked = cast("dict[str, Any]", message.get("params") or {}).get("requestId")
                if task := running.get(asked):
                    task.cancel()
            elif call_id is not None or method is None:
                task = group.create_task(_reply(client, message, out))
                running[call_id] = task
                task.add_done_callback(lambda _done, key=call_id: running.pop(key, None))
        for task in running.values():
            task.cancel()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        read: object = msgspec.json.decode(line)
    except msgspec.DecodeError:
        read = None
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


async def _reply(client: ConfirmClient, message: dict[str, Any], out: Any) -> None:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    try:
        answer["result"] = await answer_call(client, message)
    except BadCall as error:
        answer["error"] = {"code": error.code, "message": error.message}
    out.write(msgspec.json.encode(answer) + b"\n")


async def answer_call(client: ConfirmClient, message: dict[str, Any]) -> dict[str, Any]:
    """Give the result of one JSON-RPC call. Raises BadCall."""
    method = message.get("method")
    given: object = message.get("params") or {}
    params = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "whet-confirm", "version": version("whet")},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        arguments: object = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise BadCall(-32602, "arguments must be an object")
        return await _call(client, str(params.get("name")), cast("dict[str, Any]", arguments))
    raise BadCall(-32601 if method else -32600, f"there is no method {method!r}")


async def _call(client: ConfirmClient, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        if name == "request_confirmation":
            return _told(await _request(client, arguments))
        if name == "wait_for_confirmation":
            return _told(await _wait(client, arguments))
    except (ConfirmationRefused, Failed, Unreachable) as error:
        return _told({"status": "refused", "message": f"{error.message}. Do not do it."}, is_error=True)
    raise BadCall(-32602, f"there is no tool {name!r}")


async def _request(client: ConfirmClient, arguments: dict[str, Any]) -> dict[str, Any]:
    details: object = arguments.get("details") or {}
    seconds: object = arguments.get("timeout_seconds", 300)
    if not isinstance(details, dict) or not isinstance(seconds, int):
        raise BadCall(-32602, "details must be an object and timeout_seconds a whole number")
    action, description = str(arguments.get("action", "")), str(arguments.get("description", ""))
    ask = Ask(requester="mcp", timeout_s=seconds)
    ticket = await client.submit(action, description, cast("dict[str, Any]", details), ask)
    return {"id": ticket.id, "status": ticket.status, "digest": ticket.digest}


async def _wait(client: ConfirmClient, arguments: dict[str, Any]) -> dict[str, Any]:
    seconds = arguments.get("seconds", 60)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadCall(-32602, "seconds must be a number")
    request_id = str(arguments.get("id", ""))
    if not request_id.isalnum():
        raise BadCall(-32602, "id is required")
    record = await client.wait(request_id, max(0.0, min(float(seconds), _LONGEST_WAIT_S)))
    names = ("id", "action", "status", "resolved_by", "reason", "digest", "details")
    return {name: record[name] for name in names if record.get(name) not in (None, "")}


def _told(result: dict[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    text = msgspec.json.encode(result).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": result, "isError": is_error}
