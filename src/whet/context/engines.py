"""Which engines there are, and the one that never compacts.

Built-in engines and those of plugins are offered the same way. Choosing an unknown one gives the default
with a reason, never silently.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from whet.contract.context_engine import ChatRows, ContextEngine, EngineOffer

DEFAULT = "compressor"
NONE = "none"


class NoEngine(ContextEngine):
    """Shows the model the whole conversation, always."""

    threshold_percent = 0.0

    @property
    def name(self) -> str:
        """Its name in `context.engine`."""
        return NONE

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Keep the counts for status displays."""
        self.last_prompt_tokens = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens = int(usage.get("total_tokens") or 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Never."""
        return False

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """There is nothing that it would do."""
        return False

    def compress(
        self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
    ) -> ChatRows:
        """Give the list as it is."""
        return messages


NO_ENGINE = EngineOffer(
    NONE, "Never compacts: the model sees the whole conversation.", fresh=NoEngine, is_quick=True
)


def offers(*groups: Iterable[EngineOffer]) -> dict[str, EngineOffer]:
    """Put offers together by name; earlier groups keep a name that comes again."""
    found: dict[str, EngineOffer] = {NONE: NO_ENGINE}
    for group in groups:
        for offer in group:
            found.setdefault(offer.name, offer)
    return found


def built_in(available: Mapping[str, EngineOffer]) -> EngineOffer:
    """Give the engine that stands in for any other."""
    return available.get(DEFAULT) or available[NONE]


def choose(available: Mapping[str, EngineOffer], wanted: str) -> tuple[EngineOffer, str]:
    """Give the offer of that name; where there is none, the built-in one and the line that says so."""
    if wanted in available:
        return available[wanted], ""
    standing_in = built_in(available)
    if wanted == DEFAULT:
        return standing_in, ""
    near = difflib.get_close_matches(wanted, list(available), 1)
    guess = f"; did you mean {near[0]}?" if near else "; `whet context engines` lists what there is"
    return standing_in, f"{wanted!r} is not there, {standing_in.name} is used instead{guess}"
