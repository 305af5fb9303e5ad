"""Check an edit by comparing the errors that a language server reports before and after it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from whet.config.permission_settings import FIRST_CHECK_S
from whet.contract.changes import TextChange
from whet.contract.errors import ToolError
from whet.lsp.errors import CodeError, FileErrors, describe_new, find_new
from whet.lsp.project import MAX_FILE_BYTES, ChangeKind, ProjectFiles
from whet.lsp.server import LanguageServer

log: logging.Logger = logging.getLogger("whet.lsp")
_MAX_RELATED = 8
_MAX_CHANGED = 20
Reports = Mapping[Path, Sequence[CodeError]]


class EditChecks:
    """Checks edits with one server. If a check times out, the next successful check reports the errors that
    the edit may have introduced."""

    def __init__(self, server: LanguageServer, files: ProjectFiles) -> None:
        self.server: LanguageServer = server
        self.files: ProjectFiles = files
        self._known: dict[Path, FileErrors] = {}
        self._unsure: set[Path] = set()
        self._failure = ""

    async def refresh(self, skipped: Collection[Path] = ()) -> None:
        """Send the server the files that changed on disk since the last call, except `skipped`. Raises
        ToolError."""
        server = self.server
        await server.connect()
        changes = await asyncio.to_thread(self.files.list_changes)
        changes = {path: kind for path, kind in changes.items() if path not in skipped}
        for path in [path for path in server.reports.files if path in changes]:
            text = await asyncio.to_thread(self.files.read, path)
            await self._show_or_hide(path, text)
        if changes:
            await server.note_saved(changes)

    async def show(self, path: Path, text: str | None = None) -> str | None:
        """Show the server a file with `text` or, if that is None, as it is on disk. Returns its text, or None
        if a deny rule closes it or it is not text. Raises ToolError."""
        text = await asyncio.to_thread(self.files.read, path) if text is None else text
        if text is not None:
            await self.server.show(path, text)
        return text

    async def _show_or_hide(self, path: Path, text: str | None) -> None:
        if text is None:
            await self.server.hide(path)
        else:
            await self.server.show(path, text)

    async def check(self, changes: Sequence[TextChange], within_s: float) -> str:
        """Return a report of the errors that an edit introduced, or of why it could not be checked. Usually
        returns "". Raises only CancelledError."""
        name = self.server.program.name
        within_s = within_s if self.server.has_checked else max(within_s, FIRST_CHECK_S)
        edits = {Path(change.absolute_path): change for change in changes[:_MAX_CHANGED] if _is_small(change)}
        try:
            async with self.server.lock:
                lines = await self._check(edits, within_s) if edits else ""
        except ToolError as error:
            return self._report_failure(error.message)
        except Exception:  # the edit was made, so its result must not be lost
            log.exception("checking an edit failed")
            return self._report_failure(f"{name} sent what can't be read")
        if lines is None:
            self._unsure = {*self._known, *edits}
            return self._report_failure(f"{name} did not answer in time; its errors come with a later edit")
        self._failure = ""
        return lines

    async def _check(self, edits: Mapping[Path, TextChange], within_s: float) -> str | None:
        """Compare the server's errors before the edits with those after them. Returns None if the time runs
        out."""
        server = self.server
        await self.refresh(edits.keys())
        start_s = time.monotonic()

        def left_s() -> float:
            return max(0.0, start_s + within_s - time.monotonic())

        for path in await asyncio.to_thread(self.files.find_mentions, edits.keys(), _MAX_RELATED):
            await self.show(path)
        for path, change in edits.items():
            if change.old is not None:
                await server.show(path, change.old)
        checked = [path for path in server.reports.files if path not in self._unsure]
        before = await server.find_errors(checked, left_s())
        if before is None:
            return None
        self._remember(before, {path for path, change in edits.items() if change.old is None})
        for path, change in edits.items():
            await self._show_or_hide(path, change.new)
        await server.note_saved({path: _kind_of(change) for path, change in edits.items()})
        after = await server.find_errors(list(server.reports.files), left_s())
        if after is None:
            return None
        self._unsure = {path for path in edits if not server.reports.is_reported(path)}
        return self._report_new(after)

    def _remember(self, reports: Reports, created: Collection[Path]) -> None:
        """Store the errors before an edit as known, except in files whose last check timed out."""
        for path, errors in reports.items():
            if path not in self._unsure or path not in self._known:
                self._known[path] = self._with_text(path, errors)
        self._known |= {path: FileErrors() for path in created}

    def _report_new(self, reports: Reports) -> str:
        """Return a report of the errors that are not known yet, and store all errors as known."""
        new: dict[Path, FileErrors] = {}
        for path, errors in reports.items():
            after = self._with_text(path, errors)
            fresh = find_new(self._known.get(path, FileErrors()), after)
            self._known[path] = after
            if fresh:
                new[path] = FileErrors(fresh, after.text)
        return describe_new(self.server.program.name, new, self.server.root)

    def _report_failure(self, reason: str) -> str:
        """Return a line about a failure, or an empty string if the reason is the same as the last time."""
        if reason == self._failure:
            return ""
        self._failure = reason
        return f"[this edit was not checked: {reason}]"

    def _with_text(self, path: Path, errors: Sequence[CodeError]) -> FileErrors:
        file = self.server.reports.files.get(path)
        return FileErrors(errors, file.text if file is not None else "")


def _kind_of(change: TextChange) -> ChangeKind:
    if change.new is None:
        return ChangeKind.DELETED
    return ChangeKind.CREATED if change.old is None else ChangeKind.CHANGED


def _is_small(change: TextChange) -> bool:
    texts = [text for text in (change.old, change.new) if text is not None]
    return bool(texts) and max(map(len, texts)) <= MAX_FILE_BYTES
