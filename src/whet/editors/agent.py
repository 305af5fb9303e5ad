"""Answer the requests of an editor by the Agent Client Protocol: sessions, prompts, options, history.

Each method answers one request. A turn's events are sent as updates before its request is answered. Several
sessions run at once, with one turn at a time in each. This module is independent of the transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from acp import PROTOCOL_VERSION, Client, RequestError
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    CurrentModeUpdate,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from whet import __version__
from whet.contract.texts import parse_typed_number
from whet.editors import blocks, options, replay
from whet.editors.answering import answer_prompt, convert_errors
from whet.editors.commands import EditorCommands
from whet.editors.mcp_servers import ServerOffer
from whet.editors.sessions import EditorSessions, Furnish, Program
from whet.sandbox.path_rules import read_path_rules
from whet.store import sessions
from whet.store.parts import read_parts
from whet.store.trail import list_arguments
from whet.tools.toolsets.planning import TASK_LIST

_PAGE = 50


class EditorAgent:
    """Handles the requests of one editor about its open sessions."""

    def __init__(self, start: Callable[[Furnish], Awaitable[Program]], commander: EditorCommands) -> None:
        self._sessions = EditorSessions(start, commander)

    def on_connect(self, conn: Client) -> None:
        """Store the connection to the editor."""
        self._sessions.connect(conn)

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        """Report this agent's capabilities, and store the editor's."""
        self._sessions.editor.set_capabilities(client_capabilities)
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    fork=SessionForkCapabilities(),
                ),
            ),
            agent_info=Implementation(name="whet", title="Whet", version=__version__),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[ServerOffer] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        """Create a session in the folder `cwd`, with the tools of the editor's MCP servers."""
        open_session = await self._sessions.begin(cwd, mcp_servers or ())
        return NewSessionResponse(
            session_id=open_session.session_id,
            modes=options.list_modes(open_session.mode),
            config_options=self._sessions.options_of(open_session),
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[ServerOffer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        """Open a stored session. Its whole conversation is sent before the answer."""
        open_session = await self._sessions.reopen(cwd, session_id, mcp_servers or ())
        program = await self._sessions.program()
        with convert_errors():
            parts, todo = await program.hosted.services.database.read(
                lambda db: (read_parts(db, session_id), list_arguments(db, session_id, TASK_LIST))
            )
        for update in (*replay.message_updates(parts), *replay.plan_updates(todo)):
            self._sessions.editor.outbox.send(session_id, update)
        await self._sessions.editor.outbox.flush()
        return LoadSessionResponse(
            modes=options.list_modes(open_session.mode),
            config_options=self._sessions.options_of(open_session),
        )

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[ServerOffer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        """Open a stored session that the editor already shows, without sending its conversation."""
        open_session = await self._sessions.reopen(cwd, session_id, mcp_servers or ())
        return ResumeSessionResponse(
            modes=options.list_modes(open_session.mode),
            config_options=self._sessions.options_of(open_session),
        )

    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[ServerOffer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> ForkSessionResponse:
        """Copy a stored session into a new one and open that. The stored one does not change."""
        open_session = await self._sessions.fork(cwd, session_id, mcp_servers or ())
        return ForkSessionResponse(
            session_id=open_session.session_id,
            modes=options.list_modes(open_session.mode),
            config_options=self._sessions.options_of(open_session),
        )

    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """Cancel a session's prompts and stop its MCP servers. It stays stored."""
        await self._sessions.close(session_id)
        return CloseSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        """Return a page of the sessions of one folder or of all, the last active first."""
        offset = parse_typed_number(cursor or "") or 0
        with convert_errors():
            program = await self._sessions.program()
            rows = await program.hosted.services.database.read(
                lambda db: sessions.list_sessions(db, _PAGE + 1, offset=offset, workspace=cwd or "")
            )
        infos = [
            SessionInfo(
                session_id=row.id, cwd=row.workspace or "/", title=row.title, updated_at=row.last_active
            )
            for row in rows[:_PAGE]
        ]
        next_cursor = str(offset + _PAGE) if len(rows) > _PAGE else None
        return ListSessionsResponse(sessions=infos, next_cursor=next_cursor)

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Set a session's mode, which decides about the calls to ask about, from the next call on."""
        open_session = self._sessions.find_session(session_id)
        await self._sessions.set_mode(open_session, options.mode_of(mode_id))
        self._sessions.send_options(open_session)
        await self._sessions.editor.outbox.flush()
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        """Set a session's mode, from the next call on, or its model, from the next prompt on."""
        open_session = self._sessions.find_session(session_id)
        if config_id == options.MODE:
            await self._sessions.set_mode(open_session, options.mode_of(value))
            update = CurrentModeUpdate(
                session_update="current_mode_update", current_mode_id=open_session.mode
            )
            self._sessions.editor.outbox.send(session_id, update)
            await self._sessions.editor.outbox.flush()
        elif config_id == options.MODEL and value in (
            self._sessions.model(open_session),
            *self._sessions.models,
        ):
            open_session.chosen_model = self._sessions.resolve_model(str(value))
        else:
            raise RequestError(-32602, f"there is no choice {value} for {config_id}")
        return SetSessionConfigOptionResponse(config_options=self._sessions.options_of(open_session))

    async def prompt(self, session_id: str, prompt: list[blocks.Block], **kwargs: Any) -> PromptResponse:
        """Run a turn or a slash command and return the reason of its end. Raises RequestError if it fails."""
        open_session, program = self._sessions.find_session(session_id), await self._sessions.program()
        rules = read_path_rules(program.hosted.services.settings.approval.deny)
        content = blocks.read_prompt(
            prompt, lambda path: rules.find(path, open_session.workspace, writes=False)
        )
        model = self._sessions.model(open_session)
        task = asyncio.create_task(
            answer_prompt(
                self._sessions.editor, program.hosted, self._sessions.commander, open_session, content
            )
        )
        open_session.prompts.add(task)
        try:
            await asyncio.wait({task})
        finally:
            open_session.prompts.discard(task)
            if not task.done():  # the editor has disconnected
                task.cancel()
        if self._sessions.model(open_session) != model:
            self._sessions.send_options(open_session)
        await self._sessions.editor.outbox.flush()
        if task.cancelled():
            return PromptResponse(stop_reason="cancelled")
        with convert_errors():
            return task.result()

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Cancel a session's running and waiting prompts, which are then answered as cancelled."""
        self._sessions.cancel(session_id)

    async def aclose(self) -> None:
        """Cancel the turns and close the program."""
        await self._sessions.aclose()
