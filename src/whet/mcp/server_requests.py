"""What an MCP server asks of its host: a ping is answered, a question to the person put to them, all else is
refused in words.

A question belongs to the call that runs. Where calls of several conversations run at once, it can't be said
whose it is, and it is cancelled. Sampling, the use of the person's model, is refused, and they are told so
once in a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from whet.contract.errors import ToolError
from whet.mcp.elicitation import Ask, elicit
from whet.rpc import METHOD_NOT_FOUND

ELICITATION = "elicitation/create"
ABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}
"""What servers are told that this host can do for them."""
_REFUSED = {
    "sampling/createMessage": "this host does not let servers use its model (sampling)",
    "roots/list": "this host shows servers no folders (roots)",
}
_TOLD = ("sampling/createMessage",)
_MOST_REPLIES = 32
_MOST_QUESTIONS = 5


class CallPerson(msgspec.Struct, frozen=True):
    """The way to the person behind a call; `owner` is the conversation that it belongs to."""

    owner: str
    ask: Ask


class ServerRequests:
    """Answers one server's requests. `send` takes a message; `refused` is told the method, once each."""

    def __init__(
        self, server: str, send: Callable[[bytes], Awaitable[None]], refused: Callable[[str], None]
    ) -> None:
        self._server = server
        self._send = send
        self._refused = refused
        self._told: set[str] = set()
        self._replies: set[asyncio.Task[None]] = set()
        self._askers: list[CallPerson] = []
        self._questions = 0
        self._asking = asyncio.Lock()

    @contextmanager
    def during(self, asker: CallPerson | None) -> Generator[None]:
        """Let a call's person be asked while it runs."""
        if asker is None:
            yield
            return
        if not self._askers:
            self._questions = 0
        self._askers.append(asker)
        try:
            yield
        finally:
            self._askers.remove(asker)

    def answer(self, method: str, call_id: object, params: Mapping[str, Any]) -> None:
        """Answer a request; a server that asks and does not read gets no more than a few answers."""
        if len(self._replies) < _MOST_REPLIES:
            task = asyncio.create_task(self._reply(method, call_id, params))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    async def elicited(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Put a question to the person whose call runs, one after another; gives what the server is told."""
        async with self._asking:
            owners = {asker.owner for asker in self._askers}
            self._questions += 1
            if len(owners) == 1 and self._questions <= _MOST_QUESTIONS:
                said = await elicit(self._server, params, self._askers[-1].ask)
            else:
                said = {"action": "cancel"}
        if said["action"] == "cancel":
            self._tell(ELICITATION)
        return said

    def refuse(self, methods: Sequence[str]) -> str:
        """Say why none of these is done, and tell the person where they should know."""
        for method in methods:
            if method in _TOLD:
                self._tell(method)
        return "; ".join(_REFUSED.get(method, f"it asks for {method[:80]}") for method in methods)

    def cancel(self) -> None:
        """Answer nothing more."""
        for task in self._replies:
            task.cancel()

    def _tell(self, method: str) -> None:
        if method not in self._told:
            self._told.add(method)
            self._refused(method)

    async def _reply(self, method: str, call_id: object, params: Mapping[str, Any]) -> None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": call_id}
        if method == "ping":
            body["result"] = {}
        elif method == ELICITATION:
            body["result"] = await self.elicited(params)
        else:
            self.refuse([method])
            reason = _REFUSED.get(method, f"this host has no method {method[:80]}")
            body["error"] = {"code": METHOD_NOT_FOUND, "message": reason}
        with contextlib.suppress(ToolError):
            await self._send(msgspec.json.encode(body))
