"""Find out how many output tokens fit into the window beside the prompt, after a refusal of both together.

Vendors word that refusal like one of a prompt that is too long. The numbers in the request and in the refusal
distinguish the two. Loaded after a refusal only. Does no I/O.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from whet.config.model_servers import ServerDialect
from whet.contract.errors import ContextOverflow

_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NUMBER = r"\b(?:\d{1,3}(?:,\d{3})+|\d{1,9})\b"
# A longer prompt is compacted instead, because the answer needs room, too.
_MAX_PROMPT_SHARE = 0.75
_MIN_OUTPUT_TOKENS = 512


def fit_output(
    refusal: ContextOverflow, body: bytes, dialect: ServerDialect, prompt_tokens: int
) -> tuple[ServerDialect, str] | None:
    """Return the dialect with an output limit that fits, and the change in words. Returns None if no limit
    was sent or the conversation itself is too long. `prompt_tokens`: a cautious estimate of the prompt."""
    request = cast("dict[str, Any]", msgspec.json.decode(body))
    name = next((field for field in _FIELDS if isinstance(request.get(field), int)), "")
    if not name:
        return None
    sent: int = request[name]
    numbers = {int(digits.replace(",", "")) for digits in re.findall(_NUMBER, refusal.detail)}
    window = refusal.limit_tokens or _find_window(numbers, sent)
    if window:
        limit = _read_room(numbers, window, sent, prompt_tokens)
        if dialect.output_limit:  # the prompt has grown since the last limit: leave room for more growth
            limit = min(limit, window // 4)
    else:
        limit = 0 if refusal.status == 413 else _halve(sent, prompt_tokens)
    if not _MIN_OUTPUT_TOKENS <= limit < sent:
        return None
    limited = msgspec.structs.replace(dialect, output_limit=limit)
    return limited, f"{name} of {sent} beside the prompt, so {limit} is sent"


def _find_window(numbers: set[int], sent: int) -> int:
    """Return the largest number in the refusal that is neither the sent limit nor a sum with it, or 0."""
    others = numbers - {sent}
    return max((number for number in others if number - sent not in others), default=0)


def _read_room(numbers: set[int], window: int, sent: int, estimate: int) -> int:
    """Return how many tokens of the window are left beside the prompt, or 0 if the prompt takes too many."""
    total = max(numbers - {sent}, default=0)
    if total > window:
        # If the text does not contain the limit, the total may be the prompt alone. The estimate is never
        # below the prompt, so it decides.
        is_sum = sent in numbers or total - sent <= estimate < total
        prompt = total - sent if is_sum else total
    else:
        prompt = max(numbers - {sent, window}, default=estimate)
    if sent + prompt <= window + 1:  # vLLM stops counting as soon as the request is too long
        prompt = max(prompt, estimate)
    if prompt >= window or min(prompt, estimate) > window * _MAX_PROMPT_SHARE:
        return 0
    return window - prompt if sent + prompt > window else _halve(sent, estimate)


def _halve(sent: int, estimate: int) -> int:
    """Return half of the sent limit, or 0 if the prompt is larger than it."""
    return sent // 2 if sent > estimate else 0
