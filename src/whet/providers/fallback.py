"""A Provider made of two: if the first one fails, the second answers for the rest of the session.

It takes over after a failure that another server can avoid: unavailable, out of credit, rate-limited, key
rejected, or an invalid protocol, after the first one's own retries. The switch applies to one link, and is
final once the second has answered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

import msgspec

from whet.contract.errors import (
    AuthRejected,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    WireError,
)
from whet.contract.events import ReasoningDelta, Retry, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import ModelInfo, ModelLink, ModelReply, Provider, StreamItem
from whet.contract.tools import ToolSpec

_AVOIDABLE = (Unavailable, QuotaExhausted, RateLimited, AuthRejected, WireError)


class FallbackProvider:
    """Two providers as one. `info` is the first's; a link's `info` is that of the provider that answers
    it."""

    def __init__(self, first: Provider, second: Provider) -> None:
        self.first = first
        self.second = second

    @property
    def info(self) -> ModelInfo:
        """The configured model."""
        return self.first.info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> FallbackLink:
        """Freeze a session's prefix for both. No I/O."""
        return FallbackLink(
            self.first.open(system, tools, session_id), self.second.open(system, tools, session_id)
        )

    async def list_models(self) -> list[str]:
        """Ask the first server which models it serves."""
        return await self.first.list_models()

    async def aclose(self) -> None:
        """Close both connection pools."""
        await self.first.aclose()
        await self.second.aclose()


class FallbackLink:
    """One session's link to both providers. Only one of them is used at a time."""

    def __init__(self, first: ModelLink, second: ModelLink) -> None:
        self._first = first
        self._second = second
        self._has_switched = False

    @property
    def info(self) -> ModelInfo:
        """The model that answers now."""
        return self._second.info if self._has_switched else self._first.info

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream from the first, or from the second after the switch. Raises ProviderError."""
        if self._has_switched:
            async with _closing(self._second, messages) as items:
                async for item in items:
                    yield item
            return
        has_shown = False
        try:
            async with _closing(self._first, messages) as items:
                async for item in items:
                    # Output before a StreamRestarted is no longer shown.
                    has_shown = isinstance(item, TextDelta | ReasoningDelta) or (
                        has_shown and not isinstance(item, StreamRestarted)
                    )
                    yield item
            return
        except _AVOIDABLE as error:
            failure = error
        async for item in self._take_over(messages, failure, has_shown):
            yield item

    async def _take_over(
        self, messages: Sequence[Message], failure: ProviderError, has_shown: bool
    ) -> AsyncIterator[StreamItem]:
        second = self._second.info
        notice = f"{failure.message}; {second.model} at {second.provider} answers from now on"
        yield StreamRestarted(notice) if has_shown else Retry(1, 0.0, notice)
        async with _closing(self._second, messages) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    self._has_switched = True
                    item = msgspec.structs.replace(item, warnings=(notice, *item.warnings))
                yield item


def _closing(link: ModelLink, messages: Sequence[Message]) -> aclosing[AsyncGenerator[StreamItem, None]]:
    # Every link's stream is an async generator. Closing it immediately closes its connection immediately.
    return aclosing(cast("AsyncGenerator[StreamItem, None]", link.stream(messages)))
