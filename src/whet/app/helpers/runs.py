"""Start the helpers of a program's sessions, resume them after a crash, wait for them and stop them.

A helper is a session that does a task for another session, with that session's gate and model and with limits
of its own. Its row holds its state. Its result reaches the parent once: as the result of the call that waited
for it, or as a message. This module does not know the tools that start helpers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import apsw
import msgspec

from whet.agent.interruption import finish_shielded
from whet.agent.session import InboxEntry, Session
from whet.app.helpers import turns, worktrees
from whet.app.helpers.turns import activity_line, result_of
from whet.clock import iso
from whet.contract.delegation import HelperWish
from whet.contract.errors import ToolError, WhetError
from whet.contract.events import Event
from whet.contract.tools import ToolContext, ToolOutput
from whet.sandbox.path_rules import read_path_rules
from whet.store import claims, helper_rows, session_deletion, sessions
from whet.store.helper_account import account_of_end
from whet.store.helper_rows import HelperRow, MergePlan, WorkingTree
from whet.store.jobs import QueuedJob

if TYPE_CHECKING:
    from whet.app.services import Services
    from whet.contract.tools import Buffers

log: logging.Logger = logging.getLogger("whet.helpers")
_POLL_S = 0.5
_SHOWN_LINES = 20
_MAX_WAIT_S = 3_600.0


@dataclass(slots=True)
class RunningHelper:
    """A helper that runs in this process. `session` is set once its turns begin; `lines` are the last lines
    of its activity."""

    row: HelperRow
    session: Session | None = None
    task: asyncio.Task[None] | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_SHOWN_LINES))


class HelperOpener(Protocol):
    """Creates a helper's session, or opens it if it `exists`."""

    async def __call__(
        self, row: HelperRow, folder: Path | None, buffers: Buffers | None, *, exists: bool
    ) -> Session:
        """`folder` is the helper's own working tree."""
        ...


class HelperRuns:
    """The helpers of one process's sessions. `listeners` are called for each background helper that has
    ended."""

    def __init__(
        self,
        services: Services,
        open_helper: HelperOpener,
        listeners: Sequence[Callable[[HelperRow], None]],
    ) -> None:
        self._services = services
        self._open_helper = open_helper
        self._listeners = listeners
        self._owner = claims.owner_name(services.clock.new_id())
        self._slots = asyncio.Semaphore(services.settings.agent.delegate_parallel)
        self._running: dict[str, RunningHelper] = {}
        self._parents: set[str] = set()

    async def delegate(self, parent: ToolContext, wish: HelperWish) -> ToolOutput:
        """Run a helper for a call. Returns its result, or a note that it runs in the background. If the call
        is repeated after a crash, the same helper continues."""
        if not wish.task.strip():
            raise ToolError("a helper needs a task")
        row = await self.add_helper(parent.session_id, parent.key or parent.call_id, wish)
        if wish.background:
            if row.state == "open":
                self.start_in_background(row, parent.buffers)
            return ToolOutput(
                f"[{row.name} works in the background; its result comes by itself. See process]"
            )
        if row.state == "open":
            await self._services.database.append(lambda db: helper_rows.set_owner(db, row.id, self._owner))
            try:
                await self._run_turns(RunningHelper(row), parent)
            except WhetError as error:
                await self._end(row, "failed", error.message, self._owner)
            except BaseException as error:
                reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "crashed"
                await finish_shielded(self._end(row, reason, "its call was cut off", self._owner))
                raise
        row = await self.read_row(row.id)
        account = await self._services.database.read(lambda db: account_of_end(db, row))
        return await self.merge_edits(row, partial(result_of, account=account))

    async def add_helper(self, parent_id: str, call: str, wish: HelperWish) -> HelperRow:
        """Store a new helper and return its row, or the row that was stored for this call before."""
        services = self._services
        now = iso(services.clock.now())
        delivered = "" if wish.background else now  # a call that waits gets the result itself
        ids = services.clock.new_id(), services.clock.new_id()
        row = HelperRow(ids[0], parent_id, 0, call, wish, ids[1], delivered=delivered, begun=now)
        return await services.database.append(lambda db: helper_rows.add(db, row))

    def start_in_background(self, row: HelperRow, buffers: Buffers | None = None) -> None:
        """Run a stored helper in the background of this process, unless it already runs here."""
        self._parents.add(row.parent)
        if row.id not in self._running:
            helper = self._running[row.id] = RunningHelper(row)
            helper.task = asyncio.create_task(self._run_in_background(helper, buffers))
            helper.task.add_done_callback(lambda task: self._handle_task_end(helper, task))

    async def restore(self, parent_id: str) -> None:
        """Resume a session's background helpers that no process runs any more, finish interrupted merges, and
        deliver finished results."""
        self._parents.add(parent_id)
        for row in await self.helpers_of(parent_id):
            if row.state == "open" and row.wish.background:
                self.start_in_background(row)
            elif row.merge is not None and not (row.merge.done or row.merge.conflicts):
                try:
                    await self.merge_edits(row, result_of)
                except ToolError as error:
                    log.warning("%s: its edits are half merged: %s", row.name, error.message)

    def running_helper(self, row: HelperRow) -> RunningHelper | None:
        """Return a helper that runs in this process, or None."""
        return self._running.get(row.id)

    def is_orphaned(self, row: HelperRow) -> bool:
        """Return whether the process that ran a helper has ended."""
        return self._services.database.read_now(lambda db: claims.is_gone(db, row.owner))

    async def helpers_of(self, parent_id: str) -> list[HelperRow]:
        """Return a session's helpers, in the order in which they were requested."""
        return await self._services.database.read(lambda db: helper_rows.list_helpers(db, parent_id))

    def runs_for(self, parent_id: str) -> bool:
        """Return whether a helper of a session runs in this process."""
        return any(helper.row.parent == parent_id for helper in self._running.values())

    def next_result(self, parent_id: str) -> InboxEntry | None:
        """Return the next undelivered result of a session, whose write marks it as delivered, or None."""
        if parent_id not in self._parents:
            return None
        row = self._services.database.read_now(lambda db: helper_rows.find_next_result(db, parent_id))
        if row is None:
            return None
        account = self._services.database.read_now(lambda db: account_of_end(db, row))
        return _result_entry(row, account, self._now_iso())

    async def wait_for_result(self, parent_id: str) -> InboxEntry | None:
        """Wait for the next result of a session. Returns None if there is none and no helper runs here."""
        while (entry := self.next_result(parent_id)) is None:
            tasks = [
                helper.task
                for helper in self._running.values()
                if helper.row.parent == parent_id and helper.task
            ]
            if not tasks:
                return None
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return entry

    async def stop(self, row: HelperRow) -> HelperRow:
        """Stop a helper, unless it has ended, and return its row. Durable on return."""
        await self._end(row, "stopped", "it was stopped")
        helper = self._running.get(row.id)
        if helper is not None and helper.task is not None:
            helper.task.cancel()
            await asyncio.wait({helper.task})
        return await self.read_row(row.id)

    async def aclose(self) -> None:
        """Cancel the running helpers; the next program that opens their parent resumes them."""
        if tasks := [helper.task for helper in self._running.values() if helper.task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run_in_background(self, helper: RunningHelper, buffers: Buffers | None) -> None:
        row, services = helper.row, self._services
        while not await services.database.append(lambda db: helper_rows.take(db, row.id, self._owner)):
            if not await self._wait_for_owner(row.id):
                return
        services.database.keep_claims()
        try:
            await self._run_turns(helper, None, buffers)
        except WhetError as error:
            await self._end(row, "failed", error.message, self._owner)
        finally:
            services.database.submit(lambda db: helper_rows.release(db, row.id, self._owner))

    async def _wait_for_owner(self, helper_id: str) -> bool:
        """Wait until no other program runs a helper. Returns False if the helper has ended."""
        while (row := await self.read_row(helper_id)).state == "open":
            if not row.owner or self.is_orphaned(row):
                return True
            await asyncio.sleep(_POLL_S)
        return False

    def _handle_task_end(self, helper: RunningHelper, task: asyncio.Task[None]) -> None:
        """Store the end of a helper that crashed, and call the listeners unless the task was cancelled."""
        self._running.pop(helper.row.id, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("%s crashed", helper.row.name, exc_info=error)
            ended = turns.end_row(helper.row, "crashed", "", type(error).__name__, self._now_iso())
            self._services.database.submit(lambda db: helper_rows.end_helper(db, ended, self._owner))
        for listener in self._listeners:
            listener(helper.row)

    async def _run_turns(
        self, helper: RunningHelper, parent: ToolContext | None, buffers: Buffers | None = None
    ) -> None:
        """Run a helper's turns until it has ended. `parent` is the call that waits for it, if any."""
        services, row = self._services, helper.row
        if row.wish.budget_usd and services.models.wallet is None:
            services.models.open_wallet(services.database, services.clock)

        def show(event: Event) -> None:
            if line := activity_line(event):
                helper.lines.append(line)
                if parent is not None:
                    parent.output(line + "\n")

        async with self._slots:
            folder = await self._open_tree(row)
            child = await self._open_session(row, folder, parent.buffers if parent is not None else buffers)
            helper.session = child
            services.gate.get().adopt(child.id, row.parent)
            watcher = services.plugins.sessions if services.plugins is not None else None
            try:
                await turns.run_helper(child, row, self.read_row, show, parent, watcher)
            finally:  # ends the language servers that only this session used
                if services.code.created is not None:
                    await finish_shielded(services.code.created.release(child.id))

    async def _open_tree(self, row: HelperRow) -> Path | None:
        """Return the helper's workspace in its own working tree, which is created if it is missing. Returns
        None if the helper works in its parent's workspace."""
        if not row.wish.worktree:
            return None
        services = self._services
        workspace = await _read_workspace(services, row)
        tree = row.tree or (await self.read_row(row.id)).tree
        if tree is None:
            folder = services.home.main_root.with_name(f"{services.home.main_root.name}-worktrees")
            rules = read_path_rules(services.settings.approval.deny)
            tree = planned = await asyncio.to_thread(worktrees.plan_tree, workspace, row.id, folder, rules)
            await services.database.append(lambda db: helper_rows.store_tree(db, row.id, planned))
        return await asyncio.to_thread(worktrees.check_out_tree, tree, row.id, workspace)

    async def _open_session(self, row: HelperRow, folder: Path | None, buffers: Buffers | None) -> Session:
        existing = await self._services.database.read(
            lambda db: session_deletion.filter_existing_ids(db, {row.session})
        )
        return await self._open_helper(
            row, folder, None if folder is not None else buffers, exists=bool(existing)
        )

    async def merge_edits(
        self, row: HelperRow, write_result: Callable[[HelperRow, MergePlan | None], ToolOutput]
    ) -> ToolOutput:
        """Merge a helper's edits from its own working tree, unless that was done, and return its result."""
        tree = row.tree
        is_merged = row.merge is not None and bool(row.merge.done or row.merge.conflicts)
        if tree is None or is_merged or not row.can_merge:
            return write_result(row, row.merge)
        return await _merge_tree(self._services, row, tree, write_result)

    async def wait(self, row: HelperRow, limit_s: float) -> HelperRow:
        """Wait for a helper's end, at most `limit_s`, and return its row as it is then."""
        until_s = self._services.clock.monotonic_s() + limit_s
        while row.state == "open" and (left_s := until_s - self._services.clock.monotonic_s()) > 0:
            helper = self._running.get(row.id)
            if helper is not None and helper.task is not None:
                await asyncio.wait({helper.task}, timeout=min(left_s, _MAX_WAIT_S))
            else:
                await asyncio.sleep(min(left_s, _POLL_S))
            row = await self.read_row(row.id)
        return row

    async def _end(self, row: HelperRow, reason: str, error: str, owner: str = "") -> None:
        """Store the end of a helper without an answer. If `owner` is set, do nothing unless that process runs
        the helper."""
        ended = turns.end_row(row, reason, "", error, self._now_iso())
        await self._services.database.append(lambda db: helper_rows.end_helper(db, ended, owner))

    async def read_row(self, helper_id: str) -> HelperRow:
        """Return a helper's row as stored."""
        return await self._services.database.read(lambda db: helper_rows.get(db, helper_id))

    def _now_iso(self) -> str:
        return iso(self._services.clock.now())


def _result_entry(row: HelperRow, account: str, at: str) -> InboxEntry:
    """Return a helper's result with the write that marks it as delivered."""

    def mark_delivered(connection: apsw.Connection) -> Sequence[QueuedJob]:
        helper_rows.deliver(connection, row.id, at)
        return ()

    return InboxEntry(turns.result_message(row, account), mark_delivered, turns.end_notice(row))


async def _read_workspace(services: Services, row: HelperRow) -> Path:
    """Return the workspace of a helper's parent."""
    parent = await services.database.read(lambda db: sessions.get(db, row.parent))
    return Path(parent.workspace) if parent.workspace else services.workspace


async def _merge_tree(
    services: Services,
    row: HelperRow,
    tree: WorkingTree,
    write_result: Callable[[HelperRow, MergePlan | None], ToolOutput],
) -> ToolOutput:
    """Merge a helper's working tree, unless another call has done so, and return the helper's result."""
    loop, database = asyncio.get_running_loop(), services.database
    workspace = await _read_workspace(services, row)
    rules = read_path_rules(services.settings.approval.deny)
    earlier_plans: list[MergePlan | None] = []

    def read_earlier() -> MergePlan | None:
        earlier_plans.append(database.read_now(lambda db: helper_rows.get(db, row.id)).merge)
        return earlier_plans[0]

    def store_plan(plan: MergePlan) -> None:
        write = database.append(lambda db: helper_rows.store_merge(db, row.id, plan))
        asyncio.run_coroutine_threadsafe(write, loop).result()

    def find_rule(path: str) -> str:
        return rules.find(Path(tree.repository) / path, workspace, writes=True)

    plan = await asyncio.to_thread(worktrees.merge, tree, row.id, read_earlier, store_plan, find_rule)
    output = write_result(row, plan)
    if plan is earlier_plans[0]:  # another call has merged the edits
        return output
    changes = await asyncio.to_thread(worktrees.text_changes, plan, tree) if plan.done else ()
    return msgspec.structs.replace(output, changes=changes)
