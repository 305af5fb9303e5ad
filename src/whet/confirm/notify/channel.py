"""What a channel of notices is: it sends one, changes it later, and may hear presses.

A channel keeps no state that must survive: what was sent, and where, is in the deliveries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from whet.confirm.notify.notice import RequestNotice
from whet.contract.channels import Incoming

OnPress = Callable[[Incoming], Awaitable[str]]
"""Takes a press; gives what whoever pressed is told."""


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
