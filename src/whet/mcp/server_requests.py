"""What an MCP server asks of its host: a ping is answered, all else is refused in words.

Two of the things that a server may ask for are told to the person, once in a connection: questions to them
(elicitation) and the use of their model (sampling).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from whet.contract.errors import ToolError
from whet.rpc import METHOD_NOT_FOUND

_REFUSED = {
    "sampling/createMessage": "this host does not let servers use its model (sampling)",
    "elicitation/create": "this host does not let servers ask its person questions (elicitation)",
    "roots/list": "this host shows servers no folders (roots)",
}
_TOLD = ("sampling/createMessage", "elicitation/create")
_MOST_REPLIES = 32


class ServerRequests:
    """Answers one server's requests. `send` takes a message; `refused` is told the method, once each."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], refused: Callable[[str], None]) -> None:
        self._send = send
        self._refused = refused
        self._told: set[str] = set()
        self._replies: set[asyncio.Task[None]] = set()

    def answer(self, method: str, call_id: object) -> None:
        """Answer a request; a server that asks and does not read gets no more than a few answers."""
        if len(self._replies) < _MOST_REPLIES:
            task = asyncio.create_task(self._reply(method, call_id))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    def refuse(self, methods: Sequence[str]) -> str:
        """Say why none of these is done, and tell the person where they should know."""
        for method in methods:
            if method in _TOLD and method not in self._told:
                self._told.add(method)
                self._refused(method)
        return "; ".join(_REFUSED.get(method, f"it asks for {method[:80]}") for method in methods)

    def cancel(self) -> None:
        """Answer nothing more."""
        for task in self._replies:
            task.cancel()

    async def _reply(self, method: str, call_id: object) -> None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": call_id}
        if method == "ping":
            body["result"] = {}
        else:
            self.refuse([method])
            reason = _REFUSED.get(method, f"this host has no method {method[:80]}")
            body["error"] = {"code": METHOD_NOT_FOUND, "message": reason}
        with contextlib.suppress(ToolError):
            await self._send(msgspec.json.encode(body))
