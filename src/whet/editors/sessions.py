"""Open, fork and close the sessions of one editor. The program that runs them starts with the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
from acp import Client, RequestError
from acp.helpers import update_available_commands

from whet.app import planning
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.session_parts import NO_EXTRAS, SessionExtras
from whet.clock import iso
from whet.contract.errors import WhetError
from whet.editors import options
from whet.editors.answering import convert_errors, make_person
from whet.editors.commands import EditorCommands
from whet.editors.editor import Editor
from whet.editors.mcp_servers import ServerOffer, set_up_servers
from whet.editors.opened import OpenedSession
from whet.editors.person import EditorPerson
from whet.store import forks, sessions
from whet.store.sessions import SessionRow
from whet.tools.registry import read_specs

SOURCE = "acp"
# An editor learns a session's id from the answer to its request, and ignores earlier updates.
_AFTER_ANSWER_S = 0.1


class Program(msgspec.Struct, frozen=True):
    """The running program: the host of the sessions, the people who answer, and the mode of new sessions."""

    hosted: SessionHost
    people: PersonRouter
    mode: options.Mode
    close: Callable[[], Awaitable[None]]


Furnish = Callable[[str], SessionExtras]
"""Returns the parts that the editor adds to a session."""


class EditorSessions:
    """The open sessions of one editor.

    `start` opens the program at the first session. `models` are the models to choose from, once known.
    """

    def __init__(self, start: Callable[[Furnish], Awaitable[Program]], commander: EditorCommands) -> None:
        self._start = start
        self.commander = commander
        self._start_lock = asyncio.Lock()
        self._program: Program | None = None
        self._open: dict[str, OpenedSession] = {}
        self._connected: Editor | None = None
        self.models: list[str] = []
        self._listing: asyncio.Task[None] | None = None

    def connect(self, client: Client) -> None:
        """Store the connection to the editor."""
        self._connected = Editor(client)

    @property
    def editor(self) -> Editor:
        """The editor; set before its first request."""
        assert self._connected is not None
        return self._connected

    async def program(self) -> Program:
        """Return the program, and start it at the first call."""
        async with self._start_lock:
            if self._program is None:
                with convert_errors():
                    self._program = await self._start(self._extras)
                self._program.people.find_idle = self._find_person
                self._listing = asyncio.create_task(self._list_models(self._program.hosted))
            return self._program

    def _extras(self, session_id: str) -> SessionExtras:
        open_session = self._open.get(session_id)
        return NO_EXTRAS if open_session is None else open_session.extras()

    def _find_person(self, session_id: str) -> EditorPerson | None:
        """Return the person of a session, or None if it is not open."""
        open_session, program = self._open.get(session_id), self._program
        if open_session is None or program is None:
            return None
        return make_person(self.editor, program.hosted, open_session)

    async def _list_models(self, hosted: SessionHost) -> None:
        """Store the models, the owner's aliases first, and report them to the sessions that are open by
        then."""
        models = hosted.services.models
        self.models = list(models.settings.aliases)
        try:
            self.models += await models.provider.list_models()
        except WhetError:
            if not self.models:
                return  # the configured model stays the only choice
        for open_session in self._open.values():
            self.send_options(open_session)

    async def begin(self, cwd: str, servers: Sequence[ServerOffer]) -> OpenedSession:
        """Create a session in the folder `cwd`, with the tools of the editor's MCP servers."""
        with convert_errors():
            workspace, program = _check_folder(cwd), await self.program()
            editor_servers = await set_up_servers(servers, workspace, program.hosted.services)
            session_id = program.hosted.services.clock.new_id()
            open_session = OpenedSession(session_id, workspace, program.mode, self.editor, editor_servers)
            self._open[session_id] = open_session
            try:
                await program.hosted.new_session(
                    source=SOURCE, workspace=workspace, tools=editor_servers.tools(), session_id=session_id
                )
            except BaseException:
                del self._open[session_id]
                await editor_servers.aclose()
                raise
        editor_servers.enter([tool.spec for tool in editor_servers.tools()])
        self._send_commands(open_session, program.hosted.services.home.root)
        return open_session

    async def reopen(self, cwd: str, session_id: str, servers: Sequence[ServerOffer]) -> OpenedSession:
        """Open a stored session. If it is open and has a prompt, return it unchanged."""
        with convert_errors():
            folder, program = _check_folder(cwd), await self.program()
            services = program.hosted.services
            row, (_, tools_json) = await services.database.read(lambda db: _row_and_prefix(db, session_id))
            is_planning = await services.database.read(lambda db: sessions.is_planning(db, session_id))
            previous = self._open.get(session_id)
            if previous is not None and previous.prompts:
                return previous
            stored_folder = Path(row.workspace)
            workspace = stored_folder if row.workspace and stored_folder.is_dir() else folder
            editor_servers = await set_up_servers(servers, workspace, services)
        if tools_json:
            editor_servers.enter(read_specs(tools_json.encode()))
        mode = "plan" if is_planning else program.mode
        open_session = OpenedSession(session_id, workspace, mode, self.editor, editor_servers)
        self._open[session_id] = open_session
        if previous is not None:
            await previous.aclose()
        await program.hosted.release(session_id)  # so that it gets the editor's present servers
        self._send_commands(open_session, services.home.root)
        open_session.title = row.title
        if row.model_chosen and row.provider == services.models.provider.info.provider:
            open_session.chosen_model = row.model
        return open_session

    async def fork(self, cwd: str, session_id: str, servers: Sequence[ServerOffer]) -> OpenedSession:
        """Copy the finished turns of a stored session into a new one, and open that."""
        with convert_errors():
            services = (await self.program()).hosted.services
            new_id, now = services.clock.new_id(), iso(services.clock.now())
            await services.database.write(lambda db: forks.fork(db, session_id, 0, new_id, now))
        return await self.reopen(cwd, new_id, servers)

    async def set_mode(self, open_session: OpenedSession, mode: options.Mode) -> None:
        """Set a session's mode, from the next call on. Leaving plan mode approves the plan."""
        services = (await self.program()).hosted.services
        if (mode == "plan") != services.gate.get().plans.has(open_session.session_id):
            await planning.set_planning(services, open_session.session_id, mode == "plan")
        open_session.mode = mode

    def _send_commands(self, open_session: OpenedSession, root: Path) -> None:
        update = update_available_commands(self.commander.list_available(root, open_session.workspace))
        loop = asyncio.get_running_loop()
        loop.call_later(_AFTER_ANSWER_S, self.editor.outbox.send, open_session.session_id, update)

    def find_session(self, session_id: str) -> OpenedSession:
        """Return an open session. Raises RequestError if it is not open."""
        open_session = self._open.get(session_id)
        if open_session is None:
            raise RequestError(-32602, f"session {session_id} is not open", {"hint": "session/load opens it"})
        return open_session

    def model(self, open_session: OpenedSession) -> str:
        """Return the model for a session's next prompt."""
        assert self._program is not None  # a session is open
        hosted = self._program.hosted
        return open_session.next_model(
            hosted.find_open(open_session.session_id), hosted.services.models.provider.info.model
        )

    def resolve_model(self, name: str) -> str:
        """Return the model that an alias is for, or any other name unchanged."""
        assert self._program is not None  # a session is open
        return self._program.hosted.services.models.settings.aliases.get(name, name)

    def options_of(self, open_session: OpenedSession) -> Any:
        """Return a session's options: its mode and its model."""
        return options.list_options(open_session.mode, self.model(open_session), self.models)

    def send_options(self, open_session: OpenedSession) -> None:
        """Send a session's options to the editor."""
        update = options.options_update(open_session.mode, self.model(open_session), self.models)
        self.editor.outbox.send(open_session.session_id, update)

    async def close(self, session_id: str) -> None:
        """Cancel a session's prompts and stop its servers. Raises RequestError if it is not open."""
        open_session = self.find_session(session_id)
        del self._open[session_id]
        await open_session.aclose()

    def cancel(self, session_id: str) -> None:
        """Cancel a session's running and waiting prompts, if it is open."""
        if (open_session := self._open.get(session_id)) is not None:
            open_session.cancel()

    async def aclose(self) -> None:
        """Cancel the turns and close the program."""
        if self._connected is not None:
            self._connected.outbox.close()
        if self._listing is not None:
            self._listing.cancel()
        if self._program is not None:
            await self._program.hosted.aclose()
            await asyncio.gather(*(open_session.aclose() for open_session in self._open.values()))
            await self._program.hosted.services.reviews.get().stop_and_hand_over()
            await self._program.close()


def _row_and_prefix(connection: apsw.Connection, session_id: str) -> tuple[SessionRow, tuple[str, str]]:
    return sessions.get(connection, session_id), sessions.read_prefix(connection, session_id)


def _check_folder(cwd: str) -> Path:
    folder = Path(cwd)
    if not folder.is_absolute() or not folder.is_dir():
        raise RequestError(-32602, f"{cwd} is not a folder", {"hint": "cwd is an absolute path"})
    return folder
