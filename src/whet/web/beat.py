"""Align periodic polls, so that they run at the same moments and an idle process seldom wakes."""

from __future__ import annotations

import asyncio


def aligned_delay(period_s: float) -> float:
    """Return the time until the next whole multiple of `period_s` on the loop's clock."""
    return period_s - asyncio.get_running_loop().time() % period_s
