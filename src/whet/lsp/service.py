"""Run one language server for each workspace and language. The sessions of a workspace share it, and it ends
with the last of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.config.permission_settings import LspSettings
from whet.contract.changes import TextChange
from whet.contract.errors import BadInput, ToolError
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.file_names import printable
from whet.lsp.checks import EditChecks
from whet.lsp.kinds import ServerProgram, find_server
from whet.lsp.project import ProjectFiles
from whet.lsp.server import LanguageServer
from whet.sandbox.path_rules import PathRules
from whet.tools import editor_files
from whet.tools.encoding import decode
from whet.tools.paths import FileAccess, resolve
from whet.tools.toolsets.code import CodeTools

if TYPE_CHECKING:
    from whet.lsp.lookups import SymbolQuery
    from whet.sandbox.jail import Started

_MAX_SERVERS = 6
Spawn = Callable[[Path, ServerProgram], "Started"]


class CodeService:
    """Language servers, their tools, and the checks of edits. `spawn` starts a server in the sandbox."""

    def __init__(self, settings: LspSettings, rules: PathRules, spawn: Spawn) -> None:
        self._settings = settings
        self._rules = rules
        self._spawn = spawn
        self._servers: dict[Path, list[ServerProgram]] = {}
        self._checks: dict[tuple[Path, str], EditChecks] = {}
        self._users: dict[tuple[Path, str], set[str]] = {}

    def tools(self, workspace: Path, servers: Sequence[ServerProgram]) -> list[Tool]:
        """Return the tools for a workspace with these servers, none without servers."""
        self._servers[Path(os.path.realpath(workspace))] = [*servers]
        return [*CodeTools(self)] if servers else []

    async def check_edit(self, ctx: ToolContext, output: ToolOutput) -> ToolOutput:
        """Return the output of an edit, with the errors that the edit introduced added to its text."""
        try:
            lines = await self._check(ctx, output)
        except asyncio.CancelledError:
            ctx.output(output.text)  # the edit was made, so a stopped call keeps its text
            raise
        return msgspec.structs.replace(output, text=f"{output.text}\n{lines}") if lines else output

    async def look_up(self, ctx: ToolContext, given: dict[str, Any]) -> ToolOutput:
        """Answer a question about a symbol. Raises ToolError."""
        from whet.lsp.lookups import find_locations, list_symbols  # noqa: PLC0415 - with the first call

        query = await asyncio.to_thread(self._read_query, ctx, given)
        if query.action in ("definition", "references"):
            return ToolOutput(await find_locations(await self._find_checks(ctx, query.path), query))
        if query.action == "rename":
            raise ToolError("a rename is an edit, and can't be made here")
        if query.path is not None:
            rows = await list_symbols(await self._find_checks(ctx, query.path), query)
        else:
            servers = self._servers.get(Path(os.path.realpath(ctx.workspace)), [])
            lists = [await list_symbols(self._get_checks(ctx, server), query) for server in servers]
            rows = [row for rows in lists for row in rows]
        more = [f"[and {len(rows) - 200} more]"] if len(rows) > 200 else []
        return ToolOutput("\n".join([*rows[:200], *more]) or "[no symbols]")

    async def plan_call(self, ctx: ToolContext, given: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return the patch call that carries out a rename, or None if the call only reads. Raises
        ToolError."""
        if given.get("action") != "rename":
            return None
        from whet.lsp.lookups import plan_rename  # noqa: PLC0415 - with the first call
        from whet.tools.toolsets.files import PATCH  # noqa: PLC0415 - as above

        query = await asyncio.to_thread(self._read_query, ctx, given)
        checks = await self._find_checks(ctx, query.path)

        def read_text(path: Path) -> str | None:
            return self._read_unsaved(ctx, path) or checks.files.read(path)

        return PATCH, {"diff": await plan_rename(checks, query, read_text)}

    async def release(self, session_id: str) -> None:
        """End the servers that no other session uses."""
        for key, users in list(self._users.items()):
            users.discard(session_id)
            if not users:
                del self._users[key]
                if (checks := self._checks.pop(key, None)) is not None:
                    await checks.server.aclose()

    async def aclose(self) -> None:
        """End all servers."""
        await asyncio.gather(*(checks.server.aclose() for checks in self._checks.values()))
        self._checks.clear()

    async def _check(self, ctx: ToolContext, output: ToolOutput) -> str:
        root = Path(os.path.realpath(ctx.workspace))
        changes: dict[str, list[TextChange]] = {}
        servers: dict[str, ServerProgram] = {}
        for change in () if output.is_error else output.changes:
            path = Path(change.absolute_path)
            if path.is_relative_to(root) and (server := await self._find_server(root, path.suffix)):
                servers[server.kind.name] = server
                changes.setdefault(server.kind.name, []).append(change)
        lines: list[str] = []
        for name, server in servers.items():
            await self._end_others(root)
            checks = self._get_checks(ctx, server)
            lines.append(await checks.check(changes[name], self._settings.check_s))
        return "\n".join(filter(None, lines))

    async def _find_server(self, root: Path, ending: str) -> ServerProgram | None:
        """Return the workspace's server for files with an ending, or None. Searches again if there was none,
        because the first file of a language, or its server, may be newer than the session."""
        servers = self._servers.setdefault(root, [])
        for server in servers:
            if ending in server.kind.languages:
                return server
        server = await asyncio.to_thread(find_server, ending, root, self._settings.servers)
        if server is not None and server not in servers:
            servers.append(server)
        return server

    async def _end_others(self, root: Path) -> None:
        """End the least recently used servers of other roots, if more than `_MAX_SERVERS` run."""
        idle = [
            key for key, checks in self._checks.items() if key[0] != root and not checks.server.lock.locked()
        ]
        for key in idle[: max(0, len(self._checks) - _MAX_SERVERS)]:
            await self._checks.pop(key).server.aclose()

    def _get_checks(self, ctx: ToolContext, server: ServerProgram) -> EditChecks:
        root = Path(os.path.realpath(ctx.workspace))
        key = (root, server.kind.name)
        self._users.setdefault(key, set()).add(ctx.session_id)
        if key not in self._checks:

            def is_closed(path: Path) -> bool:
                return bool(self._rules.find(path, root, writes=False))

            process = LanguageServer(server, root, lambda: self._spawn(root, server))
            self._checks[key] = EditChecks(process, ProjectFiles(root, server.kind.languages, is_closed))
        self._checks[key] = self._checks.pop(key)  # keep the order of use
        return self._checks[key]

    async def _find_checks(self, ctx: ToolContext, path: Path | None) -> EditChecks:
        if path is None:
            raise BadInput("name the path of a file in which the symbol is written")
        if server := await self._find_server(Path(os.path.realpath(ctx.workspace)), path.suffix):
            return self._get_checks(ctx, server)
        raise BadInput(f"there is no language server for {printable(path.name)}")

    def _read_query(self, ctx: ToolContext, given: dict[str, Any]) -> SymbolQuery:
        from whet.lsp.lookups import SymbolQuery  # noqa: PLC0415 - with the first call

        query = SymbolQuery(
            given["action"],
            symbol=given.get("symbol", ""),
            line=given.get("line", 0),
            new_name=given.get("new_name", ""),
        )
        if query.action != "symbols" and not query.symbol.strip():
            raise BadInput(f"{query.action} needs the symbol's name")
        if query.action == "rename" and not query.new_name.strip():
            raise BadInput("rename needs new_name")
        if not (text := given.get("path", "")):
            return query
        path = FileAccess(rules=self._rules).resolve(text, ctx.workspace).path
        return msgspec.structs.replace(query, path=path, unsaved=self._read_unsaved(ctx, path))

    def _read_unsaved(self, ctx: ToolContext, path: Path) -> str | None:
        unsaved = editor_files.read_unsaved(ctx.buffers, resolve(str(path), ctx.workspace))
        decoded = decode(unsaved) if unsaved is not None else None
        return None if decoded is None else decoded[0]
