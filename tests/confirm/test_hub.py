"""Who waits, and how soon another process's writes are looked for because of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from whet_confirm.hub import Hub


async def test_the_watch_rests_until_somebody_outside_waits():
    hub = Hub(0, lambda after, before: [])
    inside = hub.next_event(is_background=True)
    assert not hub.has_waiters
    waits: tuple[Callable[[], asyncio.Future[Any]], ...] = (lambda: hub.listen_for_end("one"), hub.next_event)
    for wait in waits:
        resting = asyncio.create_task(hub.wait_for_change(0.0, 3600.0))
        await asyncio.sleep(0)
        assert not resting.done()
        future: asyncio.Future[Any] = wait()
        async with asyncio.timeout(20):
            await resting
        assert hub.has_waiters
        async with asyncio.timeout(20):
            await hub.wait_for_change(0.0, 3600.0)
        hub.stop_listening(future, "one")
        hub.cancel_wait(future)
        assert not hub.has_waiters
    hub.close()
    assert inside.done()
