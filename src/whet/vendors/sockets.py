"""Websockets to a vendor, so that events arrive without a listening port.

Imported only for channels that use them, because wsproto is installed by the extras `discord` and `slack`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx2
import msgspec
from httpx2 import websockets
from wsproto.utilities import LocalProtocolError

_MAX_BYTES = 4_000_000
_BROKEN = (websockets.HTTPXWSException, httpx2.HTTPError, httpx2.InvalidURL, LocalProtocolError, OSError)


class SocketClosed(Exception):
    """Raised when the other side closed the connection or disappeared. `code` is the close code, or 0 if
    there was none."""

    def __init__(self, code: int = 0, reason: str = "") -> None:
        super().__init__(f"the connection was closed ({code} {reason})".strip())
        self.code = code


class Socket:
    """An open websocket. Receives text and sends JSON objects."""

    def __init__(self, session: websockets.AsyncWebSocketSession) -> None:
        self._session = session

    async def receive(self, timeout_s: float | None = None) -> str:
        """Return the next message. Raises SocketClosed or TimeoutError."""
        try:
            return await self._session.receive_text(timeout_s)
        except _BROKEN as error:
            if isinstance(error, TimeoutError):  # it is also an OSError
                raise
            raise _closed_error(error) from error

    async def send(self, value: object) -> None:
        """Send an object. Raises SocketClosed."""
        try:
            await self._session.send_text(msgspec.json.encode(value).decode())
        except _BROKEN as error:
            raise _closed_error(error) from error


async def converse(client: httpx2.AsyncClient, url: str, talk: Callable[[Socket], Awaitable[None]]) -> None:
    """Connect, and call `talk` with the socket. Raises its exceptions unchanged, never in a group, and
    SocketClosed if the connection can't be opened or breaks."""
    failure: Exception | None = None
    try:
        async with client.websocket(url, max_message_size_bytes=_MAX_BYTES) as session:
            try:
                await talk(Socket(session))
            except Exception as error:  # noqa: BLE001 raised below: a task group would wrap it
                failure = error
    except* _BROKEN as group:
        failure = failure or _closed_error(group.exceptions[0])
    if failure is not None:
        raise failure


def _closed_error(error: BaseException) -> SocketClosed:
    if isinstance(error, websockets.WebSocketDisconnect):
        return SocketClosed(int(error.code or 0), error.reason)
    if isinstance(error, websockets.WebSocketUpgradeError):
        return SocketClosed(0, f"HTTP {error.response.status_code}")
    return SocketClosed(0, type(error).__name__)
