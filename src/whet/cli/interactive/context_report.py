"""Describe how full a session's context window is, for `/context` and `whet context status`."""

from __future__ import annotations

from whet.contract.messages import Usage
from whet.contract.protocols import Compacted, ContextStatus
from whet.contract.texts import plural
from whet.store.compactions import CompactionSums
from whet.terminal.wording import count

_BAR = 40
OUTCOMES: dict[Compacted, tuple[str, ...]] = {
    "compacted": (),
    "unchanged": ("the context stays as it is",),
    "nothing": ("nothing to compress yet",),
}
"""The lines to print after a manual compaction, besides its event."""


def report_lines(status: ContextStatus, sums: CompactionSums, usage: Usage, width: int = 80) -> list[str]:
    """Return the lines of the report: a bar that fits into `width` columns, the numbers, the tokens that
    compactions saved, and the reason if automatic compaction is off."""
    window = max(status.window_tokens, 1)
    share = status.used_tokens / window
    prefix = "" if status.counted else "about "
    of_all = f" {share:.0%} of {count(status.window_tokens)} tokens"
    lines = [
        f"[{draw_bar(status, max(10, min(_BAR, width - len(of_all) - 2)))}]{of_all}",
        f"engine     {status.engine} ({status.source})",
        f"used       {prefix}{status.used_tokens:,} tokens",
        f"messages   {status.messages:,}",
    ]
    threshold = f"{status.threshold_tokens:,} tokens" if status.threshold_tokens else "none"
    lines.append(f"threshold  {threshold}")
    saved = f", {sums.saved_tokens:,} tokens saved" if sums.count else ""
    lines.append(f"compacted  {plural(sums.count, 'time')}{saved}")
    if sums.repairs:
        lines.append(
            f"left out   {plural(sums.repairs, 'time')} what the server refused; each began a new prefix"
        )
    lines.append(f"cache hit  {usage.cache_hit_ratio:.1%} of {count(usage.prompt_tokens)} prompt tokens")
    if status.stopped:
        lines.append(f"automatic compaction is off: {status.stopped}")
    return lines


def draw_bar(status: ContextStatus, length: int = _BAR) -> str:
    """Draw the window as `length` characters: # is used, | is the threshold."""
    window = max(status.window_tokens, 1)
    filled = min(length, round(status.used_tokens / window * length))
    bar = list("#" * filled + "." * (length - filled))
    if 0 < status.threshold_tokens < window:
        bar[min(length - 1, status.threshold_tokens * length // window)] = "|"
    return "".join(bar)
