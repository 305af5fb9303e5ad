"""A session that the editor has open: its folder, its mode, what the editor brings for it, what runs in it.

It is more than the session in memory, which is let go when it rests: the editor's servers and choices stay
until the editor closes the session or ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from whet.agent.session import Session
from whet.app.session_parts import SessionExtras
from whet.editors.buffers import EditorBuffers
from whet.editors.editor import Editor
from whet.editors.mcp_servers import EditorServers
from whet.editors.options import Mode
from whet.editors.outbox import Outbox


class OpenedSession:
    """One open session. `works` are the prompts that are being answered or wait, `wanted` the model that was
    chosen for the next prompt (empty: as it is), `title` what the editor was told that it is called, and
    `is_told` whether it has heard what was learned meanwhile."""

    def __init__(
        self, session_id: str, workspace: Path, mode: Mode, editor: Editor, brought: EditorServers
    ) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.mode: Mode = mode
        self.wanted = ""
        self.title = ""
        self.is_told = False
        self.works: set[asyncio.Task[Any]] = set()
        self.brought = brought
        self.buffers: EditorBuffers = EditorBuffers(editor, session_id, brought.notices.append)
        self.outbox: Outbox = editor.outbox
        self._answers = ""

    def extras(self) -> SessionExtras:
        """Give what the editor brings for the session."""
        return SessionExtras(tools=self.brought.tools(), buffers=self.buffers)

    def model(self, session: Session | None, else_: str) -> str:
        """Give the model that answers the next prompt: as chosen, as the session in memory has it, as it had
        it when it last was there, or `else_`."""
        if session is not None:
            self._answers = session.model.model
        return self.wanted or self._answers or else_

    def take_notices(self) -> list[str]:
        """Give what is to be said, once."""
        lines = list(self.brought.notices)
        self.brought.notices.clear()
        return lines

    def cancel(self) -> None:
        """End what runs and what waits as cancelled."""
        for work in tuple(self.works):
            work.cancel()

    async def aclose(self) -> None:
        """End what runs, and let the editor's servers go."""
        self.cancel()
        if self.works:
            await asyncio.wait(self.works)
        await self.brought.aclose()
