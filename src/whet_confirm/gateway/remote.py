"""An MCP server over streamable HTTP: each message is a POST, answered with JSON or with a stream of events.

Redirects are not followed, so that headers reach no other host. Headers are sent only over https or to this
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from whet.config.key_hosts import is_loopback
from whet.contract.errors import ConfigError
from whet.rpc import read_message
from whet.trust import create_trusted_context
from whet_confirm.gateway.program import GRACE_S, MAX_LINE, split_lines

_EVENTS = "text/event-stream"
_TIMEOUT = httpx2.Timeout(30.0, read=None)  # a tool may work for as long as its client waits
_RETRY_S = 1.0


class RemoteServer:
    """One session with a server at a URL. `headers` are sent with every request."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {
            "accept": f"application/json, {_EVENTS}",
            "content-type": "application/json",
            **headers,
        }
        self._has_headers = bool(headers)
        self._received = asyncio.Queue[bytes]()
        self._posts: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._http = httpx2.AsyncClient(
            timeout=_TIMEOUT, verify=create_trusted_context(), trust_env=not is_loopback(url)
        )

    async def start(self) -> None:
        """Check the address; nothing is sent yet. Raises ConfigError."""
        parts = urlsplit(self._url)
        if not parts.hostname:
            raise ConfigError(f"{self._url[:200]!r} is not the address of an MCP server")
        if self._has_headers and parts.scheme != "https" and not is_loopback(self._url):
            raise ConfigError("headers are sent only over https", hint="name the server's https address")

    async def send(self, line: bytes) -> None:
        """Post a message.

        Requests run beside others; `initialize` and notifications end before the next message is sent.
        """
        message = read_message(line) or {}
        post = asyncio.create_task(self._post(line, message))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)
        if message.get("method") == "initialize" or not _is_request(message):
            await asyncio.wait((post,))
        if message.get("method") == "notifications/initialized" and self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the server's messages, one a line."""
        while line := await self._received.get():
            yield line

    def end_input(self) -> None:
        """End the lines once every request is answered."""
        if self._listening is not None:
            self._listening.cancel()

        async def end() -> None:
            if self._posts:
                await asyncio.wait(self._posts, timeout=GRACE_S)
            self._received.put_nowait(b"")

        self._ending = asyncio.create_task(end())

    async def finish(self) -> int:
        """End the session at the server, as far as it can be reached."""
        with contextlib.suppress(httpx2.HTTPError, OSError):
            if "mcp-session-id" in self._headers:
                await self._http.delete(self._url, headers=self._headers, timeout=GRACE_S)
        return 0

    async def stop(self) -> None:
        """Close all connections."""
        for task in (*self._posts, *((self._listening,) if self._listening is not None else ())):
            task.cancel()
        await self._http.aclose()

    async def _post(self, line: bytes, message: dict[str, Any]) -> None:
        request_id = message.get("id") if _is_request(message) else None
        try:
            request = self._http.stream("POST", self._url, content=line.strip(), headers=self._headers)
            async with request as response:
                if message.get("method") == "initialize" and "mcp-session-id" in response.headers:
                    self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
                if not _is_request(message):
                    return  # the answer has no message
                async for text in self._read(response):
                    self._receive(text, message)
                    if request_id is not None and _is_answer(text, request_id):
                        request_id = None
                problem = f"the server answered HTTP {response.status_code} and no result"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ConfigError) as error:
            problem = f"the MCP server can't be reached ({type(error).__name__})"
        if request_id is not None:
            error_body = {"code": -32000, "message": f"{problem}; whether the call has run is unknown"}
            answer = {"jsonrpc": "2.0", "id": request_id, "error": error_body}
            self._received.put_nowait(msgspec.json.encode(answer) + b"\n")

    async def _listen(self) -> None:
        """Read what the server sends between calls; a server without such a stream answers 405."""
        headers = self._headers | {"accept": _EVENTS}
        while True:
            with contextlib.suppress(httpx2.HTTPError, OSError, ConfigError):
                async with self._http.stream("GET", self._url, headers=headers) as response:
                    if response.status_code >= 400:
                        return
                    async for text in self._read(response):
                        self._receive(text, {})
            await asyncio.sleep(_RETRY_S)

    async def _read(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield each message of an answer as it came. Raises ConfigError for an endless one."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        chunks = response.aiter_bytes()
        lines = split_lines(lambda: anext(chunks, b""))
        data: list[bytes] = []
        async for line in lines:
            text = line.rstrip(b"\r\n")
            if kind != _EVENTS:
                data.append(text)
            elif text.startswith(b"data:"):
                data.append(text.removeprefix(b"data:"))
            elif not text and data:
                yield b" ".join(data).strip()
                data = []
            if sum(map(len, data)) > MAX_LINE:
                raise ConfigError(f"a message is longer than {MAX_LINE:,} bytes")
        if data and kind in (_EVENTS, "application/json"):
            yield b" ".join(data).strip()

    def _receive(self, text: bytes, request: dict[str, Any]) -> None:
        """Queue a message for `lines`. The answer to `initialize` also sets the protocol version to send."""
        if not text:
            return
        if request.get("method") == "initialize":
            result: object = (read_message(text) or {}).get("result")
            version = (
                cast("dict[str, Any]", result).get("protocolVersion") if isinstance(result, dict) else None
            )
            if isinstance(version, str) and version.isprintable() and version.isascii():
                self._headers["mcp-protocol-version"] = version
        self._received.put_nowait(text + b"\n")


def _is_request(message: dict[str, Any]) -> bool:
    return "id" in message and "method" in message


def _is_answer(text: bytes, request_id: object) -> bool:
    message = read_message(text) or {}
    return "method" not in message and message.get("id") == request_id
