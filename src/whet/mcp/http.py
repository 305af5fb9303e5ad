"""Connect to an MCP server over streamable HTTP: each message is a POST, answered with JSON or an event
stream.

Redirects are not followed, so headers never reach another host. Headers with keys are sent only encrypted
or to this machine. `streams.py` reads the streams. Loaded with the first server that has a url.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2

from whet.config.key_hosts import is_loopback
from whet.contract.errors import WireError
from whet.contract.texts import NOT_JSON, from_foreign_json
from whet.log import mask
from whet.mcp.login import Login
from whet.mcp.remote import RemoteParts
from whet.mcp.streams import EVENTS, Streams
from whet.mcp.transport import (
    MAX_MESSAGE_BYTES,
    VERSION_HEADER,
    Dropped,
    Ended,
    Received,
    ServerFailed,
    SessionLost,
    is_private_address,
)
from whet.trust import create_trusted_context
from whet.vendors.http import MAX_IDLE_S

_CONNECT_S = 10.0
_SILENCE_S = 300.0
_GOODBYE_S = 2.0
_UNTIL_ANSWERED = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S, read=None)
"""The time limits of a call. It has no limit for silence, because a server may work for long; the caller
limits the call."""
_ERROR_BYTES = 4_000
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,1024}")
_NAMES_SESSION = re.compile(rb"(?i)session|not initialized")
_LOST_SESSION = re.compile(
    rb"(?i)\bsession\b[^\n]{0,40}(?:unknown|expired|not found|invalid|no longer|not exist|terminated)"
    rb"|(?:unknown|expired|invalid|no such|no valid)[^\n]{0,20}\bsession\b|not initialized"
)
"""Matches the error of a server that has lost a session. It has not run anything then."""
Waiting = asyncio.Future[dict[str, Any]]


class HttpTransport:
    """One session with a server at a URL. `headers` are sent with every request."""

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], parts: RemoteParts, *, has_key: bool = False
    ) -> None:
        self._name = name
        self._url = url
        self._headers = dict(headers)
        self._has_key = has_key
        self._version = ""
        self._session_id = ""
        self._received: Received = lambda _message: None
        limits = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
        self._http = httpx2.AsyncClient(
            timeout=limits,
            limits=httpx2.Limits(keepalive_expiry=MAX_IDLE_S),
            follow_redirects=False,
            verify=create_trusted_context(),
            trust_env=not is_loopback(url),
        )
        self._login = Login(name, url, parts, self._http)
        self._streams = Streams(name, self._open_stream, self._take_data, parts.pause)

    async def start(self, received: Received, dropped: Dropped, ended: Ended) -> None:
        """Check the settings. Nothing is sent before the first message. Raises ServerFailed."""
        del dropped, ended  # unused: a message that is too large ends its own call
        self._received = received
        if urlsplit(self._url).scheme not in ("http", "https") or not urlsplit(self._url).hostname:
            raise ServerFailed(f"the MCP server {self._name} has the url {self._url[:200]!r}, which is none")
        if self._has_key and not is_private_address(self._url):
            raise ServerFailed(
                f"the headers of the MCP server {self._name} hold a key, and its url is not encrypted",
                hint="use https; in a network that you trust, set allow_http: true in its entry",
            )

    def listen(self) -> None:
        """Open the stream for messages between calls, if the server has one."""
        self._streams.start_listening()

    def explain(self) -> str:
        """Return an empty string, because each failure already contains all details."""
        return ""

    async def send(
        self, message: bytes, answer: Waiting | None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Post a message and read until its answer has arrived. Raises ServerFailed."""
        call_headers = headers or {}
        self._version = call_headers.get(VERSION_HEADER, self._version)
        try:
            await self._post(message, answer, call_headers, is_second=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, OSError, UnicodeError) as error:
            raise self._connection_error(error) from error
        except WireError as error:
            raise ServerFailed(f"the MCP server {self._name}: {error.message}") from error

    async def aclose(self) -> None:
        """End the session at the server and close the connections."""
        async with aclosing(self._http):
            await self._streams.aclose()
            with contextlib.suppress(TimeoutError, httpx2.HTTPError, OSError, UnicodeError, ServerFailed):
                if self._session_id:
                    async with asyncio.timeout(_GOODBYE_S):
                        await self._http.delete(self._url, headers=await self._all_headers())

    async def _post(
        self, message: bytes, answer: Waiting | None, call_headers: Mapping[str, str], *, is_second: bool
    ) -> None:
        headers = {**call_headers, **await self._all_headers(), "content-type": "application/json"}
        limits = _UNTIL_ANSWERED if answer is not None else self._http.timeout
        request = self._http.stream("POST", self._url, content=message, headers=headers, timeout=limits)
        async with request as response:
            is_retry_due = not is_second and await self._has_other_login(response.status_code)
            if not is_retry_due:
                await self._read_answer(response, answer)
        if is_retry_due:
            await self._post(message, answer, call_headers, is_second=True)

    async def _has_other_login(self, status: int) -> bool:
        """Return whether a request refused with this status may be repeated with a new login."""
        if status == 401:
            return await self._login.renew()
        return status == 403 and self._login.adopt_newer_login()

    @asynccontextmanager
    async def _open_stream(self, last_id: str) -> AsyncGenerator[httpx2.Response]:
        headers = {**await self._all_headers(), "accept": EVENTS}
        if last_id:
            headers["last-event-id"] = last_id
        async with self._http.stream("GET", self._url, headers=headers) as response:
            yield response

    async def _all_headers(self) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "user-agent": "whet"}
        if self._session_id:
            headers["mcp-session-id"] = self._session_id
        if self._version:
            headers[VERSION_HEADER] = self._version
        token = await self._login.get_token()
        if token:
            headers["authorization"] = f"Bearer {token}"
        return {**headers, **self._headers}

    async def _read_answer(self, response: httpx2.Response, answer: Waiting | None) -> None:
        if response.status_code >= 300:
            await self._handle_error_status(response, answer)
            return
        session_id = response.headers.get("mcp-session-id", "")
        if not self._session_id and _SESSION_ID.fullmatch(session_id):
            self._session_id = session_id
        if answer is None:
            return
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == EVENTS:
            await self._streams.follow(response, answer)
        elif kind == "application/json":
            self._take_data(await self._read_body(response))
        else:
            content_kind = "HTML" if "html" in kind else kind or "no content type"
            raise ServerFailed(
                f"the MCP server {self._name} answered with {content_kind}, which is not MCP",
                hint=f"is {self._url} the address of its MCP endpoint?",
            )
        if not answer.done():
            raise ServerFailed(
                f"the MCP server {self._name} ended its answer without a result",
                hint="whether it did what was asked is unknown",
            )

    async def _read_body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_MESSAGE_BYTES:
                raise ServerFailed(
                    f"the MCP server {self._name} sent an answer of more than {MAX_MESSAGE_BYTES:,} bytes"
                )
        return bytes(body)

    def _take_data(self, data: bytes) -> None:
        try:
            decoded: object = from_foreign_json(data, object)
        except NOT_JSON as error:
            begin = mask(data[:_ERROR_BYTES].decode("utf-8", "replace"))[:80]
            raise ServerFailed(f"the MCP server {self._name} sent what is not JSON: {begin!r}") from error
        for message in cast("list[object]", decoded) if isinstance(decoded, list) else [decoded]:
            if isinstance(message, dict):
                self._received(cast("dict[str, Any]", message))

    async def _handle_error_status(self, response: httpx2.Response, answer: Waiting | None) -> None:
        """Take the body as the call's answer if it is a JSON-RPC error. Otherwise raises ServerFailed, or
        SessionLost if the session may be lost."""
        status = response.status_code
        body = await self._read_first_bytes(response)
        has_session = "mcp-session-id" in response.request.headers
        is_lost = status == 404 and has_session
        # Most servers answer 400 after a restart, a few with the call's own id.
        names_session = status == 400 and has_session and _NAMES_SESSION.search(body)
        if (
            answer is not None
            and status in (400, 404)
            and not (is_lost or names_session)
            and b'"jsonrpc"' in body
        ):
            with contextlib.suppress(ServerFailed):
                self._take_data(body)
            if answer.done():
                return
        if is_lost:
            self._session_id = ""  # otherwise `aclose` would try to end it with a DELETE
            raise SessionLost(f"the MCP server {self._name} no longer knows this session")
        refusal = self._status_error(response, body)
        says_lost = bool(_LOST_SESSION.search(body))
        if has_session and (status == 400 or status >= 500 or (status in (401, 403) and says_lost)):
            may_have_run = status >= 500 and not says_lost
            raise SessionLost(refusal.message, hint=refusal.hint, is_certain=False, may_have_run=may_have_run)
        raise refusal

    def _status_error(self, response: httpx2.Response, body: bytes) -> ServerFailed:
        status, server = response.status_code, f"the MCP server {self._name}"
        challenge = response.headers.get("www-authenticate", "")
        if status == 401:
            return self._login.report_refusal(challenge)
        if status == 403 and (lacking := self._login.explain_missing_rights(challenge)):
            return lacking
        if 300 <= status < 400:
            location = response.headers.get("location", "")[:200]
            return ServerFailed(
                f"{server} sends on to {location or 'another address'}, which is not followed",
                hint="set its url to that address if it is right",
            )
        detail = _read_error_text(body)
        hints = {
            403: "the login or key lacks the right to this",
            404: f"is {self._url} the address of its MCP endpoint?",
            405: "it may speak only the old HTTP+SSE transport, which is not supported",
        }
        hint = hints.get(
            status, "it may be down; whether it did what was asked is unknown" if status >= 500 else ""
        )
        return ServerFailed(f"{server} answered HTTP {status}{detail}", hint=hint)

    async def _read_first_bytes(self, response: httpx2.Response) -> bytes:
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) >= _ERROR_BYTES:
                break
        return body[:_ERROR_BYTES]

    def _connection_error(self, error: Exception) -> ServerFailed:
        where = urlsplit(self._url).netloc.rpartition("@")[2]
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ServerFailed(
                f"the MCP server {self._name} can't be reached at {where}",
                hint="is it running? check its url",
            )
        reason = mask(str(error).partition("\n")[0])[:160] or type(error).__name__
        return ServerFailed(
            f"the connection to the MCP server {self._name} broke ({reason})",
            hint="whether it did what was asked is unknown",
        )


def _read_error_text(body: bytes) -> str:
    """Return the message in an error's body, shortened. HTML is ignored."""
    try:
        decoded: object = from_foreign_json(body, object)
    except NOT_JSON:
        text = body.decode("utf-8", "replace").strip()
        return "" if not text or text.startswith("<") else f": {mask(' '.join(text.split()))[:200]}"
    detail: object = decoded
    for key in ("error", "error_description", "message", "detail"):
        if isinstance(detail, dict) and key in detail:
            detail = cast("dict[str, object]", detail)[key]
    return f": {mask(detail)[:200]}" if isinstance(detail, str) else ""
