"""The interface of a transport, which carries JSON-RPC messages to one MCP server and back, and its errors.

`stdio.py` and `http.py` implement it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from whet.config.key_hosts import is_loopback
from whet.contract.errors import ToolError

Received = Callable[[dict[str, Any]], None]
"""Called with each message of the server, on the event loop."""
Dropped = Callable[[str], None]
"""Called with a description of each message that was too large to be read."""
Ended = Callable[[ToolError], None]
"""Called once when the server has ended for good."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
VERSION_HEADER = "mcp-protocol-version"


class ServerFailed(ToolError):
    """The server can't be started or reached, has ended, or does not speak MCP. A later call starts it
    again."""


class LoginNeeded(ServerFailed):
    """The server requires a person to log in first."""


class SessionLost(ServerFailed):
    """The server does not know the session, for example after a restart.

    `is_certain` False: only a ping shows whether the session is lost. `may_have_run`: the call may have been
    run, so it must not be repeated.
    """

    def __init__(
        self, message: str, *, hint: str = "", is_certain: bool = True, may_have_run: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_certain = is_certain
        self.may_have_run = may_have_run


class Transport(Protocol):
    """Carries messages to one server, from `start` to `aclose`."""

    async def start(self, received: Received, dropped: Dropped, ended: Ended) -> None:
        """Connect to the server or start it. Raises ServerFailed."""
        ...

    async def send(
        self,
        message: bytes,
        answer: asyncio.Future[dict[str, Any]] | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send one message, with `headers` if the transport supports them.

        `answer` is the future of its answer, if there will be one; `received` may complete it before this
        returns. Raises ServerFailed.
        """
        ...

    def listen(self) -> None:
        """Start receiving the server's own messages. Called after the handshake."""
        ...

    def explain(self) -> str:
        """Return details for an error message, such as the server's last output, or ""."""
        ...

    async def aclose(self) -> None:
        """Release the server and kill its remaining processes."""
        ...


def is_private_address(url: str) -> bool:
    """Return whether nobody can read messages on the way to this address, because it is https or this
    machine."""
    return url.lower().startswith("https://") or is_loopback(url)
