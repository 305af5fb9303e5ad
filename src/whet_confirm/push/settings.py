"""The settings of push messages, apart from the modules that encrypt and send, which load late."""

from __future__ import annotations

import msgspec


class PushSettings(msgspec.Struct, frozen=True):
    """How this service sends push messages.

    `contact` is a mailto: or https: URL with which push services can reach the operator, or empty.
    """

    contact: str = ""
    allow_private: bool = False
