"""What a message to a person says, before any vendor's format, and what a channel is that brings it.

What the agent wrote (action, requester, description, details) is kept apart from what we say, so that every
channel can mark it and none of it can pass for a line of ours. A channel sends a notice, changes it later,
and may hear presses. Knows no vendor and no database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from whet.contract.channels import Incoming

State = Literal["pending", "approved", "denied", "expired", "cancelled"]
AGENT_MARK = "Written by the agent, not checked:"
HIDDEN = "A part is hidden here: see it on the page to approve it."
NO_PAGE_HOSTS = ("localhost", "127.", "[::1]")
OnPress = Callable[[Incoming], Awaitable[str]]
"""Takes a press; gives what whoever pressed is told."""


class RequestNotice(msgspec.Struct, frozen=True):
    """One request as people are told of it. Texts are visible, redacted and within their limits."""

    request_id: str
    digest: str
    state: State
    headline: str
    action: str
    requester: str
    principal: str
    description: str
    details: str
    is_high_risk: bool
    expires_s: float
    deadline: str
    link: str
    was_cut: bool = False
    outcome: str = ""
    progress: str = ""
    may_approve: bool = True
    is_hidden: bool = False
    risk: str = ""
    warning: str = ""

    @property
    def is_open(self) -> bool:
        """Whether somebody may still decide."""
        return self.state == "pending"

    @property
    def has_public_link(self) -> bool:
        """Whether the link works on another device."""
        host = self.link.partition("://")[2]
        return bool(host) and not host.startswith(NO_PAGE_HOSTS)


def agent_lines(text: str, mark: str = "| ") -> str:
    """Put a mark before each line, so that no line of the agent's can look like one of ours."""
    return "\n".join(mark + line for line in text.split("\n"))


class NoticeChannel(Protocol):
    """One configured way to people."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def can_update(self) -> bool:
        """Whether a sent message can be changed; otherwise only requests are sent, no outcomes."""
        ...

    async def send(self, notice: RequestNotice) -> str:
        """Send it; give where it is, for `update`. Raises SendFailed."""
        ...

    async def update(self, where: str, notice: RequestNotice) -> None:
        """Make the sent message say this instead. Raises SendFailed."""
        ...

    async def listen(self, on_press: OnPress) -> None:
        """Hear presses until cancelled; return at once where there are none. Raises SendFailed for good."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
