"""Puts the confirmation service behind the gate where one is configured.

Apart from `confirming.py`, whose HTTP client most homes never need and so never load.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from whet.approval.gate import PolicyGate, ServiceRoute
from whet.approval.high_risk import HighRisk
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import ConfirmSettings

if TYPE_CHECKING:
    from whet.app.confirming import Confirmations


def attach(
    gate: PolicyGate, settings: ConfirmSettings, secrets: Mapping[str, str], home: Home, clock: Clock
) -> Confirmations | None:
    """Have the service decide on what is high-risk from now on; None without one. Raises ConfigError."""
    if not settings.url:
        return None
    confirmer: Confirmations = pkgutil.resolve_name("whet.app.confirming").Confirmations(
        settings, secrets, home, clock
    )
    gate.service = ServiceRoute(HighRisk(settings.actions, defaults=settings.default_actions), confirmer)
    return confirmer
