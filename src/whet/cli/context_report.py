"""How full a session's window is, in words: shared by `/context` and `whet context status`."""

from __future__ import annotations

from whet.cli.wording import count
from whet.contract.messages import Usage
from whet.contract.protocols import Compacted, ContextStatus
from whet.store.compactions import CompactionSums

_BAR = 40
OUTCOMES: dict[Compacted, tuple[str, ...]] = {
    "compacted": (),
    "unchanged": ("the context stays as it is",),
    "nothing": ("nothing to compress yet",),
}
"""What is said after a compaction by hand, beside its event."""


def report(status: ContextStatus, sums: CompactionSums, usage: Usage) -> list[str]:
    """Give the lines: a bar, the numbers, what compactions saved, and why they stopped if they did."""
    window = max(status.window_tokens, 1)
    share = status.used_tokens / window
    about = "" if status.counted else "about "
    lines = [
        f"[{bar(status)}] {share:.0%} of {count(status.window_tokens)} tokens",
        f"engine     {status.engine} ({status.source})",
        f"used       {about}{status.used_tokens:,} tokens in {status.messages} messages",
    ]
    threshold = f"{status.threshold_tokens:,} tokens" if status.threshold_tokens else "none"
    lines.append(f"threshold  {threshold}")
    saved = f", {sums.saved_tokens:,} tokens saved" if sums.count else ""
    lines.append(f"compacted  {sums.count} times{saved}")
    lines.append(f"cache hit  {usage.cache_hit_ratio:.1%} of {usage.prompt_tokens:,} prompt tokens")
    if status.stopped:
        lines.append(f"automatic compaction is off: {status.stopped}")
    return lines


def bar(status: ContextStatus) -> str:
    """Draw the window: # is used, | the threshold."""
    window = max(status.window_tokens, 1)
    filled = min(_BAR, round(status.used_tokens / window * _BAR))
    drawn = list("#" * filled + "." * (_BAR - filled))
    if 0 < status.threshold_tokens < window:
        drawn[min(_BAR - 1, status.threshold_tokens * _BAR // window)] = "|"
    return "".join(drawn)
