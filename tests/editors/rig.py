"""The SDK's own client, unmodified, with `whet acp` as a process behind it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, connect_to_agent, spawn_agent_process
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    DeniedOutcome,
    FileEditToolCallContent,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
)

from whet.practice.server import PracticeServer

__all__ = ["Editor", "connect_to_agent", "editing"]


class Editor:
    """What an editor sees, and how it answers questions: `answer` gives the option to pick, None to close."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.answer: Callable[[list[PermissionOption]], str | None] = lambda options: None
        self.changed = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def on_connect(self, conn: Any) -> None:
        """Nothing to do."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append((session_id, update))
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.changed.set()
        await self.hold.wait()
        picked = self.answer(options)
        if picked is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=picked))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was seen fulfils a condition."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def of(self, kind: type[Any], session_id: str = "") -> list[Any]:
        """The updates of one kind."""
        return [one for at, one in self.updates if isinstance(one, kind) and session_id in ("", at)]

    def text(self, kind: type[Any] = AgentMessageChunk, session_id: str = "") -> str:
        """What was streamed, joined."""
        blocks = [update.content for update in self.of(kind, session_id)]
        return "".join(block.text for block in blocks if isinstance(block, TextContentBlock))

    def thoughts(self) -> str:
        return self.text(AgentThoughtChunk)

    def said(self) -> str:
        return self.text(UserMessageChunk)

    def calls(self) -> dict[str, list[Any]]:
        """Each call's updates, by its id."""
        found: dict[str, list[Any]] = {}
        for one in (*self.of(ToolCallStart), *self.of(ToolCallProgress)):
            found.setdefault(one.tool_call_id, []).append(one)
        return found

    def diffs(self) -> list[FileEditToolCallContent]:
        return [
            block
            for one in self.of(ToolCallProgress)
            for block in one.content or ()
            if isinstance(block, FileEditToolCallContent)
        ]


@asynccontextmanager
async def editing(
    home: Path, server: PracticeServer | None, folder: Path, *arguments: str
) -> AsyncIterator[tuple[Editor, Any, Any]]:
    """Start `whet acp` as an editor does; gives the editor, the connection and the process."""
    folder.mkdir(exist_ok=True)
    flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "practice"] if server else []
    environ = {"WHET_HOME": str(home), "WHET_MODEL_MAX_RETRIES": "0", "WHET_REVIEW_WORKER": "off"}
    editor = Editor()
    command = [sys.executable, "-m", "whet", "acp", *flags, *arguments]
    async with spawn_agent_process(
        editor,  # pyright: ignore[reportArgumentType] the optional methods of a client are left out
        *command,
        env=environ,
        cwd=folder,
        transport_kwargs={"stderr": None},
    ) as (connection, process):
        await connection.initialize(protocol_version=PROTOCOL_VERSION)
        yield editor, connection, process
