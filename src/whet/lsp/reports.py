"""Store the reports of a language server, and answer its requests. It gets settings and folders, but may not
edit or open anything."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.lsp.errors import CodeError, read_errors
from whet.lsp.positions import to_path, to_uri

_MAX_REPORTED_FILES = 2_000
_MAX_TOKENS = 100


class ShownFile(msgspec.Struct):
    """A file that was shown to the server: its text and version, and the number of reports before it was
    shown."""

    text: str
    version: int
    reports_before: int


class _Report(msgspec.Struct, frozen=True):
    """The last report on a file. `version` is that of the file, or None if the server does not name it."""

    errors: list[CodeError]
    version: int | None
    number: int


class ServerReports:
    """The files that were shown to a server, and its last reports on these and other files below `root`."""

    def __init__(self, root: Path, settings: Mapping[str, Any]) -> None:
        self.files: OrderedDict[Path, ShownFile] = OrderedDict()
        self.changed: asyncio.Event = asyncio.Event()
        """Set with every report, and when the server ends."""
        self.count: int = 0
        self.folders: list[dict[str, str]] = [{"uri": to_uri(root), "name": root.name}]
        self._root = root
        self._settings = settings
        self._reports: dict[Path, _Report] = {}
        self._working: set[str] = set()

    @property
    def is_working(self) -> bool:
        """Whether the server has reported that it is working on something."""
        return bool(self._working)

    def errors(self) -> dict[Path, list[CodeError]]:
        """Return the errors of all reported files."""
        return {path: report.errors for path, report in self._reports.items()}

    def clear(self) -> None:
        """Remove all files and reports, because the server starts again."""
        self.files.clear()
        self._reports.clear()
        self._working.clear()

    def is_reported(self, path: Path) -> bool:
        """Return whether the server has reported on the last shown version of a file."""
        report, file = self._reports.get(path), self.files.get(path)
        if report is None or file is None:
            return file is None
        return report.number > file.reports_before and report.version in (None, file.version)

    def may_be_silent(self, path: Path) -> bool:
        """Return whether the server may send no report on a file, because it still has no errors."""
        report = self._reports.get(path)
        return report is not None and report.version is None and not report.errors

    def keep(self, path: Path, errors: list[CodeError], version: int | None = None) -> None:
        """Store the report on a file, unless there are reports on too many files."""
        self.count += 1
        if path in self._reports or len(self._reports) < _MAX_REPORTED_FILES:
            self._reports[path] = _Report(errors, version, self.count)
        self.changed.set()

    def answer(self, method: str, params: Any) -> Any:
        """Return the answer to a server's request, or store its notification. Raises LookupError if the
        method is unknown, and LookupError, TypeError, ValueError or AttributeError if the message is
        malformed."""
        match method:
            case "textDocument/publishDiagnostics":
                path, version = to_path(str(params["uri"])), params.get("version")
                if path is not None and path.is_relative_to(self._root):
                    number = version if isinstance(version, int) else None
                    self.keep(path, read_errors(params["diagnostics"]), number)
            case "$/progress":
                self._note_progress(str(params["token"]), params["value"].get("kind"))
            case "workspace/configuration":
                return [self._setting(str(item.get("section") or "")) for item in params["items"][:100]]
            case "workspace/workspaceFolders":
                return self.folders
            case "workspace/applyEdit":
                return {"applied": False, "failureReason": "nothing asked for this edit"}
            case "window/showDocument":
                return {"success": False}
            case (
                "client/registerCapability"
                | "client/unregisterCapability"
                | "window/workDoneProgress/create"
                | "window/showMessageRequest"
                | "workspace/diagnostic/refresh"
            ):
                return None
            case _:
                raise LookupError(method)
        return None

    def _note_progress(self, token: str, kind: object) -> None:
        if kind == "begin" and len(self._working) < _MAX_TOKENS:
            self._working.add(token)
        elif kind == "end":
            self._working.discard(token)
        self.changed.set()

    def _setting(self, section: str) -> Any:
        value: Any = self._settings
        python = self._root / ".venv" / "bin" / "python"
        if section == "python" and section not in value and python.exists():
            return {"pythonPath": str(python)}
        for part in section.split(".") if section else ():
            value = cast("dict[str, Any]", value).get(part) if isinstance(value, Mapping) else None
        return value
