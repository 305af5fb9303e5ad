"""A vendor's token counts in the canonical buckets, with their cost where every price is known."""

from __future__ import annotations

from whet.contract.messages import Usage
from whet.contract.protocols import ModelInfo


def count_usage(
    info: ModelInfo, *, prompt: int, cache_read: int, cache_write: int, output: int, reasoning: int
) -> Usage:
    """Give the Usage of one call. `prompt` counts all prompt tokens, the cached ones among them."""
    plain = max(prompt - cache_read - cache_write, 0)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        input_tokens=plain,
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
        cost_usd=_cost_usd(info, (plain, cache_read, cache_write, output)),
    )


def _cost_usd(info: ModelInfo, counts: tuple[int, int, int, int]) -> float | None:
    prices = (
        info.input_usd_per_mtok,
        info.cache_read_usd_per_mtok,
        info.cache_write_usd_per_mtok,
        info.output_usd_per_mtok,
    )
    total = 0.0
    for tokens, price in zip(counts, prices, strict=True):
        if not tokens:
            continue
        if price is None:
            return None
        total += tokens * price / 1_000_000
    # No count at all is a server that told us nothing, not a call that cost nothing.
    return total if any(counts) or info.input_usd_per_mtok == 0 else None
