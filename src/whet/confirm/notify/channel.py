"""What a channel is: it sends a notice, changes it later, and may hear presses.

A channel keeps no state that must survive: what was sent, and where, is in the deliveries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from whet.confirm.notify.notice import RequestNotice


class ButtonPress(msgspec.Struct, frozen=True):
    """A button somebody pressed: on which channel, who (the vendor's user id and shown name), which."""

    channel: str
    kind: str
    user_id: str
    user_name: str
    data: str


class PressReply(msgspec.Struct, frozen=True):
    """What the person who pressed is told, and whether the press decided something."""

    text: str
    did_count: bool = False


OnPress = Callable[[ButtonPress], Awaitable[PressReply]]


class NotifyChannel(Protocol):
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
