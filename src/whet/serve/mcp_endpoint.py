"""Whet as an MCP server over HTTP: the tools of `app/own_mcp/server.py` at /mcp, for tokens of role owner.

Each POST is one message. A tool call is answered with a stream of progress notifications, comments while it
is silent, and the result. There are no MCP sessions and no stream between calls. If the client disconnects or
cancels, its call is cancelled durably.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app.conversations.hosted import SessionHost
from whet.app.own_mcp.server import OwnMcpServer
from whet.rpc import call_key, parse_cancellation, reply_to
from whet.serve.auth import ApiCaller
from whet.serve.wire import JsonAnswer, Stream

RpcMessage = dict[str, Any]


class McpEndpoint:
    """The endpoint. `beat_s`: how long a stream may be silent."""

    def __init__(self, hosted: SessionHost, beat_s: float) -> None:
        self._server = OwnMcpServer(hosted)
        self._beat_s = beat_s
        self._running: dict[tuple[str, str], asyncio.Task[RpcMessage]] = {}

    async def post(self, request: Request, caller: ApiCaller, message: RpcMessage) -> Response:
        """Handle one JSON-RPC message of MCP."""
        cancelled_key = parse_cancellation(message)
        if cancelled_key is not None and (task := self._running.get((caller.token_id, cancelled_key))):
            task.cancel()
        if message.get("id") is None or message.get("method") is None:
            return Response(status_code=202)
        if message["method"] != "tools/call":
            return JsonAnswer(await reply_to(message, self._server.answer, lambda _name, _facts: None))
        return Stream(lambda gone: self._answer(message, caller.token_id, gone))

    async def _answer(
        self, message: RpcMessage, token_id: str, gone: asyncio.Future[None]
    ) -> AsyncGenerator[bytes]:
        notifications: asyncio.Queue[RpcMessage] = asyncio.Queue()

        def notify(name: str, facts: RpcMessage) -> None:
            notifications.put_nowait({"jsonrpc": "2.0", "method": name, "params": facts})

        key = (token_id, call_key(message["id"]))
        task = asyncio.create_task(reply_to(message, self._server.answer, notify))
        self._running[key] = task
        next_notification = asyncio.create_task(notifications.get())
        try:
            while not task.done():
                await asyncio.wait(
                    {task, next_notification, gone}, timeout=self._beat_s, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if next_notification.done():
                    yield _event(next_notification.result())
                    next_notification = asyncio.create_task(notifications.get())
                elif not task.done():
                    yield b": still at it\n\n"
            if not task.cancelled():
                while not notifications.empty():
                    yield _event(notifications.get_nowait())
                yield _event(task.result())
        finally:
            next_notification.cancel()
            task.cancel()
            await asyncio.wait({task})
            self._running.pop(key, None)


def _event(message: RpcMessage) -> bytes:
    return b"event: message\ndata: " + msgspec.json.encode(message) + b"\n\n"
