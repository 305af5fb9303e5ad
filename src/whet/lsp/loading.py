"""Ask a language server about the whole project: repeat the question until the server has loaded all files.

A server that has just started answers from the files that it knows so far, and not every server reports that
it loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from whet.lsp.server import LanguageServer

LOAD_S = 30.0
"""How long a question is repeated, in seconds."""


async def ask_until_loaded(server: LanguageServer, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the server reports no work and gives the same answer twice, then set `server.has_loaded`.
    Returns the last answer; it may lack places if `has_loaded` is still False. Raises ToolError."""
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
    """Return JSON with its lists sorted, because servers may list the same places in another order."""
    if isinstance(value, dict):
        return {key: _sort(item) for key, item in cast("dict[str, Any]", value).items()}
    return sorted(map(_sort, cast("list[Any]", value)), key=repr) if isinstance(value, list) else value
