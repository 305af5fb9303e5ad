"""Send updates to the editor in order, one at a time.

Waiting pieces of text are joined, so that a slow editor gets fewer of them. Once the editor has
disconnected, updates are dropped and `flush` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from acp import Client
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | ConfigOptionUpdate
    | CurrentModeUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
_JOINED_CHARS = 8_000


class Outbox:
    """Sends updates of all sessions to one editor."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[tuple[str, Update]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, session_id: str, update: Update) -> None:
        """Send an update after the earlier ones."""
        if self._is_closed:
            return
        if self._waiting and (joined := _join_updates(self._waiting[-1], session_id, update)) is not None:
            self._waiting[-1] = (session_id, joined)
            return
        self._waiting.append((session_id, update))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_waiting())

    def close(self) -> None:
        """Drop waiting and later updates."""
        self._is_closed = True
        self._waiting.clear()

    async def flush(self) -> None:
        """Wait until everything was sent or the editor has disconnected."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _send_waiting(self) -> None:
        while self._waiting:
            session_id, update = self._waiting.popleft()
            try:
                await self._client.session_update(session_id, update)
            except (ConnectionError, RuntimeError):
                self.close()


def _join_updates(last: tuple[str, Update], session_id: str, update: Update) -> Update | None:
    """Join two pieces of the same text, or return None if they can't be joined."""
    if last[0] != session_id:
        return None
    before = last[1]
    if isinstance(before, AgentMessageChunk) and isinstance(update, AgentMessageChunk):
        block = _join_text(before.content, update.content)
        return block and AgentMessageChunk(session_update="agent_message_chunk", content=block)
    if isinstance(before, AgentThoughtChunk) and isinstance(update, AgentThoughtChunk):
        block = _join_text(before.content, update.content)
        return block and AgentThoughtChunk(session_update="agent_thought_chunk", content=block)
    return None


def _join_text(first: object, second: object) -> TextContentBlock | None:
    if not isinstance(first, TextContentBlock) or not isinstance(second, TextContentBlock):
        return None
    if len(first.text) > _JOINED_CHARS:
        return None
    return TextContentBlock(type="text", text=first.text + second.text)
