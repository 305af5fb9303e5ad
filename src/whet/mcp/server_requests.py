"""Answer an MCP server's own requests: pings are answered, questions are put to the person, and all other
requests are refused with a reason.

A question belongs to the running call. If calls of several conversations run at once, its owner is unknown
and the question is cancelled. If a server wants to use the person's model (sampling), the person is notified
once per connection.
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
"""The abilities of this host, as announced to servers."""
_REFUSED = {
    "sampling/createMessage": "this host does not let servers use its model (sampling)",
    "roots/list": "this host shows servers no folders (roots)",
}
_REPORTED_METHODS = ("sampling/createMessage",)
_MAX_REPLIES = 32
_MAX_QUESTIONS = 5


class CallPerson(msgspec.Struct, frozen=True):
    """The person behind a call; `owner` is the conversation that the call belongs to."""

    owner: str
    ask: Ask


class ServerRequests:
    """Answers one server's requests. `send` sends a message. `refused` is called once for each refused method
    that concerns the person."""

    def __init__(
        self, server: str, send: Callable[[bytes], Awaitable[None]], refused: Callable[[str], None]
    ) -> None:
        self._server = server
        self._send = send
        self._refused = refused
        self._reported: set[str] = set()
        self._replies: set[asyncio.Task[None]] = set()
        self._askers: list[CallPerson] = []
        self._questions = 0
        self._ask_lock = asyncio.Lock()

    @contextmanager
    def during(self, asker: CallPerson | None) -> Generator[None]:
        """Allow questions to a call's person while the call runs."""
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
        """Answer a request in a task. Ignores requests of a server that does not read the answers."""
        if len(self._replies) < _MAX_REPLIES:
            task = asyncio.create_task(self._reply(method, call_id, params))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    async def ask_person(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the person of the running call, one question at a time. Returns the answer for the server."""
        async with self._ask_lock:
            owners = {asker.owner for asker in self._askers}
            self._questions += 1
            if len(owners) == 1 and self._questions <= _MAX_QUESTIONS:
                response = await elicit(self._server, params, self._askers[-1].ask)
            else:
                response = {"action": "cancel"}
        if response["action"] == "cancel":
            self._report_refusal(ELICITATION)
        return response

    def refuse(self, methods: Sequence[str]) -> str:
        """Return why these methods are refused. Notifies the person about those that concern them."""
        for method in methods:
            if method in _REPORTED_METHODS:
                self._report_refusal(method)
        return "; ".join(_REFUSED.get(method, f"it asks for {method[:80]}") for method in methods)

    def cancel(self) -> None:
        """Stop answering."""
        for task in self._replies:
            task.cancel()

    def _report_refusal(self, method: str) -> None:
        if method not in self._reported:
            self._reported.add(method)
            self._refused(method)

    async def _reply(self, method: str, call_id: object, params: Mapping[str, Any]) -> None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": call_id}
        if method == "ping":
            body["result"] = {}
        elif method == ELICITATION:
            body["result"] = await self.ask_person(params)
        else:
            self.refuse([method])
            reason = _REFUSED.get(method, f"this host has no method {method[:80]}")
            body["error"] = {"code": METHOD_NOT_FOUND, "message": reason}
        with contextlib.suppress(ToolError):
            await self._send(msgspec.json.encode(body))
