"""The notice, a message about a request in no vendor's format, and the protocol of the channels that send it.

The agent's texts (action, requester, description, details) are separate from the service's, so that every
channel can mark them and none can pass for a line of the service. A channel sends a notice, may update it
later, and may receive presses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from whet.contract.channels import Incoming
from whet_confirm.running_grants import GrantOffer

State = Literal["pending", "approved", "denied", "expired", "cancelled", "trial"]
AGENT_MARK = "Written by the agent, not checked:"
TRIAL_MARK = "Written by this service:"
HIDDEN = "A part is hidden here: see it on the page to approve it."
NO_PAGE_HOSTS = ("localhost", "127.", "[::1]")
OnPress = Callable[[Incoming], Awaitable[str]]
"""Handles a press and returns the answer for the person who pressed."""


class RequestNotice(msgspec.Struct, frozen=True):
    """One request as it is announced to people. Texts are visible, redacted and within their limits.

    `offers` are the grants that may be given with an approval, `grant_id` is a running one's number.
    """

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
    is_alarming: bool = False
    offers: tuple[GrantOffer, ...] = ()
    grant_id: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the request can still be decided."""
        return self.state == "pending"

    @property
    def is_trial(self) -> bool:
        """Whether it is about no request and only shows that the channel works."""
        return self.state == "trial"

    @property
    def has_public_link(self) -> bool:
        """Whether the link works on another device."""
        host = self.link.partition("://")[2]
        return bool(host) and not host.startswith(NO_PAGE_HOSTS)


def agent_lines(text: str, mark: str = "| ") -> str:
    """Prefix each line with a mark, so that no line of the agent can look like one of the service's."""
    return "\n".join(mark + line for line in text.split("\n"))


class NoticeChannel(Protocol):
    """One configured channel to people."""

    @property
    def name(self) -> str:
        """The name of the channel in the settings."""
        ...

    @property
    def can_update(self) -> bool:
        """Whether a sent message can be changed; otherwise only requests are sent, no outcomes."""
        ...

    async def send(self, notice: RequestNotice) -> str:
        """Send the notice and return its reference for `update`. Raises SendFailed."""
        ...

    async def update(self, message_ref: str, notice: RequestNotice) -> None:
        """Replace the sent message with this notice. Raises SendFailed."""
        ...

    async def listen(self, on_press: OnPress) -> None:
        """Handle presses until cancelled.

        Returns at once if the channel has none. Raises SendFailed on a final error.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
