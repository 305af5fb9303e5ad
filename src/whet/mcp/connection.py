"""JSON-RPC with one MCP server: calls and answers, the handshake, and the server's notifications.

Transports carry the messages; `server_requests.py` answers the server's own requests.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec

from whet.contract.errors import ToolError, ToolTimeout
from whet.contract.texts import as_object
from whet.mcp.server_requests import ABILITIES, ELICITATION, CallPerson, ServerRequests
from whet.mcp.transport import VERSION_HEADER, ServerFailed, Transport
from whet.rpc import STATELESS_VERSION, VERSIONS

log: logging.Logger = logging.getLogger("whet.mcp")
_MAX_PAGES = 50
MAX_LISTED = 2_000
_MAX_LISTED_BYTES = 4_000_000
_CANCEL_NOTICE_S = 2.0
_LISTEN_PAUSE_S = 5.0
_MAX_ROUNDS = 8
_OPTIONAL_LISTS = ("resources", "prompts")
_CHANGES = tuple(f"notifications/{part}/list_changed" for part in ("tools", *_OPTIONAL_LISTS))
Progress = Callable[[dict[str, Any]], None]
"""Receives a server's progress notifications of a call."""


class RpcFailed(ToolError):
    """The server answered a call with an error; `code` is JSON-RPC's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ConnectionListener(msgspec.Struct, frozen=True):
    """Callbacks: `changed` when the server's lists changed, `refused` when a request of its own was refused,
    `gone` when it ended."""

    changed: Callable[[], None]
    refused: Callable[[str], None]
    gone: Callable[[ToolError], None]


class Connection:
    """One conversation with a server, from `open` to `aclose`."""

    def __init__(self, name: str, transport: Transport, listener: ConnectionListener) -> None:
        self.name = name
        self.transport = transport
        self.server_info: dict[str, Any] = {}
        self.version: str = ""
        self.offers: tuple[str, ...] = ()
        """The lists that the server offers besides tools: "resources", "prompts"."""
        self.failure: ToolError | None = None
        self._listener = listener
        self._next_id = 0
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._progress: dict[int, Progress] = {}
        self._subscription_task: asyncio.Task[None] | None = None
        self._server_requests = ServerRequests(
            name, lambda message: transport.send(message, None), listener.refused
        )
        self._is_closed = False

    async def open(self) -> None:
        """Start the transport and perform the handshake. Raises ServerFailed."""
        await self.transport.start(self._take_message, self._handle_dropped, self._handle_end)
        hello = {"protocolVersion": VERSIONS[0], "capabilities": ABILITIES, "clientInfo": _client()}
        try:
            answer = await self.request("initialize", hello)
        except RpcFailed as error:
            return await self._discover(error)
        version = str(answer.get("protocolVersion"))
        self.version = _check_version(self.name, version)
        self.server_info = _read_object(answer, "serverInfo")
        self._take_capabilities(answer)
        await self.notify("notifications/initialized", {})
        self.transport.listen()

    async def _discover(self, refusal: RpcFailed) -> None:
        """Begin with the newer protocol, which has no handshake. Tried after any refusal of the handshake.
        Raises ServerFailed."""
        self.version = STATELESS_VERSION
        try:
            answer = await self.request("server/discover", {})
        except RpcFailed as error:
            problem = f"the MCP server {self.name} refused the handshake: {refusal.message}"
            raise ServerFailed(problem) from error
        versions: object = answer.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS_VERSION not in cast("list[object]", versions):
            raise ServerFailed(
                f"the MCP server {self.name} speaks none of the protocol versions that are known here"
                f" ({', '.join((STATELESS_VERSION, *VERSIONS))})",
                hint="update the server or Whet",
            )
        self.server_info = _read_object(_read_object(answer, "_meta"), "io.modelcontextprotocol/serverInfo")
        if self._take_capabilities(answer).get("listChanged") is True:
            self._subscription_task = asyncio.create_task(self._subscribe())

    def _take_capabilities(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Record the server's capabilities and return those about tools."""
        capabilities = _read_object(answer, "capabilities")
        self.offers = tuple(part for part in _OPTIONAL_LISTS if isinstance(capabilities.get(part), dict))
        return _read_object(capabilities, "tools")

    async def _subscribe(self) -> None:
        """Subscribe to changes of the server's lists. The newer protocol has a call for it that never
        ends."""
        names = ("tools", *self.offers)
        subscription = {"notifications": {f"{name}ListChanged": True for name in names}}
        while self.failure is None:
            try:
                await self.request("subscriptions/listen", subscription)
            except RpcFailed:
                return
            except ToolError as error:
                log.info("the MCP server %s: %s", self.name, error.message)
            await asyncio.sleep(_LISTEN_PAUSE_S)

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        progress: Progress | None = None,
        asker: CallPerson | None = None,
    ) -> dict[str, Any]:
        """Call a method and return its result. The server may ask `asker` questions meanwhile.

        Raises RpcFailed, ServerFailed, and ToolError if the server wants input that it does not get. If the
        call is cancelled, the server is notified.
        """
        with self._server_requests.during(asker):
            answers: dict[str, Any] = {}
            for _ in range(_MAX_ROUNDS):
                result = await self._send_call(method, {**params, **answers}, progress)
                if result.get("resultType") != "input_required":
                    return result
                answers = await self._collect_input(result, asker)
        raise ToolError(f"the MCP server {self.name} can't go on: it wants ever more input")

    async def _collect_input(self, result: dict[str, Any], asker: CallPerson | None) -> dict[str, Any]:
        """Collect the input that a server of the newer protocol asks for. Raises ToolError."""
        requests = {key: as_object(request) for key, request in _read_object(result, "inputRequests").items()}
        refused = [
            str(request.get("method"))
            for request in requests.values()
            if request.get("method") != ELICITATION or asker is None
        ]
        if refused or not (requests or result.get("requestState")):
            reasons = self._server_requests.refuse(refused)
            raise ToolError(f"the MCP server {self.name} can't go on: {reasons or 'it wants more input'}")
        responses = {
            key: await self._server_requests.ask_person(_read_object(request, "params"))
            for key, request in requests.items()
        }
        if any(request["action"] == "cancel" for request in responses.values()):
            raise ToolError(f"the MCP server {self.name} can't go on: its question got no answer")
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": responses, **state}

    async def _send_call(
        self, method: str, params: dict[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        self._next_id += 1
        call_id = self._next_id
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = answer
        if progress is not None:
            self._progress[call_id] = progress
            params = {**params, "_meta": {"progressToken": call_id}}
        body = _encode_message(self.version, {"id": call_id, "method": method}, params)
        try:
            await self.transport.send(body, answer, _build_headers(self.version, method, params))
            return _unwrap_result(self.name, await answer)
        except asyncio.CancelledError:
            if method != "initialize" and not self._is_closed:
                await self._notify_cancelled(call_id)
            raise
        finally:
            self._pending.pop(call_id, None)
            self._progress.pop(call_id, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # otherwise asyncio reports an exception that was never retrieved

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification. Raises ServerFailed."""
        body = _encode_message(self.version, {"method": method}, params)
        await self.transport.send(body, None, _build_headers(self.version, method, params))

    async def list_all(self, method: str, key: str) -> list[object]:
        """Return all pages of the server's list under `key`. Cuts it after 2,000 items or 4 MB. Raises
        RpcFailed, ServerFailed, ToolError."""
        collected: list[object] = []
        cursors: set[str] = set()
        cursor = ""
        size_bytes = 0
        for _ in range(_MAX_PAGES):
            page = await self.request(method, {"cursor": cursor} if cursor else {})
            rows: object = page.get(key)
            if not isinstance(rows, list):
                raise ServerFailed(f"the MCP server {self.name} answered {method} without a list of {key}")
            for row in cast("list[object]", rows):
                size_bytes += len(msgspec.json.encode(row))
                if size_bytes > _MAX_LISTED_BYTES or len(collected) >= MAX_LISTED:
                    log.warning("the MCP server %s lists more %s than are read", self.name, key)
                    return collected
                collected.append(row)
            cursor = str(page.get("nextCursor") or "")
            if not cursor or cursor in cursors:
                break
            cursors.add(cursor)
        return collected

    async def wait_for_pending(self, timeout_s: float) -> None:
        """Wait for pending calls, up to `timeout_s`."""
        if self._pending:
            await asyncio.wait(tuple(self._pending.values()), timeout=timeout_s)

    async def is_alive(self, timeout_s: float) -> bool:
        """Return whether the server answers a ping in time. An error counts as an answer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.request("ping", {})
        except RpcFailed:
            return True
        except (TimeoutError, ToolError):
            return False
        return True

    async def aclose(self) -> None:
        """End the conversation and release the server."""
        self._is_closed = True
        self._server_requests.cancel()
        if self._subscription_task is not None:
            self._subscription_task.cancel()
        self._fail(ServerFailed(f"the connection to the MCP server {self.name} was closed"))
        await self.transport.aclose()

    async def _notify_cancelled(self, call_id: int) -> None:
        with contextlib.suppress(TimeoutError, ToolError):
            async with asyncio.timeout(_CANCEL_NOTICE_S):
                params = {"requestId": call_id, "reason": "cancelled"}
                await asyncio.shield(_start_unwatched(self.notify("notifications/cancelled", params)))

    def _take_message(self, message: dict[str, Any]) -> None:
        """Complete the call that an answer belongs to, answer a request, or handle a notification."""
        method, call_id = message.get("method"), message.get("id")
        if method is None:
            answer = self._pending.get(call_id) if isinstance(call_id, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message)
            return
        if call_id is not None:
            self._server_requests.answer(str(method), call_id, _read_object(message, "params"))
        elif method in _CHANGES:
            self._listener.changed()
        elif method == "notifications/progress":
            params = _read_object(message, "params")
            token = params.get("progressToken")
            if isinstance(token, int) and (progress := self._progress.get(token)):
                progress(params)

    def _handle_dropped(self, description: str) -> None:
        """Fail all pending calls, because a message that was too large to read may answer any of them."""
        self._fail_pending(ToolError(f"the MCP server {self.name} sent {description}"))

    def _handle_end(self, failure: ToolError) -> None:
        self._fail(failure)
        if not self._is_closed:
            self._listener.gone(failure)

    def _fail(self, failure: ToolError) -> None:
        if self.failure is None:
            self.failure = failure
        self._fail_pending(self.failure)

    def _fail_pending(self, failure: ToolError) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(failure)


def _encode_message(version: str, head: dict[str, object], params: dict[str, Any]) -> bytes:
    """Encode a call or notification, with the metadata that the newer protocol requires."""
    if version == STATELESS_VERSION:
        facts = {"protocolVersion": version, "clientInfo": _client(), "clientCapabilities": ABILITIES}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in facts.items()}
        params = {**params, "_meta": {**_read_object(params, "_meta"), **meta}}
    return msgspec.json.encode({"jsonrpc": "2.0", **head, "params": params})


def _build_headers(version: str, method: str, params: dict[str, Any]) -> dict[str, str]:
    """Return the HTTP headers of a call, or none if the version is not agreed yet."""
    if not version:
        return {}
    headers = {VERSION_HEADER: version}
    if version == STATELESS_VERSION:
        headers["mcp-method"] = method
        if isinstance(name := params.get("name"), str):
            headers["mcp-name"] = _header_value(name)
    return headers


def _check_version(server: str, version: str) -> str:
    """Return the protocol version that a server has chosen. Raises ServerFailed if it is unknown."""
    if version not in VERSIONS:
        raise ServerFailed(
            f"the MCP server {server} speaks protocol version {version[:40]!r},"
            f" which is not known here (known: {', '.join(VERSIONS)})",
            hint="update the server or Whet",
        )
    return version


def _unwrap_result(server: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return the result of an answer. Raises RpcFailed if it is an error, and ServerFailed if it has no
    result."""
    error: object = message.get("error")
    if error is not None:
        details = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
        code = details.get("code")
        text = str(details.get("message") or "no reason given")[:2_000]
        raise RpcFailed(text, code if isinstance(code, int) else 0)
    result: object = message.get("result")
    if not isinstance(result, dict):
        raise ServerFailed(f"the MCP server {server} answered with {type(result).__name__}, no object")
    return cast("dict[str, Any]", result)


def _client() -> dict[str, str]:
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms, and only a handshake needs it

    return {"name": "whet", "version": version("whet-agent")}


def _read_object(value: dict[str, Any], name: str) -> dict[str, Any]:
    return as_object(value.get(name))


def _header_value(text: str) -> str:
    """Encode a text for a header: printable ASCII unchanged, other text in base64."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _start_unwatched(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task whose failure asyncio does not report, because nobody may be waiting for it any more."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


def timeout_error(name: str, action: str, limit_s: float) -> ToolTimeout:
    """Return the error for a server that did not answer in time."""
    return ToolTimeout(f"the MCP server {name} did not {action} within {limit_s:g} s")
