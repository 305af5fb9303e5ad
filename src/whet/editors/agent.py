"""The agent's side of the Agent Client Protocol: sessions, prompts, cancels, modes, history.

Each method answers one request of the editor; what a turn does goes out as updates before the request is
answered. Several sessions run at once, one turn at a time in each. It does not know how bytes travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import apsw
import msgspec
from acp import PROTOCOL_VERSION, Client, RequestError, update_agent_message_text
from acp.helpers import update_available_commands
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    ClientCapabilities,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SetSessionModeResponse,
    SseMcpServer,
    StopReason,
)

from whet import __version__
from whet.app.hosted import Hosted
from whet.app.slash import unescaped
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import EndReason, TurnEnd
from whet.contract.messages import Message
from whet.editors import blocks, replay
from whet.editors.blocks import Block
from whet.editors.commands import Commander
from whet.editors.outbox import Outbox
from whet.editors.person import EditorPerson, Mode
from whet.editors.view import TurnView
from whet.log import mask
from whet.store import replay as stored
from whet.store import search, sessions
from whet.store.rows import SEQ_LIMIT

SOURCE = "acp"
_PAGE = 50
_RECENT = 60
_EVERYTHING = 1_000_000
# An editor learns a session's id by the answer to its request; updates that come before are lost.
_AFTER_ANSWER_S = 0.1
_STOPS: dict[EndReason, StopReason] = {
    "answered": "end_turn",
    "budget": "max_turn_requests",
    "cancelled": "cancelled",
    "refused": "refusal",
}
_MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Asks before anything that changes something."),
    "auto": ("Auto", "Asks before what is dangerous only."),
    "deny": ("Deny", "Does nothing that it would have to ask for."),
}
McpServers = Sequence[HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio]


class Program(msgspec.Struct, frozen=True):
    """What runs the sessions, and the mode that they begin in."""

    hosted: Hosted
    mode: Mode


class _Open(msgspec.Struct):
    """A session that the editor has open. `notice` is said once, at its first prompt."""

    workspace: Path
    mode: Mode
    notice: str = ""
    prompts: int = 0
    turn: asyncio.Task[TurnEnd | None] | None = None


class EditorAgent:
    """One editor's sessions. `start` opens the program at the first session."""

    def __init__(self, start: Callable[[], Awaitable[Program]], commander: Commander) -> None:
        self._start = start
        self._commander = commander
        self._starting = asyncio.Lock()
        self._program: Program | None = None
        self._open: dict[str, _Open] = {}
        self._client: Client | None = None
        self._outbox: Outbox | None = None

    def on_connect(self, conn: Client) -> None:
        """Learn the way to the editor."""
        self._client, self._outbox = conn, Outbox(conn)

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        """Say what this agent can do."""
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
            agent_info=Implementation(name="whet", title="Whet", version=__version__),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: McpServers | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        """Begin a session in the folder `cwd`."""
        with _told():
            workspace, program = _folder(cwd), await self._opened()
            session_id = await program.hosted.new_session(source=SOURCE, workspace=workspace)
        self._enter(session_id, workspace, program, mcp_servers)
        return NewSessionResponse(session_id=session_id, modes=self._modes(session_id))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: McpServers | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        """Open a stored session; all that was said is sent before the answer."""
        with _told():
            folder, program = _folder(cwd), await self._opened()
            row = await program.hosted.app.database.read(lambda db: sessions.get(db, session_id))
            said = await program.hosted.app.database.read(lambda db: _said(db, session_id))
        own = Path(row.workspace)
        self._enter(session_id, own if row.workspace and own.is_dir() else folder, program, mcp_servers)
        for update in replay.updates(said):
            self._out.put(session_id, update)
        await self._out.flush()
        return LoadSessionResponse(modes=self._modes(session_id))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        """List conversations, the last active first, of one folder or all; a page at a time."""
        offset = int(cursor) if cursor and cursor.isdecimal() else 0
        with _told():
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
        modes: tuple[Mode, ...] = get_args(Mode)
        if mode_id not in modes:
            raise RequestError(-32602, f"there is no mode {mode_id}", {"modes": list(modes)})
        self._known(session_id).mode = next(mode for mode in modes if mode == mode_id)
        return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Block], **kwargs: Any) -> PromptResponse:
        """Run a turn, or a slash command, and say how it ended; a failure is an error of this request."""
        here, program = self._known(session_id), await self._opened()
        text, images = blocks.read(prompt)
        view = self._view(program.hosted, session_id, here)
        if here.notice:
            view.think(here.notice)
            here.notice = ""
        said: str | None = unescaped(text)
        if not images and (command := self._commander.parse(text)) is not None:
            answer, begins = await self._commander.run(program.hosted, session_id, command, view.emit)
            if answer:
                self._out.put(session_id, update_agent_message_text(answer))
            if not begins:
                await self._out.flush()
                return PromptResponse(stop_reason="end_turn")
            said = begins[0]
        person = EditorPerson(
            self._editor, self._out, session_id, view, lambda: here.mode, self._arguments(program.hosted)
        )
        turn = here.turn = asyncio.create_task(
            program.hosted.submit(session_id, said, images, emit=view.emit, person=person)
        )
        try:
            await asyncio.wait({turn})
        finally:
            if not turn.done():  # the editor is gone
                turn.cancel()
        await self._out.flush()
        if turn.cancelled():
            return PromptResponse(stop_reason="cancelled")
        with _told():
            return _ended(turn.result())

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """End a session's turn as cancelled; its prompt is answered with that."""
        here = self._open.get(session_id)
        if here is None or here.turn is None or self._program is None:
            return
        if not self._program.hosted.cancel(session_id):
            here.turn.cancel()

    async def aclose(self) -> None:
        """End the turns as cancelled and close the program."""
        if self._program is not None:
            await self._program.hosted.aclose()
            await self._program.hosted.app.reviews.leave()
            await self._program.hosted.app.aclose()

    @property
    def _editor(self) -> Client:
        assert self._client is not None  # on_connect comes first
        return self._client

    @property
    def _out(self) -> Outbox:
        assert self._outbox is not None
        return self._outbox

    async def _opened(self) -> Program:
        async with self._starting:
            if self._program is None:
                with _told():
                    self._program = await self._start()
            return self._program

    def _enter(
        self, session_id: str, workspace: Path, program: Program, mcp_servers: McpServers | None
    ) -> None:
        notice = ""
        if mcp_servers:
            names = ", ".join(server.name for server in mcp_servers)
            notice = f"The editor's MCP servers ({names}) are not used; `whet mcp add` gives Whet its own."
        self._open[session_id] = _Open(workspace, program.mode, notice)
        update = update_available_commands(self._commander.available())
        asyncio.get_running_loop().call_later(_AFTER_ANSWER_S, self._out.put, session_id, update)

    def _known(self, session_id: str) -> _Open:
        here = self._open.get(session_id)
        if here is None:
            raise RequestError(-32602, f"session {session_id} is not open", {"hint": "session/load opens it"})
        return here

    def _modes(self, session_id: str) -> SessionModeState:
        listed = [SessionMode(id=id_, name=name, description=about) for id_, (name, about) in _MODES.items()]
        return SessionModeState(current_mode_id=self._known(session_id).mode, available_modes=listed)

    def _view(self, hosted: Hosted, session_id: str, here: _Open) -> TurnView:
        here.prompts += 1
        clock = hosted.app.clock
        return TurnView(
            self._out,
            session_id,
            here.workspace,
            lambda: hosted.app.todo_lists.get(session_id),
            clock.monotonic_s,
            clock.new_id(),
        )

    def _arguments(self, hosted: Hosted) -> Callable[[str, str], Awaitable[str]]:
        async def find(session_id: str, call_id: str) -> str:
            """Read a call's arguments from the reply that asks for it: it is stored before it is judged."""
            said: list[tuple[int, Message]] = await hosted.app.database.read(
                lambda db: search.around(db, session_id, SEQ_LIMIT - 1, _RECENT, 0)
            )
            for _, message in reversed(said):
                for call in message.tool_calls:
                    if call.id == call_id:
                        return call.arguments
            return ""

        return find


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


def _ended(end: TurnEnd | None) -> PromptResponse:
    """Give the answer to a prompt. Raises RequestError where the turn failed."""
    if end is None:
        return PromptResponse(stop_reason="end_turn")
    if (stop := _STOPS.get(end.reason)) is None:
        raise RequestError(-32603, mask(end.error or f"the turn {end.reason}"), {"hint": mask(end.hint)})
    return PromptResponse(stop_reason=stop)


@contextmanager
def _told() -> Generator[None]:
    """Give errors of ours to the editor in their own words."""
    try:
        yield
    except NotFound as error:
        raise RequestError(-32002, mask(error.message), {"hint": mask(error.hint)}) from error
    except WhetError as error:
        raise RequestError(-32603, mask(error.message), {"hint": mask(error.hint)}) from error
