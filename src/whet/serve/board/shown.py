"""Format numbers, times and texts for the pages.

Every untrusted text on a page passes through `text`, `whole`, `line` or `diff`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from whet.contract.messages import Usage
from whet.log import mask
from whet.stats import Interval
from whet.store.costs import Spending
from whet.visible import WHOLE, visible

MAX_CHARS = 20_000
_MAX_DIFF_LINES = 400


def text(value: str, limit: int = MAX_CHARS) -> str:
    """Return a text cut to `limit` characters, with secrets masked and hidden characters spelled out."""
    return visible(value, limit, masking=mask)


def whole(value: str) -> str:
    """Return a text uncut, for a person who decides on it, with the values of secrets masked and hidden
    characters spelled out."""
    return visible(value, WHOLE)


def line(value: str, limit: int = 120) -> str:
    """Return a text on one line, cut to `limit` characters."""
    joined = " ".join(visible(value[: 4 * limit], 4 * limit, masking=mask).split())
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"


def count(number: float) -> str:
    """Format a number in short form: 812, 3.4k, 1.5M."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= least:
            short = f"{number / least:.1f}".removesuffix(".0")
            return f"{short}{unit}"
    return f"{number:.0f}"


def cost(usd: float | None, *, is_estimate: bool = False) -> str:
    """Format a cost in dollars, with ~ before an estimate; None is "unknown"."""
    if usd is None:
        return "unknown"
    mark = "~" if is_estimate else ""
    return f"{mark}${usd:.4f}" if 0 < usd < 0.1 else f"{mark}${usd:,.2f}"


def usage_cost(usage: Usage) -> str:
    """Format the cost of usage, with a dash for no usage."""
    if not usage.total_tokens and not usage.cost_usd:
        return "–"
    return cost(usage.cost_usd, is_estimate=bool(usage.estimated_tokens))


def spending_cost(spending: Spending | None) -> str:
    """Format the cost of turns, with "unknown" for those without a known price."""
    if spending is None or not spending.turns:
        return "–"
    if spending.unpriced >= spending.turns:
        return "unknown"
    priced = cost(spending.cost_usd, is_estimate=bool(spending.estimated_tokens))
    return f"{priced} + unknown" if spending.unpriced else priced


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{share:.0%}"


def duration(seconds: float | None) -> str:
    """Format a duration, or return an empty string if it is unknown."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def moment(iso: str) -> str:
    """Format a stored time to the minute, in UTC."""
    return f"{iso[:10]} {iso[11:16]}" if len(iso) >= 16 else iso


def clock_time(at_ms: int) -> str:
    """Format the time of day of a message, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")


def age(iso: str, now: datetime) -> str:
    """Format the age of a stored time: now, 5 min ago, 3 h ago, 2 d ago, then the date."""
    try:
        then = datetime.fromisoformat(iso)
    except ValueError:
        return ""
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for most, unit_s, unit in ((3600, 60, "min"), (86_400, 3600, "h"), (30 * 86_400, 86_400, "d")):
        if seconds < 60:
            return "now"
        if seconds < most:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return iso[:10]


def time_left(until: str, now: datetime) -> str:
    """Format the time until a stored moment: 45 s, 12 min, 3 h; "no time" if it is over."""
    seconds = (datetime.fromisoformat(until) - now).total_seconds()
    for least, unit_s, unit in ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s")):
        if seconds >= least:
            return f"{seconds // unit_s:.0f} {unit}"
    return "no time"


def difference_with_interval(interval: Interval) -> str:
    """Format a difference of rates with its interval, in percentage points."""
    return f"{interval.estimate * 100:+.0f} ({interval.low * 100:+.0f} to {interval.high * 100:+.0f})"


def rate_with_interval(interval: Interval) -> str:
    """Format a rate with its interval."""
    return f"{interval.estimate:.0%} ({interval.low:.0%} to {interval.high:.0%})"


class ShownDiffLine(msgspec.Struct, frozen=True):
    """A line of a diff."""

    kind: Literal["same", "added", "removed", "gap"]
    mark: str
    text: str


def diff(before: str, after: str) -> list[ShownDiffLine]:
    """Return the diff between two texts, with some lines of context."""
    old, new = (visible(part, MAX_CHARS, masking=mask).splitlines() for part in (before, after))
    lines: list[ShownDiffLine] = []
    for row in _unified_diff(old, new):
        if row.startswith("@@"):
            if lines:
                lines.append(ShownDiffLine("gap", "⋯", ""))
        elif row.startswith("+"):
            lines.append(ShownDiffLine("added", "+", row[1:]))
        elif row.startswith("-"):
            lines.append(ShownDiffLine("removed", "−", row[1:]))
        else:
            lines.append(ShownDiffLine("same", "", row[1:]))
    if len(lines) > _MAX_DIFF_LINES:
        lines[_MAX_DIFF_LINES:] = [ShownDiffLine("gap", "⋯", f"{len(lines) - _MAX_DIFF_LINES} more lines")]
    return lines


def _unified_diff(old: Sequence[str], new: Sequence[str]) -> list[str]:
    return list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
