"""One language server for one project: started on first use, restarted once after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from whet.config.permission_settings import SERVER_START_S
from whet.contract.errors import ToolError
from whet.lsp.connection import ServerConnection, ServerEnded
from whet.lsp.errors import CodeError, read_errors
from whet.lsp.kinds import ServerProgram
from whet.lsp.positions import to_uri
from whet.lsp.project import ChangeKind
from whet.lsp.reports import ServerReports, ShownFile

if TYPE_CHECKING:
    from whet.sandbox.jail import Started

log: logging.Logger = logging.getLogger("whet.lsp")
_STARTS = 2
_MAX_SHOWN_FILES = 40
_SETTLE_S = 0.4
_QUIET_S = 1.0
_IDLE_S = 0.05
_BUSY_S = 1.0
_SILENT_S = 60.0
_CLIENT: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-16"]},
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": False},
        "definition": {"linkSupport": True},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "rename": {},
    },
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "workspaceEdit": {"documentChanges": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True},
    },
    "window": {"workDoneProgress": True},
}


class LanguageServer:
    """A server for `root`. `spawn` starts its process in the sandbox; it blocks and may raise ToolError."""

    def __init__(self, program: ServerProgram, root: Path, spawn: Callable[[], Started]) -> None:
        self.program: ServerProgram = program
        self.root: Path = root
        self.lock: asyncio.Lock = asyncio.Lock()
        """Held during a check, so that the server sees one edit at a time."""
        self.reports: ServerReports = ServerReports(root, program.kind.settings)
        self.has_checked: bool = False
        """Whether a check has succeeded. A server that has just started needs more time."""
        self.has_loaded: bool = False
        """Whether it has read all files of the project. Until then, answers about it are incomplete."""
        self._spawn = spawn
        self._start: asyncio.Task[ServerConnection] | None = None
        self._starts = 0
        self._is_busy = False
        self._connection: ServerConnection | None = None
        self._capabilities: dict[str, Any] = {}

    async def request(self, method: str, params: Mapping[str, Any], within_s: float) -> Any:
        """Send a request and return its result. Raises ToolError if the server refuses, ends or does not
        answer in time."""
        connection = self._running()
        within_s = self._limit(within_s)
        try:
            async with asyncio.timeout(within_s):
                answer = await connection.request(method, params)
        except TimeoutError:
            await self._note_missed()
            raise ToolError(f"{self.program.name} did not answer within {within_s:g} s") from None
        self._is_busy = False
        return answer

    async def show(self, path: Path, text: str) -> None:
        """Open a file at the server with this text, or update it. Raises ToolError."""
        connection, reports, uri = self._running(), self.reports, to_uri(path)
        file = reports.files.get(path)
        if file is None:
            reports.files[path] = ShownFile(text, 1, reports.count)
            language = self.program.kind.languages.get(path.suffix, "")
            document = {"uri": uri, "languageId": language, "version": 1, "text": text}
            await connection.notify("textDocument/didOpen", {"textDocument": document})
            while len(reports.files) > _MAX_SHOWN_FILES:
                await self.hide(next(iter(reports.files)))
            return
        reports.files.move_to_end(path)
        if file.text != text:
            file.text, file.version, file.reports_before = text, file.version + 1, reports.count
            await connection.notify(
                "textDocument/didChange",
                {"textDocument": {"uri": uri, "version": file.version}, "contentChanges": [{"text": text}]},
            )

    async def hide(self, path: Path) -> None:
        """Close a file at the server, which then uses the file on disk again. Raises ServerEnded."""
        if self.reports.files.pop(path, None) is not None:
            connection = self._running()
            await connection.notify("textDocument/didClose", {"textDocument": {"uri": to_uri(path)}})

    async def note_saved(self, changes: Mapping[Path, ChangeKind]) -> None:
        """Notify the server about files that were created, changed or deleted on disk. Raises ServerEnded."""
        connection = self._running()
        if set(changes.values()) != {ChangeKind.CHANGED}:
            self.has_loaded = False
        events = [{"uri": to_uri(path), "type": kind} for path, kind in changes.items()]
        await connection.notify("workspace/didChangeWatchedFiles", {"changes": events})
        for path in self.reports.files.keys() & changes.keys():
            await connection.notify("textDocument/didSave", {"textDocument": {"uri": to_uri(path)}})

    async def find_errors(self, paths: list[Path], within_s: float) -> dict[Path, list[CodeError]] | None:
        """Wait until the server has reported on the last shown versions of `paths`. Returns the errors of all
        reported files, or None after `within_s`. Raises ToolError."""
        try:
            async with asyncio.timeout(self._limit(within_s)):
                if self._capabilities.get("diagnosticProvider"):
                    await self._pull(paths)
                else:
                    await self._until_reported(paths)
        except TimeoutError:
            if not all(self.reports.is_reported(path) for path in paths):
                await self._note_missed()
                return None
        self._is_busy, self.has_checked = False, True
        return self.reports.errors()

    async def wait_until_idle(self) -> None:
        """Wait until the server reports no work and has been silent for a moment. Raises ServerEnded."""
        while True:
            self.reports.changed.clear()
            self._running()
            try:
                async with asyncio.timeout(None if self.reports.is_working else _IDLE_S):
                    await self.reports.changed.wait()
            except TimeoutError:
                return

    async def connect(self) -> ServerConnection:
        """Return the connection of the server. Starts it if it does not run. Raises ToolError."""
        if self._connection is not None and not self._connection.ended and self._start is None:
            return self._connection
        if self._start is None:
            if self._starts >= _STARTS:
                reason = self._connection.ended if self._connection is not None else "it could not be started"
                raise ServerEnded(f"{self.program.name} is off: {reason}")
            self._starts += 1
            self._start = asyncio.create_task(self._begin())
        # Shielded: if this call is cancelled, the start continues, so that its process is not lost.
        return await asyncio.shield(self._start)

    async def aclose(self) -> None:
        """End the server. It is not started again."""
        self._starts = _STARTS
        for _ in range(2):  # a start that is in progress opens another connection
            if self._connection is not None:
                await self._connection.close()
            if (start := self._start) is not None:
                await asyncio.wait([start])

    async def _begin(self) -> ServerConnection:
        reports, name = self.reports, self.program.name
        try:
            if self._connection is not None:
                await self._connection.close()  # the one that crashed
            process = await asyncio.to_thread(self._spawn)
            reports.clear()
            self._is_busy = self.has_checked = self.has_loaded = False
            connection = ServerConnection(name, process, reports.answer, reports.changed.set)
            self._connection = connection
            try:
                await connection.open()
                async with asyncio.timeout(SERVER_START_S):
                    await self._initialize(connection)
            except TimeoutError:
                await connection.close()
                raise ToolError(f"{name} did not start within {SERVER_START_S:g} s") from None
            except BaseException:
                await connection.close()
                raise
            return connection
        finally:
            self._start = None

    async def _initialize(self, connection: ServerConnection) -> None:
        answer = await connection.request(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": "whet"},
                "rootUri": to_uri(self.root),
                "rootPath": str(self.root),
                "workspaceFolders": self.reports.folders,
                "capabilities": _CLIENT,
                "initializationOptions": self.program.kind.settings or None,
            },
        )
        result = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        capabilities = result.get("capabilities")
        self._capabilities = cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}
        await connection.notify("initialized", {})
        await connection.notify("workspace/didChangeConfiguration", {"settings": self.program.kind.settings})

    def _running(self) -> ServerConnection:
        """Return the connection of the running server. Raises ServerEnded if none runs. Does not start one,
        because a new server would not know the shown files."""
        connection = self._connection
        if connection is None:
            raise ServerEnded(f"{self.program.name} does not run")
        connection.check()
        return connection

    def _limit(self, within_s: float) -> float:
        return min(within_s, _BUSY_S) if self._is_busy else within_s

    async def _note_missed(self) -> None:
        """Shorten the time limits of a server that did not answer in time, until it does. End it if it has
        sent nothing for `_SILENT_S`."""
        connection, self._is_busy = self._connection, True
        if connection is not None and connection.silent_s() > _SILENT_S:
            log.warning("%s hangs and is ended", self.program.name)
            await connection.close()

    async def _pull(self, paths: list[Path]) -> None:
        connection = self._running()
        for path in paths:
            document = {"textDocument": {"uri": to_uri(path)}}
            answer = await connection.request("textDocument/diagnostic", document)
            if isinstance(answer, dict) and "items" in answer:
                self.reports.keep(path, read_errors(cast("dict[str, Any]", answer)["items"]))

    async def _until_reported(self, paths: list[Path]) -> None:
        """Wait until the server has reported on the last shown version of each file, and has then been silent
        for a moment.

        Some servers report syntax errors first and type errors later, and some report nothing for a file that
        still has no errors. So a question that needs types is asked before silence counts as an answer.
        """
        reports, has_answered = self.reports, False
        while True:
            reports.changed.clear()
            connection = self._running()
            missing = [path for path in paths if not reports.is_reported(path)]
            is_quiet = not reports.is_working and all(reports.may_be_silent(path) for path in missing)
            wait_s = _SETTLE_S if has_answered or not missing else _QUIET_S
            try:
                async with asyncio.timeout(wait_s if is_quiet else None):
                    await reports.changed.wait()
            except TimeoutError:
                if has_answered or not paths:
                    return
                document = {"uri": to_uri((missing or paths)[-1])}
                params = {"textDocument": document, "position": {"line": 0, "character": 0}}
                with contextlib.suppress(ToolError):  # there may be no name at this position
                    await connection.request("textDocument/definition", params)
                has_answered = True
