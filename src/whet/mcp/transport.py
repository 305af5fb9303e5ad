"""What carries messages to one MCP server and back, and the ways in which that fails.

A transport moves JSON-RPC messages; it does not know what they mean. Stdio and HTTP have their own modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from whet.config.key_hosts import is_this_machine
from whet.contract.errors import ToolError

Received = Callable[[dict[str, Any]], None]
"""Takes each message of the server, on the event loop."""
Dropped = Callable[[str], None]
"""Told of each message that was not read, and why."""
Ended = Callable[[ToolError], None]
"""Told once when the server is gone for good."""
LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024
VERSION_HEADER = "mcp-protocol-version"


class ServerFailed(ToolError):
    """The server can't be started, has ended, or says what is no MCP; a later call starts it again."""


class LoginNeeded(ServerFailed):
    """The server wants a person to log in first."""


class SessionLost(ServerFailed):
    """The server no longer knows this session and has not done what was asked; begin a new one."""


class Transport(Protocol):
    """The way to one server, from `start` to `aclose`."""

    async def start(self, received: Received, dropped: Dropped, ended: Ended) -> None:
        """Reach the server or start it. Raises ServerFailed."""
        ...

    async def send(
        self,
        message: bytes,
        answer: asyncio.Future[dict[str, Any]] | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send one message, with `headers` where the transport has such. Where an `answer` is awaited, it may
        come through `received` before this returns. Raises ServerFailed.
        """
        ...

    def listen(self) -> None:
        """Begin to hear what the server says on its own, where that takes anything; the handshake is over."""
        ...

    def explain(self) -> str:
        """Say what is known of how the server fares: its last words, what it printed; empty for nothing."""
        ...

    async def aclose(self) -> None:
        """Let the server go; whatever is left of it is killed."""
        ...


def is_private_way(url: str) -> bool:
    """Whether what is sent there is read by nobody on the way: https, or this machine."""
    return url.lower().startswith("https://") or is_this_machine(url)
