"""The state of a session that the editor has open: folder, mode, the editor's MCP servers, running prompts.

It stays until the editor closes the session or disconnects. The session itself is released from memory when
it is idle.
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

    `prompts` are the tasks of running and waiting prompts. `chosen_model` is the model chosen for the next
    prompt, or "" for no change. `title` is the title that the editor shows. `servers` are the MCP servers
    that the editor offered.
    """

    def __init__(
        self, session_id: str, workspace: Path, mode: Mode, editor: Editor, servers: EditorServers
    ) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.mode: Mode = mode
        self.chosen_model = ""
        self.title = ""
        self.has_reported_lessons = False
        self.prompts: set[asyncio.Task[Any]] = set()
        self.servers = servers
        self.buffers: EditorBuffers = EditorBuffers(editor, session_id, servers.notices.append)
        self.outbox: Outbox = editor.outbox
        self._last_model = ""

    def extras(self) -> SessionExtras:
        """Return the parts that the editor adds to the session."""
        return SessionExtras(tools=self.servers.tools(), buffers=self.buffers)

    def next_model(self, session: Session | None, default: str) -> str:
        """Return the model for the next prompt: the chosen one, the session's last known one, or `default`.

        `session` is None while it is not in memory.
        """
        if session is not None:
            self._last_model = session.model.model
        return self.chosen_model or self._last_model or default

    def take_notices(self) -> list[str]:
        """Return the pending notices and clear them."""
        lines = list(self.servers.notices)
        self.servers.notices.clear()
        return lines

    def cancel(self) -> None:
        """Cancel the running and waiting prompts."""
        for task in tuple(self.prompts):
            task.cancel()

    async def aclose(self) -> None:
        """Cancel the prompts and stop the editor's servers."""
        self.cancel()
        if self.prompts:
            await asyncio.wait(self.prompts)
        await self.servers.aclose()
