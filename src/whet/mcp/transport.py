"""The interface that carries messages to one MCP server and back, and its errors.

A transport moves JSON-RPC messages without interpreting them. Stdio and HTTP are implemented in their own
modules.
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
"""Called with a description of each message that was not read."""
Ended = Callable[[ToolError], None]
"""Called once when the server has ended for good."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
VERSION_HEADER = "mcp-protocol-version"


class ServerFailed(ToolError):
    """The server can't be started, has ended, or does not speak MCP. A later call starts it again."""


class LoginNeeded(ServerFailed):
    """The server requires a person to log in first."""


class SessionLost(ServerFailed):
    """The server does not know the session, as after a restart, so nothing was run.

    If not `is_certain`, only a ping shows whether the session is lost. If the call `may_have_run`, it must
    not be repeated.
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

        If an `answer` is awaited, it may arrive through `received` before this returns. Raises
        ServerFailed.
        """
        ...

    def listen(self) -> None:
        """Start receiving the server's own messages, if that needs an action. The handshake is complete."""
        ...

    def explain(self) -> str:
        """Return details for an error message, such as the server's last output, or an empty string."""
        ...

    async def aclose(self) -> None:
        """Release the server and kill its remaining processes."""
        ...


def is_private_address(url: str) -> bool:
    """Return whether no one can read a message on the way to this address: https, or this machine."""
    return url.lower().startswith("https://") or is_loopback(url)
