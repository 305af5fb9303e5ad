"""Servers over HTTP: the SDK's own with and without a login, and a raw one that does what it is told."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from tests.listening import listening


class Logins:
    """An authorization server's memory. Everybody who comes to its page is let in, unless `refuse` is set."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.resources: dict[str, str | None] = {}
        self.lasts_s = 3600
        self.refuse = False
        self.checks_resource = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        back = str(params.redirect_uri)
        if self.refuse:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(20),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(back, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._grant(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._grant(client.client_id, scopes, self.resources.pop(refresh_token.token))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)

    def _grant(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(12)}", f"refresh-{secrets.token_hex(12)}"
        self.tokens[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.resources[refresh] = resource
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=self.lasts_s, refresh_token=refresh)


def _port() -> tuple[socket.socket, int]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


@contextmanager
def sdk_over_http(
    make: Callable[..., MCPServer], logins: Logins | None = None, *, handshake: bool = True, **more: Any
) -> Generator[str]:
    """Serve the SDK's app on a thread and give its URL; with `logins` it wants one. Without `handshake` a
    gate before it lets only the protocol pass that has none."""
    listener, port = _port()
    extra: dict[str, Any] = {}
    if logins is not None:
        root = f"http://127.0.0.1:{port}"
        extra = {
            "auth_server_provider": logins,
            "auth": AuthSettings(
                issuer_url=AnyHttpUrl(root),
                resource_server_url=AnyHttpUrl(f"{root}/mcp"),
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["use"], default_scopes=["use"]
                ),
                required_scopes=["use"],
                validate_token_resource=logins.checks_resource,
            ),
        }
    app: Any = make(**extra).streamable_http_app(**more)
    app = app if handshake else _only_stateless(app)
    config = uvicorn.Config(app, log_level="critical", lifespan="on", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        deadline_s = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline_s:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


def _only_stateless(app: Any) -> Any:
    async def gate(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or headers.get(b"mcp-protocol-version") == b"2026-07-28":
            return await app(scope, receive, send)
        message = msgspec.json.decode((await receive())["body"])
        error = {"code": -32022, "message": "Unsupported protocol version"}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": message["id"], "error": error})
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 400, "headers": kind})
        await send({"type": "http.response.body", "body": body})

    return gate


class Request(msgspec.Struct):
    """One request to the raw server; `message` is its body where that is JSON."""

    method: str
    path: str
    headers: dict[str, str]
    message: Any


Answer = tuple[int, dict[str, str], list[bytes] | AsyncIterable[bytes]]
Handler = Callable[[Request], Awaitable[Answer] | Answer]


def as_json(message: Any, status: int = 200, **headers: str) -> Answer:
    """Give a JSON answer; `_` in a header's name is -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"content-type": "application/json", **named}, [msgspec.json.encode(message)]


def result(request: Request, value: Any, **headers: str) -> Answer:
    """Give the answer to a call."""
    return as_json({"jsonrpc": "2.0", "id": request.message["id"], "result": value}, 200, **headers)


def usual(request: Request) -> Answer:
    """Do what any server does: the handshake, one tool, and an echo."""
    if request.method == "GET":
        return 405, {}, []
    if request.method == "DELETE" or "id" not in request.message:
        return 202, {}, []
    if request.message["method"] == "initialize":
        version = request.message["params"]["protocolVersion"]
        hello = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
        return result(request, hello, mcp_session_id="s-1")
    if request.message["method"] == "tools/list":
        return result(request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
    text = request.message["params"]["arguments"].get("text", "")
    return result(request, {"content": [{"type": "text", "text": f"you said: {text}"}]})


async def _each(chunks: list[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(chunks, list):
        for chunk in chunks:
            yield chunk
        return
    async for chunk in chunks:
        yield chunk


@asynccontextmanager
async def raw(handler: Handler) -> AsyncGenerator[tuple[str, list[Request]]]:
    """Serve `handler` in this loop; gives the URL and the requests so far. A chunk b"CUT" breaks the line."""
    requests: list[Request] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers: dict[str, str] = {}
                while head := (await reader.readline()).strip():
                    name, _, value = head.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                try:
                    message = msgspec.json.decode(body) if body else {}
                except msgspec.DecodeError:
                    message = body.decode()
                request = Request(method, path, headers, message)
                requests.append(request)
                answer = handler(request)
                status, more, chunks = await answer if isinstance(answer, Awaitable) else answer
                writer.write(f"HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n".encode())
                writer.write(
                    "".join(f"{name}: {value}\r\n" for name, value in more.items()).encode() + b"\r\n"
                )
                async for chunk in _each(chunks):
                    if chunk == b"CUT":
                        return
                    writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}/mcp", requests
