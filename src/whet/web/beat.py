"""Sleeping in step: what looks for work every so often looks together, and an idle process seldom wakes."""

from __future__ import annotations

import asyncio


def in_step(period_s: float) -> float:
    """Give the time until the next whole multiple of `period_s` on the loop's clock."""
    return period_s - asyncio.get_running_loop().time() % period_s
