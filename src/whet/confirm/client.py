"""Ask the confirmation service from a program: the names of `whet_confirm.client` and of its errors."""

from __future__ import annotations

from whet_confirm.client import BlockingClient, ConfirmClient, requires_confirmation
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions, Failed, Ticket, Unreachable

__all__ = [
    "BlockingClient",
    "ConfirmClient",
    "ConfirmOptions",
    "ConfirmationRefused",
    "Failed",
    "Ticket",
    "Unreachable",
    "requires_confirmation",
]
