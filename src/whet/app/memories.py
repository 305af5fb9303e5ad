"""Joins plugins' memories and skills to learning: told of every change in force, offered to every session.

A change is told on the event loop, whichever thread made it; closing waits for what is still being told.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

from whet.app.learning import Learning
from whet.contract.errors import WhetError
from whet.memory import disk, frontmatter
from whet.store.ledger import LedgerRow

if TYPE_CHECKING:
    from whet.plugins.load import Loaded
    from whet.plugins.memories import Memories


class Told:
    """Tells external memories of learned changes; made on the event loop."""

    def __init__(self, memories: Memories, learning: Learning) -> None:
        self._memories = memories
        self._loop = asyncio.get_running_loop()
        self._pending: set[Future[None]] = set()
        learning.desk.listeners.append(self.hear)

    def hear(self, row: LedgerRow) -> None:
        """Pass a change on; called on any thread."""
        target = row.item if row.kind == "memory" else f"skill:{row.item}"
        metadata = {**row.origin.metadata(), "ledger_id": str(row.id)}
        telling = self._memories.on_memory_write(row.action, target, row.after or row.before, metadata)
        future = asyncio.run_coroutine_threadsafe(telling, self._loop)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    async def aclose(self) -> None:
        """Wait for what is being told, then let the memories finish."""
        if self._pending:
            await asyncio.wait([asyncio.wrap_future(future) for future in list(self._pending)])
        await self._memories.shutdown()


def offer_skills(plugins: Loaded, learning: Learning) -> None:
    """Put the plugins' skills into the library; one without a description gives its own."""
    for skill in plugins.skills:
        about = skill.description
        try:
            text = disk.read_text(skill.folder / "SKILL.md") or ""
            about = about or frontmatter.name_and_description(text)[1]
        except WhetError:
            continue  # the library says why when somebody asks for it
        learning.desk.library.offer(skill.name, skill.folder, f"plugin {skill.plugin}", about)
