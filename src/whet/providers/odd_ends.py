"""Interpret the finish reason of an answer if it is not one of the usual ones.

Vendors have their own words for the output limit, for a withheld answer, and for a fault while they answered.
A fault is retried. An unknown reason is shown to the person.
"""

from __future__ import annotations

import re
from typing import Literal

from whet.contract.protocols import ModelInfo
from whet.log import mask
from whet.providers import failures

Stop = Literal["end", "length"]

_SHOWN_CHARS = 60
_LIMITS = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
_WITHHELD = frozenset(
    {
        "content_filter",
        "refusal",
        "safety",
        "image_safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "sensitive",
    }
)
_FAULTS = frozenset(
    {
        "error",
        "network_error",
        "insufficient_system_resource",
        "abort",
        "aborted",
        "cancelled",
        "failed",
        "function_call_filter",
        "malformed_function_call",
        "malformed_response",
        "unexpected_tool_call",
    }
)


def judge_end(info: ModelInfo, reason: str, why: str) -> tuple[Stop, tuple[str, ...]]:
    """Return how the answer ended, and warnings for the person. `why` is the model's text if it declined.

    Raises ModelRefused for an answer that was withheld, and Unavailable for one that a fault ended.
    """
    word = re.sub(r"\W+.*", "", reason.strip().lower())  # "content_filter: RECITATION"
    if word in _LIMITS:
        return "length", ()
    if word in _WITHHELD or why:
        raise failures.refusal_error(info, why)
    shown = mask(reason)[:_SHOWN_CHARS]
    if word in _FAULTS:
        raise failures.cut_stream_error(info, shown)
    return "end", (f"the model's server ended the answer with {shown!r}; it may not be whole",)
