"""Repeat a question about the whole project until the language server has loaded all files.

A server that has just started answers from the files that it has loaded so far, and not every server reports
that it is loading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from whet.lsp.server import LanguageServer

LOAD_S = 30.0
"""For how many seconds a question is repeated."""


async def ask_until_loaded(server: LanguageServer, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the server reports no work and gives the same answer twice. Then sets `server.has_loaded`.
    Returns the last answer, which may be incomplete if `has_loaded` is still False. Raises ToolError."""
    answer = await ask()
    try:
        async with asyncio.timeout(LOAD_S):
            while not server.has_loaded:
                await server.wait_until_idle()
                previous, answer = answer, await ask()
                server.has_loaded = not server.reports.is_working and _sort(previous) == _sort(answer)
    except TimeoutError:
        pass
    return answer


def _sort(value: Any) -> Any:
    """Return JSON with its lists sorted, because servers may list the same locations in another order."""
    if isinstance(value, dict):
        return {key: _sort(item) for key, item in cast("dict[str, Any]", value).items()}
    return sorted(map(_sort, cast("list[Any]", value)), key=repr) if isinstance(value, list) else value
