"""Record workspaces around the steps that may change files: an observer of every session's turns.

The recorder is imported at the first such step. A step that can't be recorded runs all the same, and the
person is notified that it can't be undone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.agent.session import CallRound, Session, TurnObserver
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import RewindSettings
from whet.contract.errors import WhetError
from whet.contract.events import Emit, EndReason, Notice
from whet.contract.messages import Message
from whet.contract.receipts import FileLines
from whet.contract.tools import Tool
from whet.lanes import ToolPool
from whet.rewind.record_path import record_path
from whet.sqlite.lane import ScopedWrite
from whet.store import rewinds
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.transcript import TurnRecord

if TYPE_CHECKING:
    from whet.rewind.deferred import HoldFolders, RecordFolders
    from whet.rewind.recorder import Workspace

_CHANGING = {"write", "execute"}
_ELSEWHERE = {"notes", "skills", "templates"}
"""Tags of tools that write only in Whet's home."""
_SET_BACK = (
    "The person has set the workspace's files back since: what calls changed from turn {turn} on may be gone."
    " Read files again before you rely on them."
)
_RECORDING = "recording the workspace, so that what this step does can be taken back ..."
_SILENT_S = 2.0
_ASKED_S = 0.5  # the gate has started a sandbox and decided by then, or waits for a person
_MB = 1_000_000
_MAX_OPEN = 16
_MAX_NAMED = 50

_log = logging.getLogger("whet.recording")


def may_change_files(tool: Tool) -> bool:
    """Return whether a call of `tool` may change files of the workspace, by its effects and tags."""
    if tool.tags & {"mcp", "delegates"}:
        return True
    return bool(tool.effects & _CHANGING) and not tool.tags & _ELSEWHERE


class Recordings:
    """The records of the workspaces that one process works in. `guards_links`: see `Workspace`;
    `hold_folders`: see `deferred.HoldFolders`."""

    def __init__(
        self,
        home: Home,
        settings: RewindSettings,
        clock: Clock,
        pool: ToolPool,
        guards_links: Callable[[Path], bool] = lambda _: False,
        hold_folders: Callable[[Path, RecordFolders], frozenset[str]] = lambda _, __: frozenset(),
    ) -> None:
        self.home = home
        self.settings = settings
        self.pool = pool
        self._clock = clock
        self._guards_links = guards_links
        self._hold_folders = hold_folders
        self._open: dict[Path, Workspace] = {}
        self._too_large: set[Path] = set()
        self._scanned_ahead: dict[Path, asyncio.Task[None]] = {}

    def workspace_of(self, folder: Path) -> Workspace:
        """Return the record of a workspace."""
        workspace = self._open.pop(folder, None)
        if workspace is None:
            # imported here, because steps that only read do not need it; it costs some 5 ms
            from whet.rewind.recorder import Workspace  # noqa: PLC0415
            from whet.rewind.states import RecordLimits  # noqa: PLC0415

            settings = self.settings
            limits = RecordLimits(
                settings.file_mb * _MB, settings.total_mb * _MB, settings.max_files, settings.keep_days
            )
            guards = partial(self._guards_links, folder)
            workspace = Workspace(folder, self.home.root, limits, self._clock, guards)
        self._open[folder] = workspace
        for oldest in list(self._open)[:-_MAX_OPEN]:
            self._open.pop(oldest).close()
        return workspace

    async def changed_since(
        self, folder: Path, session_id: str, steps: set[tuple[int, int]], *, short: bool = False
    ) -> dict[tuple[int, int], list[str]]:
        """Return the files that differ from their state at the end of steps (turn, number); empty if steps
        are not recorded.

        `short` trusts the kernel's change notifications since the last scan. Raises WhetError.
        """
        if not steps or not self.settings.record:
            return {}
        from whet.rewind.scan import WorkspaceTooLarge  # noqa: PLC0415 - as above
        from whet.rewind.taking_back import find_changed_files  # noqa: PLC0415

        workspace = self.workspace_of(folder)
        if not workspace.exists:
            return {}
        try:
            return await self.pool.run(find_changed_files, workspace, session_id, steps, short=short)
        except WorkspaceTooLarge:
            return {}

    def holder(self, folder: Path, tools: Sequence[Tool]) -> HoldFolders | None:
        """Return what says which folders no call of `tools` changes before they are recorded; None if another
        one than commands may change files."""
        if all("command" in tool.tags for tool in tools if may_change_files(tool)):
            return partial(self._hold_folders, folder)
        return None

    def scan_ahead(self, folder: Path, tools: Sequence[Tool]) -> None:
        """Begin to record a workspace, once, so that the first step that changes files waits for the rest
        only."""
        if folder not in self._scanned_ahead:
            self._scanned_ahead[folder] = asyncio.create_task(self._scan_ahead(folder, tools))

    def may_be_recorded(self, folder: Path) -> bool:
        """Return whether a workspace has a record that is not just being begun."""
        scanning = self._scanned_ahead.get(folder)
        return record_path(self.home.root, folder).exists() and (scanning is None or scanning.done())

    async def _scan_ahead(self, folder: Path, tools: Sequence[Tool]) -> None:
        workspace, hold = self.workspace_of(folder), self.holder(folder, tools)
        from whet.rewind.deferred import hold_folders  # noqa: PLC0415 - as above
        from whet.rewind.recorder import ScanStopped  # noqa: PLC0415
        from whet.rewind.scan import WorkspaceTooLarge  # noqa: PLC0415 - as above

        def scan() -> None:
            with workspace.exclusive():
                hold_folders(workspace, hold)
                workspace.scan()

        try:
            await self.pool.run(scan)
        except (WorkspaceTooLarge, ScanStopped, WhetError, OSError) as error:
            _log.info("%s was not recorded ahead: %r", folder, error)  # the step that needs it says why

    async def can_restore(self, folder: Path) -> bool:
        """Return whether a workspace is recorded, so that a rewind brings its files back.

        Scans the workspace now, as the step that follows would.
        """
        if not self.settings.record or folder in self._too_large:
            return False
        workspace = self.workspace_of(folder)
        from whet.rewind.scan import WorkspaceTooLarge  # noqa: PLC0415 - as above

        def scan() -> None:
            with workspace.exclusive():
                workspace.scan(short=True)

        try:
            await self.pool.run(scan)
        except WorkspaceTooLarge:
            self._too_large.add(folder)
        except (WhetError, OSError) as error:
            _log.warning("the workspace could not be recorded: %s", error)
        else:
            return True
        return False

    def close(self) -> None:
        """Close every file, and begin no more scans."""
        for task in self._scanned_ahead.values():
            task.cancel()
        for workspace in self._open.values():
            workspace.close()
        self._open.clear()


def _changes_by_command(tool: Tool) -> bool:
    """Return whether the changes of a call of `tool` are known only from the record."""
    return may_change_files(tool) and "edits" not in tool.tags


class _OpenStep(msgspec.Struct, frozen=True):
    record: int
    turn: int
    step: int
    tools: list[str]


class RecordingObserver(TurnObserver):
    """Records the workspace of one session before and after each step that may change files."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._reported: set[str] = set()
        self._given_up = False
        self._expected: asyncio.TimerHandle | None = None

    async def before(self, session: Session, message: Message) -> Message:
        """Inform the model if files were rolled back without its conversation, because its knowledge of them
        is out of date."""
        if not session.log.messages:
            return message
        turns = session.log.live.rewound_turns
        if not turns:
            return message
        db, key = session.log.writer.db, session.log.live.key
        await db.write(lambda connection: rewinds.clear_unreported_turns(connection, key))
        warning = _SET_BACK.format(turn=min(turns))
        return msgspec.structs.replace(message, note=f"{message.note}\n{warning}".strip())

    def expect_calls(self, session: Session, tools: Sequence[Tool]) -> None:
        """Begin to record the workspace while a person is asked about calls that may change files."""
        self._cancel_expected()
        if not self._given_up and any(map(may_change_files, tools)):
            loop = asyncio.get_running_loop()
            scan_ahead = self._recordings.scan_ahead
            self._expected = loop.call_later(_ASKED_S, scan_ahead, session.workspace, tools)

    def _cancel_expected(self) -> None:
        if self._expected is not None:
            self._expected.cancel()
            self._expected = None

    def _may_record(self, session: Session, step: CallRound) -> bool:
        if self._given_up or not any(may_change_files(tool) for tool in step.tools):
            return False
        return not step.only_reads or self._recordings.may_be_recorded(session.workspace)

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        """Record the workspace before the step; return the open step, or None if nothing is recorded.

        Commands that only read do not begin a record, which takes long in a large workspace."""
        self._cancel_expected()
        if not self._may_record(session, step):
            return None
        workspace = self._recordings.workspace_of(session.workspace)
        hold = self._recordings.holder(session.workspace, step.tools)
        from whet.rewind.recorder import describe_left_out  # noqa: PLC0415
        from whet.rewind.scan import WorkspaceTooLarge  # noqa: PLC0415 - imported by now
        from whet.rewind.steps import begin_step  # noqa: PLC0415

        def begin() -> tuple[int, str, bool] | None:
            if step.only_reads and not workspace.is_recorded:
                return None
            number, finished = begin_step(workspace, session.id, step.turn, step.step, hold)
            return number, describe_left_out(workspace.left_out()), finished is not None

        late = asyncio.get_running_loop().call_later(_SILENT_S, self._notify_once, emit, _RECORDING)
        try:
            begun = await self._recordings.pool.run(begin)
        except WorkspaceTooLarge as error:
            self._given_up = True
            self._notify_once(
                emit, f"files are not recorded here, so that steps can't be taken back: {_error_line(error)}"
            )
        except (WhetError, OSError) as error:
            text = f"this step can't be taken back, its files could not be recorded: {_error_line(error)}"
            self._notify_once(emit, text, must_show=True)
        else:
            if begun is None:
                return None
            number, line, finished = begun
            if finished:
                self._notify_once(emit, "a rewind that was cut off has been finished")
            if line:
                self._notify_once(emit, line)
            return _OpenStep(
                number, step.turn, step.step, [tool.name for tool in step.tools if _changes_by_command(tool)]
            )
        finally:
            late.cancel()
        return None

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        """Record the changes of the step."""
        if not isinstance(token, _OpenStep):
            return
        workspace = self._recordings.workspace_of(session.workspace)
        from whet.rewind.steps import end_step  # noqa: PLC0415 - imported by now

        try:
            changed = await self._recordings.pool.run(end_step, workspace, token.record)
            if token.tools and changed:
                await self._store_changes(session, token, changed)
        except (WhetError, OSError) as error:
            text = f"what this step changed could not be recorded: {_error_line(error)}"
            self._notify_once(emit, text, must_show=True)

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Store with the last test run the files that were changed since by something other than a call: a
        background process, a helper, a person."""
        if not turn.may_have_tests or self._given_up:
            return queue_nothing
        from whet.store import facts  # noqa: PLC0415 - only after a turn with calls

        db, key = session.log.writer.db, session.log.live.key
        row = await db.look(lambda connection: facts.find_last_tests(connection, key, turn.number))
        if row is None:
            return queue_nothing
        step = (row.turn, row.step)
        scanning = self._recordings.changed_since(session.workspace, session.id, {step}, short=True)
        try:
            async with asyncio.timeout(_SILENT_S):
                later = (await scanning).get(step, [])
        except (WhetError, OSError, TimeoutError) as error:
            _log.warning("whether files changed after the last test run is not known: %s", error)
            return queue_nothing
        if tuple(later[:_MAX_NAMED]) == row.facts.later:
            return queue_nothing

        def keep(connection: apsw.Connection) -> Sequence[QueuedJob]:
            facts.store_later_changes(connection, key, row, later[:_MAX_NAMED])
            return ()

        return keep

    async def _store_changes(self, session: Session, step: _OpenStep, changed: list[FileLines]) -> None:
        """Store the changed files with the step's last command, except those that its edits name."""
        from whet.store import facts  # noqa: PLC0415 - only where a command changed files

        step_key = (session.log.live.key, step.turn, step.step)

        def work(connection: apsw.Connection) -> None:
            facts.store_changed_files(connection, step_key, step.tools, changed)

        await session.log.writer.db.append(ScopedWrite(session.id, work, is_synced=False))

    def _notify_once(self, emit: Emit, text: str, *, must_show: bool = False) -> None:
        if text not in self._reported:
            self._reported.add(text)
            emit(Notice(text, must_show=must_show))


def _error_line(error: WhetError | OSError) -> str:
    if isinstance(error, WhetError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return error.strerror or str(error)
