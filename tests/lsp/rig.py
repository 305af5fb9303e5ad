"""A project with a toy language server, and the tools that a session there has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from whet.app.conversations.session_builder import check_edits
from whet.config.permission_settings import LanguageServerSettings, LspSettings
from whet.config.schema import Settings
from whet.contract.errors import ToolError
from whet.contract.tools import Buffers, Tool, ToolContext
from whet.lanes import ToolPool
from whet.lsp.kinds import ServerProgram, find_servers
from whet.lsp.service import CodeService
from whet.sandbox.path_rules import read_path_rules
from whet.tools.toolsets.files import FileTools

TOY = Path(__file__).parent / "toy_server.py"


def toy(fault: str = "pull", **more: Any) -> LanguageServerSettings:
    return LanguageServerSettings(sys.executable, ("-S", "-E", str(TOY), fault), ("*.toy",), **more)


class Project:
    """A workspace with its tools. `printed` is what calls showed while they ran."""

    def __init__(self, folder: Path, settings: LspSettings, deny: Sequence[str] = ()) -> None:
        self.folder = folder
        self.printed: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.buffers: Buffers | None = None
        self._lsp_settings = settings
        self.service = CodeService(settings, read_path_rules(deny), self._spawn)
        self.tools: dict[str, Tool] = {}
        self._rules = read_path_rules(deny)

    def _spawn(self, root: Path, program: ServerProgram) -> subprocess.Popen[bytes]:
        self.processes.append(
            subprocess.Popen(
                program.command,
                cwd=root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        )
        return self.processes[-1]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def begin(self) -> None:
        """Begin a session: its tools are those that are there now."""
        servers = find_servers(self.folder, self._lsp_settings.servers)
        file_tools = FileTools(ToolPool(2), rules=self._rules)
        list_code_tools = {tool.name: tool for tool in self.service.tools(self.folder, servers)}
        tools = {tool.name: tool for tool in file_tools}
        settings = Settings(lsp=self._lsp_settings)
        self.tools = {**check_edits(tools, self.service.check_edit, settings), **list_code_tools}

    async def call(self, name: str, session: str = "s1", **arguments: object) -> str:
        """Return the text of a call's result, planned and run as the loop does."""

        async def ask(_question: str, _choices: Sequence[str]) -> str | None:
            return None

        ctx = ToolContext(session, "t", "c", self.folder, self.printed.append, ask, self.buffers)
        given: dict[str, Any] = dict(arguments)
        try:
            tool = self.tools[name]
            if tool.plan is not None and (planned := await tool.plan(ctx, given)) is not None:
                tool, given = self.tools[planned[0]], planned[1]
            return (await tool.run(ctx, given)).text
        except ToolError as error:
            return f"error: {error.message}"

    async def edit(self, name: str, text: str) -> str:
        """Return what the result of writing a file says after its first line."""
        return (await self.call("write_file", path=name, content=text)).partition("\n")[2]


@asynccontextmanager
async def project(
    folder: Path,
    fault: str = "pull",
    *,
    check_s: float = 30.0,
    deny: Sequence[str] = (),
    files: dict[str, str] | None = None,
) -> AsyncGenerator[Project]:
    """Open a project with the toy server; all of its processes are ended at the end."""
    settings = LspSettings(servers={"toy": toy(fault)}, check_s=check_s)
    one = Project(Path(os.path.realpath(folder)), settings, deny)
    for name, text in (files or {"a.toy": "def one\n"}).items():
        one.write(name, text)
    one.begin()
    try:
        yield one
    finally:
        await one.service.aclose()
        assert all(process.poll() is not None for process in one.processes), "a server was left running"
