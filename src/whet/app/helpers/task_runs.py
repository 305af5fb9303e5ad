"""Run the tasks of a file at once, each as a helper of one session.

The tasks are durable: if the same file is run again, tasks that have ended are not repeated and the others
continue. A file is recognised by its contents and the workspace.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from whet.app.helpers.turns import ended_output
from whet.contract.delegation import HelperScope, HelperWish
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values
from whet.store import helper_rows
from whet.store.helper_rows import HelperRow

if TYPE_CHECKING:
    from whet.app.conversations.sessions import SessionOpener

_MAX_TASKS = 1_000


class ListedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task of a file. The fields except `name` are those of `HelperWish`."""

    task: str
    name: str = ""
    context: str = ""
    worktree: bool = False
    schema: dict[str, Any] | None = None
    budget_usd: float = 0.0
    steps: int = 0
    scope: HelperScope = "parent"


class TaskList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tasks of a file. Runs of the same file have the same `key`."""

    tasks: tuple[ListedTask, ...]
    key: str = ""


def read_tasks(path: Path, workspace: Path) -> TaskList:
    """Read a YAML or JSON file of tasks. Raises ConfigError if the file is invalid."""
    import yaml  # noqa: PLC0415 - takes 35 ms, and few commands need it

    try:
        raw = path.read_bytes()
        values = yaml.safe_load(raw)
        task_list = from_values({"tasks": values} if isinstance(values, list) else values, TaskList)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeError) as error:
        raise ConfigError(f"{path}: {error}", hint="tasks: [{name: ..., task: ...}]") from error
    if not 0 < len(task_list.tasks) <= _MAX_TASKS:
        raise ConfigError(f"{path} has {len(task_list.tasks)} tasks; 1 to {_MAX_TASKS:,} are allowed")
    names = [task.name or str(at) for at, task in enumerate(task_list.tasks, 1)]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{path}: two tasks are called {duplicates[0]}")
    tasks = tuple(
        msgspec.structs.replace(task, name=name) for task, name in zip(task_list.tasks, names, strict=True)
    )
    digest = hashlib.sha256(str(workspace.resolve()).encode() + b"\0" + raw).hexdigest()[:16]
    return TaskList(tasks, digest)


async def run_tasks(
    opener: SessionOpener, task_list: TaskList, title: str, *, again: bool = False
) -> list[HelperRow]:
    """Run the unfinished tasks of a file, `agent.delegate_parallel` at a time, and return the rows of all.

    Edits in working trees are merged in the file's order. After a cancel the next run continues. If `again`
    is set, all tasks are repeated.
    """
    helpers = opener.helpers.get()
    parent_id = await opener.services.database.read(lambda db: _find_parent_id(db, task_list.key))
    if not parent_id or again:
        parent_id = (await opener.new_session(title=title)).id
    rows: list[HelperRow] = []
    for task in task_list.tasks:
        wish = HelperWish(
            task.task,
            context=task.context,
            background=True,
            worktree=task.worktree,
            schema=task.schema,
            budget_usd=task.budget_usd,
            steps=task.steps,
            scope=task.scope,
        )
        rows.append(await helpers.add_helper(parent_id, f"run {task_list.key} {task.name}", wish))
    for row in rows:
        if row.state == "open":
            helpers.start_in_background(row)
    ended_rows = await asyncio.gather(*(helpers.wait(row, float("inf")) for row in rows))
    for row in ended_rows:
        await helpers.merge_edits(row, ended_output)
    return [await helpers.read_row(row.id) for row in rows]


def _find_parent_id(connection: apsw.Connection, key: str) -> str:
    """Return the session that an earlier run of this file used, or an empty string."""
    row = connection.execute(
        "SELECT parent FROM helpers WHERE call >= ? AND call < ? ORDER BY begun DESC, number DESC LIMIT 1",
        (f"run {key} ", f"run {key}!"),  # calls with this prefix: "!" is the character after the space
    ).fetchone()
    return row[0] if row else ""


def name_of(row: HelperRow) -> str:
    """Return the name that a helper's task has in its file."""
    return row.call.split(" ", 2)[2]


def is_success(row: HelperRow) -> bool:
    """Return whether a task was answered and its edits were merged without conflicts."""
    conflicts = row.merge is not None and bool(row.merge.conflicts)
    return row.reason == "answered" and not conflicts


def views_by_name(connection: apsw.Connection, parent_id: str) -> dict[str, helper_rows.HelperView]:
    """Return the helpers of a run's session by name."""
    return {view.name: view for view in helper_rows.list_views(connection, parent_id)}
