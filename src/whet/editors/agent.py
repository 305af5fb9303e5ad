"""The agent's side of the Agent Client Protocol: sessions, prompts, cancels, choices, history.

Each method answers one request of the editor; what a turn does goes out as updates before the request is
answered. Several sessions run at once, one turn at a time in each. It does not know how bytes travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
from acp import PROTOCOL_VERSION, Client, RequestError
from acp.helpers import update_available_commands
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    CurrentModeUpdate,
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
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from whet import __version__
from whet.agent.session import Session
from whet.app.hosted import SessionHost
from whet.contract.errors import WhetError
from whet.contract.messages import Message
from whet.editors import blocks, options, replay
from whet.editors.answering import answer, told
from whet.editors.blocks import Block
from whet.editors.brought import EditorServers, Given, bring
from whet.editors.commands import EditorCommands
from whet.editors.editor import Editor
from whet.editors.opened import OpenedSession
from whet.editors.options import Mode
from whet.store import replay as stored
from whet.store import sessions
from whet.store.sessions import SessionRow
from whet.store.trail import arguments_of
from whet.tools.registry import read_specs

SOURCE = "acp"
_PAGE = 50
_EVERYTHING = 1_000_000
# An editor learns a session's id by the answer to its request; updates that come before are lost.
_AFTER_ANSWER_S = 0.1


class Program(msgspec.Struct, frozen=True):
    """What runs the sessions, and the mode that they begin in."""

    hosted: SessionHost
    mode: Mode


Furnish = Callable[[Session], None]


class EditorAgent:
    """One editor's sessions. `start` opens the program at the first session, and has each session that is
    opened furnished by what it is given."""

    def __init__(self, start: Callable[[Furnish], Awaitable[Program]], commander: EditorCommands) -> None:
        self._start = start
        self._commander = commander
        self._starting = asyncio.Lock()
        self._program: Program | None = None
        self._open: dict[str, OpenedSession] = {}
        self._connected: Editor | None = None
        self._models: list[str] = []
        self._listing: asyncio.Task[None] | None = None

    def on_connect(self, conn: Client) -> None:
        """Learn the way to the editor."""
        self._connected = Editor(conn)

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        """Say what this agent can do, and learn what the editor can."""
        self._editor.learn(client_capabilities)
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
                ),
            ),
            agent_info=Implementation(name="whet", title="Whet", version=__version__),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Given] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        """Begin a session in the folder `cwd`, with the tools of the editor's MCP servers."""
        with told():
            workspace, program = _folder(cwd), await self._opened()
            brought = await bring(mcp_servers or (), workspace, program.hosted.app)
            try:
                session_id = await program.hosted.new_session(
                    source=SOURCE, workspace=workspace, tools=brought.tools()
                )
            except BaseException:
                await brought.aclose()
                raise
        brought.enter([tool.spec for tool in brought.tools()])
        here = await self._enter(session_id, workspace, brought)
        return NewSessionResponse(
            session_id=session_id, modes=options.modes(here.mode), config_options=self._options(here)
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Given] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        """Open a stored session; all that was said is sent before the answer."""
        here = await self._reopen(cwd, session_id, mcp_servers or ())
        program = await self._opened()
        with told():
            said, todo = await program.hosted.app.database.read(
                lambda db: (_said(db, session_id), arguments_of(db, session_id, "todo"))
            )
        for update in (*replay.updates(said), *replay.plan(todo)):
            self._editor.outbox.put(session_id, update)
        await self._editor.outbox.flush()
        return LoadSessionResponse(modes=options.modes(here.mode), config_options=self._options(here))

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Given] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        """Open a stored session that the editor knows already: nothing is sent again."""
        here = await self._reopen(cwd, session_id, mcp_servers or ())
        return ResumeSessionResponse(modes=options.modes(here.mode), config_options=self._options(here))

    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """End what runs in a session and let its servers go; it stays stored."""
        here = self._known(session_id)
        del self._open[session_id]
        await here.aclose()
        return CloseSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        """List conversations, the last active first, of one folder or all; a page at a time."""
        offset = int(cursor) if cursor and cursor.isdecimal() else 0
        with told():
            program = await self._opened()
            rows = await program.hosted.app.database.read(
                lambda db: sessions.list_sessions(db, _PAGE + 1, offset=offset, workspace=cwd or "")
            )
        infos = [
            SessionInfo(
                session_id=row.id, cwd=row.workspace or "/", title=row.title, updated_at=row.last_active
            )
            for row in rows[:_PAGE]
        ]
        more = str(offset + _PAGE) if len(rows) > _PAGE else None
        return ListSessionsResponse(sessions=infos, next_cursor=more)

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Change what a session asks about, from the next call on."""
        here = self._known(session_id)
        here.mode = options.mode_of(mode_id)
        self._tell_options(here)
        await self._editor.outbox.flush()
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        """Choose a session's mode, from the next call on, or its model, from the next prompt on."""
        here = self._known(session_id)
        if config_id == options.MODE:
            here.mode = options.mode_of(value)
            update = CurrentModeUpdate(session_update="current_mode_update", current_mode_id=here.mode)
            self._editor.outbox.put(session_id, update)
            await self._editor.outbox.flush()
        elif config_id == options.MODEL and value in (self._model(here), *self._models):
            here.wanted = str(value)
        else:
            raise RequestError(-32602, f"there is no choice {value} for {config_id}")
        return SetSessionConfigOptionResponse(config_options=self._options(here))

    async def prompt(self, session_id: str, prompt: list[Block], **kwargs: Any) -> PromptResponse:
        """Run a turn, or a slash command, and say how it ended; a failure is an error of this request."""
        here, program = self._known(session_id), await self._opened()
        what, model = blocks.read(prompt), self._model(here)
        work = asyncio.create_task(answer(self._editor, program.hosted, self._commander, here, what))
        here.works.add(work)
        try:
            await asyncio.wait({work})
        finally:
            here.works.discard(work)
            if not work.done():  # the editor is gone
                work.cancel()
        if self._model(here) != model:
            self._tell_options(here)
        await self._editor.outbox.flush()
        if work.cancelled():
            return PromptResponse(stop_reason="cancelled")
        with told():
            return work.result()

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """End what runs and what waits in a session; its prompts are answered as cancelled."""
        if (here := self._open.get(session_id)) is not None:
            here.cancel()

    async def aclose(self) -> None:
        """End the turns as cancelled and close the program."""
        if self._connected is not None:
            self._connected.outbox.close()
        if self._listing is not None:
            self._listing.cancel()
        if self._program is not None:
            await self._program.hosted.aclose()
            await asyncio.gather(*(here.aclose() for here in self._open.values()))
            await self._program.hosted.app.reviews.leave()
            await self._program.hosted.app.aclose()

    @property
    def _editor(self) -> Editor:
        assert self._connected is not None  # on_connect comes first
        return self._connected

    async def _opened(self) -> Program:
        async with self._starting:
            if self._program is None:
                with told():
                    self._program = await self._start(self._furnish)
                self._listing = asyncio.create_task(self._list_models(self._program.hosted))
            return self._program

    def _furnish(self, session: Session) -> None:
        if (here := self._open.get(session.id)) is not None:
            here.furnish(session)

    async def _list_models(self, hosted: SessionHost) -> None:
        """Learn which models there are to choose from, and tell the sessions that are open by then."""
        try:
            self._models = await hosted.app.models.provider.list_models()
        except WhetError:
            return  # the model of the settings stays the only choice
        for here in self._open.values():
            self._tell_options(here)

    async def _reopen(self, cwd: str, session_id: str, servers: Sequence[Given]) -> OpenedSession:
        with told():
            folder, program = _folder(cwd), await self._opened()
            app = program.hosted.app
            row, (_, tools_json) = await app.database.read(lambda db: _row_and_prefix(db, session_id))
            open_already = self._open.get(session_id)
            if open_already is not None and open_already.works:
                return open_already
            own = Path(row.workspace)
            workspace = own if row.workspace and own.is_dir() else folder
            brought = await bring(servers, workspace, app)
        if tools_json:
            brought.enter(read_specs(tools_json.encode()))
        here = await self._enter(session_id, workspace, brought)
        here.title = row.title
        if row.model_chosen and row.provider == app.models.provider.info.provider:
            here.wanted = row.model
        return here

    async def _enter(self, session_id: str, workspace: Path, brought: EditorServers) -> OpenedSession:
        """Take a session for open, in place of itself where it was, and tell its commands."""
        program = await self._opened()
        before = self._open.get(session_id)
        here = OpenedSession(session_id, workspace, program.mode, self._editor, brought)
        self._open[session_id] = here
        if before is not None:
            await before.aclose()
        if (session := program.hosted.opened(session_id)) is not None:
            here.furnish(session)
        update = update_available_commands(self._commander.available())
        loop = asyncio.get_running_loop()
        loop.call_later(_AFTER_ANSWER_S, self._editor.outbox.put, session_id, update)
        return here

    def _known(self, session_id: str) -> OpenedSession:
        here = self._open.get(session_id)
        if here is None:
            raise RequestError(-32602, f"session {session_id} is not open", {"hint": "session/load opens it"})
        return here

    def _model(self, here: OpenedSession) -> str:
        assert self._program is not None  # a session is open
        hosted = self._program.hosted
        return here.model(hosted.opened(here.session_id), hosted.app.models.provider.info.model)

    def _options(self, here: OpenedSession) -> Any:
        return options.options(here.mode, self._model(here), self._models)

    def _tell_options(self, here: OpenedSession) -> None:
        update = options.changed(here.mode, self._model(here), self._models)
        self._editor.outbox.put(here.session_id, update)


def _row_and_prefix(connection: apsw.Connection, session_id: str) -> tuple[SessionRow, tuple[str, str]]:
    return sessions.get(connection, session_id), sessions.prefix(connection, session_id)


def _said(connection: apsw.Connection, session_id: str) -> list[tuple[int, Message]]:
    """Give all that was said and not undone, also what a compaction took from the model's view."""
    turns = stored.turns(connection, session_id, 0, _EVERYTHING)
    undone = {number for number, turn in turns.items() if turn.is_undone}
    entries = stored.entries(connection, session_id, 1, _EVERYTHING)
    return [(entry.seq, entry.message) for entry in entries if entry.turn not in undone]


def _folder(cwd: str) -> Path:
    folder = Path(cwd)
    if not folder.is_absolute() or not folder.is_dir():
        raise RequestError(-32602, f"{cwd} is no folder", {"hint": "cwd is an absolute path"})
    return folder
