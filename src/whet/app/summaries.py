"""Summaries for context engines: a call on an engine's thread, answered by the session's provider.

The request has no tools and a short system prompt of its own, so it never touches a session's prefix. The
model call runs on the event loop; the engine's thread waits for it, at most as long as the engine says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any

from whet.contract.errors import ProviderError
from whet.contract.messages import Message, from_dict
from whet.contract.protocols import ModelReply, Provider

_SYSTEM = "You write records of conversations, exactly as asked and nothing else."


class Summariser:
    """Asks the model of `provider`; made on the event loop whose thread will carry the calls."""

    def __init__(self, provider: Callable[[], Provider]) -> None:
        self._provider = provider
        self._loop = asyncio.get_running_loop()

    def __call__(self, messages: Sequence[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        """Give the model's text. Called off the event loop; raises ProviderError or TimeoutError."""
        del max_tokens  # a cap cuts reasoning models off before they have said anything
        future = asyncio.run_coroutine_threadsafe(self._ask([from_dict(row) for row in messages]), self._loop)
        try:
            return future.result(timeout_s)
        except WaitTimeout:
            future.cancel()
            raise

    async def _ask(self, messages: Sequence[Message]) -> str:
        link = self._provider().open(_SYSTEM, (), "summaries")
        async for item in link.stream(messages):
            if isinstance(item, ModelReply):
                return item.message.text
        raise ProviderError("the model ended its stream without a reply")
