"""A streamed answer is closed by whoever read it: nothing of it is left for the loop to clear away."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.providers.server import Script, running, sse
from tests.providers.test_link import FIRST, GOOD, HI, LAST, provider

WITHOUT_END = Script([sse(FIRST, LAST)])


async def test_a_call_over_a_kept_connection_makes_no_task() -> None:
    texts: list[str] = []

    def noted(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> Any:
        texts.append(repr(work))
        return asyncio.Task(work, loop=loop, **more)

    async with running(GOOD, GOOD, WITHOUT_END) as server:
        source = provider(server)
        link = source.open("sys", [], "s-1")
        async for _ in link.stream(HI):  # this one connects
            pass
        asyncio.get_running_loop().set_task_factory(noted)
        for _ in range(2):
            async for _ in link.stream(HI):
                pass
            await asyncio.sleep(0)  # where the loop would begin to close what was left
            assert texts == []
        asyncio.get_running_loop().set_task_factory(None)
        assert server.connections == 1
        await source.aclose()
