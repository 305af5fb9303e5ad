"""The SDK's own client, unmodified, with `whet acp` as a process behind it.

`Desk` keeps one process for many tests; each has sessions of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeclineElicitationResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileEditToolCallContent,
    FileSystemCapabilities,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
    WriteTextFileResponse,
)

from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

T = TypeVar("T")


ABLE = ClientCapabilities(
    fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
    elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()),
)


class Editor:
    """What an editor sees, and how it answers questions: `answer` gives the option to pick, None to close.

    `buffers` are its unsaved files by path. `faulty` is how it treats requests about files: "" as an editor
    does, "fails", "hangs", "lies" (says that it wrote), "keeps" (does not save), "formats" (alters the text).
    """

    def __init__(self) -> None:
        self.buffers: dict[str, str] = {}
        self.faulty = ""
        self.files: list[tuple[str, str]] = []
        self.forms: list[tuple[str, Any]] = []
        self.filled: Callable[[Any], str | None] = lambda mode: None
        self.thawed = asyncio.Event()
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

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        self.forms.append((message, mode))
        self.changed.set()
        await self.hold.wait()
        text = self.filled(mode)
        if text is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content={"answer": text})

    async def read_text_file(self, session_id: str, path: str, **kwargs: Any) -> ReadTextFileResponse:
        self.files.append(("read", path))
        await self._fault()
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        if not Path(path).is_file():
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(
        self, session_id: str, path: str, content: str, **kwargs: Any
    ) -> WriteTextFileResponse:
        self.files.append(("write", path))
        await self._fault()
        if self.faulty == "keeps":
            self.buffers[path] = content
        elif self.faulty != "lies":
            self.buffers.pop(path, None)
            Path(path).write_text(content.upper() if self.faulty == "formats" else content)
        return WriteTextFileResponse()

    async def _fault(self) -> None:
        if self.faulty == "fails":
            raise RequestError.internal_error({"details": "no such buffer"})
        if self.faulty == "hangs":
            self.changed.set()
            await self.thawed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was seen fulfils a condition."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def of(self, kind: type[Any], session_id: str = "") -> list[Any]:
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
        fields: dict[str, list[Any]] = {}
        for one in (*self.of(ToolCallStart), *self.of(ToolCallProgress)):
            fields.setdefault(one.tool_call_id, []).append(one)
        return fields

    def diffs(self) -> list[FileEditToolCallContent]:
        return [
            block
            for one in self.of(ToolCallProgress)
            for block in one.content or ()
            if isinstance(block, FileEditToolCallContent)
        ]


@asynccontextmanager
async def editing(
    home: Path,
    server: PracticeServer | None,
    folder: Path,
    *arguments: str,
    able: ClientCapabilities | None = None,
    sandbox: str = "off",
) -> AsyncGenerator[tuple[Editor, Any, Any]]:
    """Start `whet acp` as an editor does; gives the editor, the connection and the process."""
    folder.mkdir(exist_ok=True)
    flags = ["--provider", "practice", "--base-url", server.base_url, "--model", "practice"] if server else []
    environ = {
        "WHET_HOME": str(home),
        "WHET_MODEL_MAX_RETRIES": "0",
        "WHET_REVIEW_WORKER": "off",
        "WHET_SANDBOX_MODE": sandbox,
        # Else a run in a copy of the tree, as mutants are, would drive the program of another one.
        **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
    }
    editor = Editor()
    command = [sys.executable, "-m", "whet", "acp", *flags, *arguments]
    async with spawn_agent_process(
        editor,  # pyright: ignore[reportArgumentType] the optional methods of a client are left out
        *command,
        env=environ,
        cwd=folder,
        transport_kwargs={"stderr": None, "shutdown_timeout": 30.0},
        use_unstable_protocol=True,
    ) as (connection, process):
        await connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=able)
        yield editor, connection, process


class Desk:
    """One `whet acp` that stays, on a loop of its own thread; `run` runs a story on that loop."""

    def __init__(self, root: Path, server: PracticeServer, *, sandbox: str = "off") -> None:
        self.home, self.work = root / "home", root / "work"
        self.server = server
        self.editor = Editor()
        self.connection: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._context = editing(self.home, server, self.work, able=ABLE, sandbox=sandbox)
        self.editor, self.connection, self.process = self.run(self._context.__aenter__())

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a story to its end, a minute at most."""

        async def play() -> T:
            async with asyncio.timeout(60):
                return await story

        return asyncio.run_coroutine_threadsafe(play(), self._loop).result(70)

    def clear(self) -> None:
        """Forget what was seen, what the server was to say, and the files."""
        for left in self.work.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        self.editor.updates.clear()
        self.editor.asked.clear()
        self.editor.forms.clear()
        self.editor.files.clear()
        self.editor.buffers.clear()
        self.editor.thawed.clear()
        self.editor.faulty = ""
        self.editor.filled = lambda mode: None
        self.editor.answer = lambda options: None
        self.server.reset()

    async def session(self, mode: str = "ask", servers: Sequence[Any] = ()) -> str:
        """Begin a session in the work folder."""
        made = await self.connection.new_session(cwd=str(self.work), mcp_servers=[*servers])
        if mode != "ask":
            await self.connection.set_session_mode(session_id=made.session_id, mode_id=mode)
        return made.session_id

    async def ask(self, session_id: str, text: str) -> str:
        """Send a prompt and give its stop reason."""
        answer = await self.connection.prompt(session_id=session_id, prompt=[text_block(text)])
        return answer.stop_reason

    def close(self) -> None:
        """End the process and the loop."""
        self.run(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


def does(tool: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, json.dumps(arguments)),))


def pick(kind: str) -> Any:
    """Answer with the first option of a kind."""

    def answer(options: list[PermissionOption]) -> str:
        return next(option.option_id for option in options if option.kind == kind)

    return answer
