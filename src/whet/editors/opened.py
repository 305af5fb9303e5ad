"""A session that the editor has open: its folder, its mode, its MCP servers from the editor, its running
prompts.

It outlives the session in memory, which is released when idle: the editor's servers and options stay until
the editor closes the session or ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from whet.agent.session import Session
from whet.app.conversations.session_parts import SessionExtras
from whet.editors.buffers import EditorBuffers
from whet.editors.editor import Editor
from whet.editors.mcp_servers import EditorServers
from whet.editors.options import Mode
from whet.editors.outbox import Outbox


class OpenedSession:
    """One open session.

    `works` are the running and waiting prompts. `chosen_model` is the model chosen for the next prompt
    (empty: no change). `title` is the title that the editor shows. `has_reported` says whether lessons
    learned in the meantime were reported.
    """

    def __init__(
        self, session_id: str, workspace: Path, mode: Mode, editor: Editor, servers: EditorServers
    ) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.mode: Mode = mode
        self.chosen_model = ""
        self.title = ""
        self.has_reported = False
        self.works: set[asyncio.Task[Any]] = set()
        self.brought = servers
        self.buffers: EditorBuffers = EditorBuffers(editor, session_id, servers.notices.append)
        self.outbox: Outbox = editor.outbox
        self._answers = ""

    def extras(self) -> SessionExtras:
        """Return the parts that the editor adds to the session."""
        return SessionExtras(tools=self.brought.tools(), buffers=self.buffers)

    def next_model(self, session: Session | None, else_: str) -> str:
        """Return the model for the next prompt: the chosen one, that of the session in memory, its last known
        one, or `else_`."""
        if session is not None:
            self._answers = session.model.model
        return self.chosen_model or self._answers or else_

    def take_notices(self) -> list[str]:
        """Return the pending notices and clear them."""
        lines = list(self.brought.notices)
        self.brought.notices.clear()
        return lines

    def cancel(self) -> None:
        """Cancel the running and waiting prompts."""
        for work in tuple(self.works):
            work.cancel()

    async def aclose(self) -> None:
        """Cancel the prompts and stop the editor's servers."""
        self.cancel()
        if self.works:
            await asyncio.wait(self.works)
        await self.brought.aclose()
