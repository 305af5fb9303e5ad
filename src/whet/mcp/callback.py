"""The page on 127.0.0.1 to which the browser is sent after a login. It accepts one answer, on one path."""

from __future__ import annotations

import asyncio
import secrets
from urllib.parse import parse_qs, urlsplit

from whet.contract.errors import WhetError
from whet.visible import visible

_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Whet</title>"
    "<p style='font:16px sans-serif;margin:3em'>{text} You may close this window.</p>"
)


class LoginFailed(WhetError):
    """Raised if a login failed; nothing was stored."""


class CallbackListener:
    """Listens on a port of 127.0.0.1 for the request with the authorization code.

    `needs_issuer`: the issuer announced that its answers name it, so an answer without an issuer is rejected.
    """

    def __init__(self, state: str, issuer: str, *, needs_issuer: bool) -> None:
        self.address: str = ""
        self._state = state
        self._issuer = issuer
        self._needs_issuer = needs_issuer
        self._code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> CallbackListener:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=32_768)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._code.done() and not self._code.cancelled():
            self._code.exception()

    async def wait_for_code(self, timeout_s: float) -> str:
        """Wait for the code and return it. Raises LoginFailed after `timeout_s`, or if the login was
        refused."""
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._code
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise LoginFailed(
                f"nobody logged in within {timeout_s:g} s", hint="run the command again"
            ) from error

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10.0):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                status, text = self._handle_request(line.decode("latin-1"))
                page = _PAGE.format(text=text).encode()
                head = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8"
                    f"\r\nContent-Length: {len(page)}\r\nCache-Control: no-store"
                    "\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + page)
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass
        finally:
            writer.close()

    def _handle_request(self, request_line: str) -> tuple[str, str]:
        """Complete the login if the request is its answer. Returns the HTTP status and the text of the
        page."""
        words = request_line.split(" ")
        target = urlsplit(words[1] if len(words) > 2 and words[0] == "GET" else "")
        if target.path != "/callback":
            return "404 Not Found", "Nothing is here."
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        if not secrets.compare_digest(parameters.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This answer belongs to no login that is under way."
        if self._code.done():
            return "400 Bad Request", "This login is over."
        issuer = parameters.get("iss", "" if self._needs_issuer else self._issuer)
        if issuer.rstrip("/") != self._issuer.rstrip("/"):
            self._code.set_exception(LoginFailed("the answer came from another issuer; nothing was stored"))
            return "400 Bad Request", "The answer came from another issuer."
        if "error" in parameters or not parameters.get("code"):
            why = visible(
                f"{parameters.get('error', 'no code')} {parameters.get('error_description', '')}".strip(), 300
            )
            self._code.set_exception(LoginFailed(f"the login was refused: {why}"))
            return "200 OK", "The login was refused."
        self._code.set_result(parameters["code"])
        return "200 OK", "Whet is logged in."
