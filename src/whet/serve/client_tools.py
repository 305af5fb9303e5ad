"""Tools of the client program: the model calls them, and the program runs them.

A call waits here while the response with the call is sent. The program's next request brings the result, and
the same turn continues. After a restart the call is made again and takes the result that has arrived.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import msgspec

from whet.contract.answers import find_schema_fault
from whet.contract.errors import ToolError
from whet.contract.messages import ImagePart, ToolCall
from whet.contract.tools import TOOL_NAME, Tool, ToolContext, ToolOutput, ToolSpec
from whet.serve.wire import ApiError

TOOLSET = "client"
_MAX_TOOLS = 256
_LEFT_OUT = ("web_search", "web_fetch", "tool_search")
_CALL_ID = re.compile(r"call_([0-9A-Za-z]{16})_[0-9a-f]{12}")


class CallResult(msgspec.Struct, frozen=True):
    """The program's result of a call."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()


class HandedOver(msgspec.Struct, frozen=True):
    """The calls that the program must run before the turn continues. They end the response."""

    calls: tuple[ToolCall, ...]


def spec_of(name: object, description: object, parameters: object, location: str) -> ToolSpec:
    """Read one tool of a program. Raises ApiError that names the field."""
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise ApiError(
            400, "a tool needs a name of at most 64 letters, digits, _ and -", param=f"{location}.name"
        )
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise ApiError(400, "a tool's schema must be an object", param=f"{location}.parameters")
    if parameters.get("type", "object") != "object":  # pyright: ignore[reportUnknownMemberType]
        raise ApiError(400, "a tool's schema must be of type object", param=f"{location}.parameters.type")
    schema = cast("dict[str, Any]", parameters)
    if problem := find_schema_fault(schema):
        raise ApiError(400, f"this is not a JSON Schema: {problem}", param=f"{location}.parameters")
    return ToolSpec(name, description if isinstance(description, str) else "", schema)


def ignore_hosted_tool(kind: object, location: str) -> None:
    """Accept a tool that the vendor runs if it can be left out: web search, because the agent has its own,
    and tool search, because a session's tools are fixed. Raises ApiError for other types."""
    if not str(kind).startswith(_LEFT_OUT):
        message = f"tools of type {str(kind)[:40]!r} are run by their vendor; this agent has tools of its own"
        raise ApiError(400, message, param=location, code="unsupported_value")


def check_tools(specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools of a request. Raises ApiError if there are too many or two have the same name."""
    if len(specs) > _MAX_TOOLS:
        raise ApiError(400, f"more than {_MAX_TOOLS} tools", param="tools")
    if len({spec.name for spec in specs}) != len(specs):
        raise ApiError(400, "two tools have the same name", param="tools")
    return tuple(specs)


def public_id(context: ToolContext) -> str:
    """Return the call's id for the program. It contains the session's id and stays the same after a
    restart."""
    return client_call_id(context.session_id, context.turn_id, context.call_id)


def client_call_id(session_id: str, turn_id: str, call_id: str) -> str:
    """Return the id for the program of the call `call_id` in a session's turn."""
    digest = hashlib.sha256(f"{turn_id}\0{call_id}".encode("utf-8", "replace")).hexdigest()
    return f"call_{session_id}_{digest[:12]}"


def session_of_call(call_id: str) -> str:
    """Return the session id in a call id, or an empty string if the id is not one of ours."""
    match = _CALL_ID.fullmatch(call_id)
    return match[1] if match else ""


class ClientTools:
    """The tools that programs offer now, and their waiting calls.

    `on_call(session_id)` is called when a call begins to wait.
    """

    def __init__(self) -> None:
        self.on_call: Callable[[str], None] = lambda session_id: None
        self._offers: dict[str, dict[str, ToolSpec]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, dict[str, tuple[ToolCall, asyncio.Future[ToolOutput]]]] = {}
        self._early: dict[str, ToolOutput] = {}

    def offer(self, session_id: str, specs: Sequence[ToolSpec], *, one_by_one: bool = False) -> None:
        """Store the tools of the program whose turn is about to run in the session.

        `one_by_one`: each call of a step is handed over only after the result of the previous one.
        """
        self._offers[session_id] = {spec.name: spec for spec in specs}
        if one_by_one:
            self._locks.setdefault(session_id, asyncio.Lock())

    def withdraw(self, session_id: str) -> None:
        """Forget the tools and early results of a session."""
        self._offers.pop(session_id, None)
        self._locks.pop(session_id, None)
        for call_id in [call_id for call_id in self._early if session_of_call(call_id) == session_id]:
            del self._early[call_id]

    def tools_for(self, session_id: str) -> tuple[Tool, ...]:
        """Return the offered tools for a session that is being opened."""
        return self.tools(tuple(self._offers.get(session_id, {}).values()))

    def tools(self, specs: Sequence[ToolSpec]) -> tuple[Tool, ...]:
        """Return tools that hand their calls to the program."""
        # Their effect is "read", because the program itself asks for the calls and runs them.
        return tuple(
            Tool(
                spec,
                TOOLSET,
                frozenset(("read",)),
                self._handler(spec.name),
                parallel=True,
                repeatable=True,
                timeout_s=None,
                tags=frozenset(("untrusted",)),
            )
            for spec in specs
        )

    def waiting_calls(self, session_id: str) -> tuple[ToolCall, ...]:
        """Return the calls of a session that wait for results."""
        entries = self._waiting.get(session_id, {}).values()
        return tuple(call for call, future in entries if not future.done())

    def deliver(self, session_id: str, results: Sequence[CallResult]) -> bool:
        """Deliver results. Returns whether calls were waiting.

        A waiting call without a result ends as cancelled, because the program has continued without it.
        """
        waiting = self._waiting.get(session_id, {})
        outputs = {result.call_id: _output(result) for result in results}
        if not waiting:
            self._early |= {
                id_: output for id_, output in outputs.items() if session_of_call(id_) == session_id
            }
            return False
        for call_id, (_, future) in list(waiting.items()):
            missing = ToolOutput("The program gave no result for this call.", error_kind="cancelled")
            if not future.done():
                future.set_result(outputs.get(call_id, missing))
        return True

    def _handler(self, name: str) -> Callable[[ToolContext, dict[str, Any]], Any]:
        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            call_id = public_id(context)
            if (early := self._early.pop(call_id, None)) is not None:
                return early
            if name not in self._offers.get(context.session_id, {}):
                raise ToolError(f"{name} belongs to a program that is not there now; nothing was run")
            call = ToolCall(call_id, name, msgspec.json.encode(arguments).decode())
            with context.paused():
                async with self._locks.get(context.session_id) or nullcontext():
                    return await self._wait_for_result(context.session_id, call)

        return run

    async def _wait_for_result(self, session_id: str, call: ToolCall) -> ToolOutput:
        """Hand a call to the program and wait for its result."""
        future: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        calls = self._waiting.setdefault(session_id, {})
        calls[call.id] = (call, future)
        self.on_call(session_id)
        try:
            return await future
        finally:
            calls.pop(call.id, None)
            if not calls:
                self._waiting.pop(session_id, None)


def _output(result: CallResult) -> ToolOutput:
    kind = "failed" if result.is_error else ""
    return ToolOutput(result.text, kind, images=result.images, origin="brought")
