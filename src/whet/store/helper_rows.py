"""Store helpers: the task of each, the process that runs it, its end, and whether its parent has its result.

A helper's row is stored before its session is created, and ended in the transaction that ends its last turn.
Its result is marked as delivered in the transaction that stores it in the parent's session, so a crash
neither loses nor repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import apsw
import msgspec

from whet.contract.delegation import HELPER, HelperWish
from whet.contract.errors import NotFound, StoreBusy
from whet.contract.messages import Usage
from whet.contract.texts import from_json
from whet.store import claims, rows

HelperState = Literal["open", "ended"]
_COLUMNS = (
    "id, parent, number, call, wish, budget_usd, session, owner, state, reason, answer, error, tree,"
    " merge, delivered, begun, ended"
)


class WorkingTree(msgspec.Struct, frozen=True):
    """A helper's git working tree, in the folder `place`.

    `base` is the commit that it began at. `head` is the commit that is checked out: `base` with the files as
    git converts them (line ends, encodings).
    """

    place: str
    repository: str
    base: str
    head: str = ""


class MergePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The merge of a helper's edits into its parent's files, which is stored before and after it is done.

    `patch` is the git object with all edits. `was` and `will` map each file to its object and mode before and
    after, empty if the file does not exist. Files in `conflicts` are left as they are. `done`: the files are
    written. `brought` names the files outside git that were copied into the workspace, and `kept` those that
    were not, for which the working tree is kept.
    """

    patch: str = ""
    was: dict[str, str] = {}
    will: dict[str, str] = {}
    conflicts: tuple[str, ...] = ()
    note: str = ""
    done: bool = False
    brought: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class HelperRow(msgspec.Struct, frozen=True):
    """A stored helper."""

    id: str
    parent: str
    number: int
    call: str
    wish: HelperWish
    session: str
    owner: str = ""
    state: HelperState = "open"
    reason: str = ""
    answer: str = ""
    error: str = ""
    tree: WorkingTree | None = None
    merge: MergePlan | None = None
    delivered: str = ""
    begun: str = ""
    ended: str = ""

    @property
    def name(self) -> str:
        """The name that its parent uses for it."""
        return f"{HELPER}{self.number}"

    @property
    def can_merge(self) -> bool:
        """Whether its edits may be merged: it has a working tree, and neither failed nor was stopped."""
        return self.tree is not None and self.reason in ("answered", "budget")


def add(connection: apsw.Connection, helper: HelperRow) -> HelperRow:
    """Store a helper under its parent's next number and return it, or return the one that its call has."""
    if (stored := find_by_call(connection, helper.parent, helper.call)) is not None:
        return stored
    following = "SELECT coalesce(max(number), 0) + 1 FROM helpers WHERE parent = ?"
    new = msgspec.structs.replace(helper, number=rows.number(connection, following, helper.parent))
    connection.execute(
        f"INSERT INTO helpers ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})",
        _values(new),
    )
    return new


def get(connection: apsw.Connection, helper_id: str) -> HelperRow:
    """Return a helper. Raises NotFound."""
    helpers = _select(connection, "id = ?", helper_id)
    if not helpers:
        raise NotFound(f"there is no helper {helper_id}")
    return helpers[0]


def find_by_session(connection: apsw.Connection, session_id: str) -> HelperRow | None:
    """Return the helper whose own session this is, or None for any other session."""
    return _find_one(_select(connection, "session = ?", session_id))


def find_by_call(connection: apsw.Connection, parent: str, call: str) -> HelperRow | None:
    """Return the helper that a call of a session requested, or None if it has not requested one yet."""
    return _find_one(_select(connection, "parent = ? AND call = ?", parent, call))


def list_helpers(connection: apsw.Connection, parent: str) -> list[HelperRow]:
    """Return a session's helpers, in the order in which they were requested."""
    return _select(connection, "parent = ? ORDER BY number", parent)


def helper_usage(connection: apsw.Connection, parent: str, turn: int | None = None) -> Usage:
    """Return the usage of a session's helpers in one turn, or in all. A helper has no helpers of its own."""
    return select_usage(connection, parent, turn)()


def select_usage(connection: apsw.Connection, parent: str, turn: int | None = None) -> Callable[[], Usage]:
    """Run the query of `helper_usage`, and return the function that reads its result."""
    calls = "%" if turn is None else f"{turn}.%"
    records = _select_sums(connection, "h.parent = ? AND h.call LIKE ?", parent, calls)
    return lambda: _read_sums(records).get(parent, Usage())


def helper_usages(connection: apsw.Connection, parents: Sequence[str]) -> dict[str, Usage]:
    """Return the usage of the helpers of each of these sessions, without sessions that have none."""
    if not parents:
        return {}
    return _read_sums(_select_sums(connection, f"h.parent IN ({', '.join('?' * len(parents))})", *parents))


def _select_sums(connection: apsw.Connection, condition: str, *values: str) -> Iterable[tuple[Any, ...]]:
    sums = ", ".join(f"sum(s.{column})" for column in rows.USAGE_COLUMNS)
    return connection.execute(
        f"SELECT h.parent, count(*) = count(s.cost_usd), {sums}"
        f" FROM helpers h JOIN sessions s ON s.id = h.session WHERE {condition} GROUP BY h.parent",
        values,
    )


def _read_sums(records: Iterable[tuple[Any, ...]]) -> dict[str, Usage]:
    usages: dict[str, Usage] = {}
    for parent, is_priced, *counts in records:
        usage = Usage(*(count or 0 for count in counts))
        usages[parent] = usage if is_priced else msgspec.structs.replace(usage, cost_usd=None)
    return usages


class HelperView(msgspec.Struct, frozen=True):
    """A helper as people see it. `edits` tells the state of its edits, empty if it works in its parent's
    files."""

    name: str
    task: str
    session: str
    state: str
    background: bool
    calls: int
    tokens: int
    edits: str

    @property
    def line(self) -> str:
        """The view in one line."""
        edits = f", {self.edits}" if self.edits else ""
        return f"{self.name} {self.state}, {self.calls} calls, {self.tokens:,} tokens{edits}: {self.task}"


def list_views(connection: apsw.Connection, parent: str) -> list[HelperView]:
    """Return the views of a session's helpers, in order."""
    views: list[HelperView] = []
    for row in list_helpers(connection, parent):
        spent = connection.execute(
            "SELECT (SELECT count(*) FROM tool_calls AS c WHERE c.session = s.key), s.total_tokens"
            " FROM sessions AS s WHERE s.id = ?",
            (row.session,),
        ).fetchone() or (0, 0)
        state = row.reason or (
            "works" if row.owner and not claims.is_gone(connection, row.owner) else "waits"
        )
        task = " ".join(row.wish.task.split())[:200]
        views.append(
            HelperView(
                row.name,
                task,
                row.session,
                state,
                row.wish.background,
                spent[0],
                spent[1],
                _describe_edits(row),
            )
        )
    return views


def _describe_edits(row: HelperRow) -> str:
    if not row.wish.worktree:
        return ""
    if row.merge is None:
        return "edits not merged"
    if row.merge.conflicts:
        return f"edits conflict in {', '.join(row.merge.conflicts)}"
    kept = f", working tree kept in {row.tree.place}" if row.tree is not None and row.merge.kept else ""
    return ("edits merged" if row.merge.will or row.merge.brought else "no edits") + kept


def find_next_result(connection: apsw.Connection, parent: str) -> HelperRow | None:
    """Return the first helper that has ended and whose result is not in its parent's session, or None."""
    where = "parent = ? AND state = 'ended' AND delivered = '' ORDER BY ended, number LIMIT 1"
    return _find_one(_select(connection, where, parent))


def take(connection: apsw.Connection, helper_id: str, owner: str) -> bool:
    """Make `owner`, this process, the runner of a helper.

    Return False if the helper has ended or another living process runs it.
    """
    helper = get(connection, helper_id)
    if helper.state != "open" or (
        helper.owner not in ("", owner) and not claims.is_gone(connection, helper.owner)
    ):
        return False
    set_owner(connection, helper_id, owner)
    return True


def set_owner(connection: apsw.Connection, helper_id: str, owner: str) -> None:
    """Make `owner` the runner of a helper because it runs the parent's turn. The previous runner must
    stop."""
    claims.register_process(connection)
    connection.execute("UPDATE helpers SET owner = ? WHERE id = ? AND state = 'open'", (owner, helper_id))


def release(connection: apsw.Connection, helper_id: str, owner: str) -> None:
    """Release a helper that `owner` no longer runs, so that another process can run it."""
    connection.execute("UPDATE helpers SET owner = '' WHERE id = ? AND owner = ?", (helper_id, owner))


def end_helper(connection: apsw.Connection, ended: HelperRow, owner: str = "") -> bool:
    """Store how a helper ended. Return False if it had ended before, or if `owner` no longer runs it."""
    connection.execute(
        "UPDATE helpers SET state = 'ended', reason = ?1, answer = ?2, error = ?3, ended = ?4, owner = ''"
        " WHERE id = ?5 AND state = 'open' AND (?6 = '' OR owner = ?6)",
        (ended.reason, ended.answer, ended.error, ended.ended, ended.id, owner),
    )
    return bool(connection.changes())


def store_tree(connection: apsw.Connection, helper_id: str, tree: WorkingTree) -> None:
    """Store the working tree of a helper, before the tree is created."""
    connection.execute(
        "UPDATE helpers SET tree = ? WHERE id = ?", (msgspec.json.encode(tree).decode(), helper_id)
    )


def store_merge(connection: apsw.Connection, helper_id: str, merge: MergePlan) -> None:
    """Store the state of the merge of a helper's edits."""
    connection.execute(
        "UPDATE helpers SET merge = ? WHERE id = ?", (msgspec.json.encode(merge).decode(), helper_id)
    )


def deliver(connection: apsw.Connection, helper_id: str, at: str) -> None:
    """Mark a helper's result as delivered, in the transaction that stores it in the parent's session.

    Raises StoreBusy if it was delivered before; then nothing of that transaction may be stored.
    """
    connection.execute(
        "UPDATE helpers SET delivered = ? WHERE id = ? AND state = 'ended' AND delivered = ''",
        (at, helper_id),
    )
    if not connection.changes():
        raise StoreBusy("another program has taken this helper's result", hint="say: go on")


def _select(connection: apsw.Connection, where: str, *values: str) -> list[HelperRow]:
    records = connection.execute(f"SELECT {_COLUMNS} FROM helpers WHERE {where}", values).fetchall()
    return [_read_helper(row) for row in records]


def _find_one(helpers: list[HelperRow]) -> HelperRow | None:
    return helpers[0] if helpers else None


def _values(helper: HelperRow) -> tuple[Any, ...]:
    row = msgspec.structs.asdict(helper)
    row["wish"], row["budget_usd"] = msgspec.json.encode(helper.wish).decode(), helper.wish.budget_usd
    row["tree"] = msgspec.json.encode(helper.tree).decode() if helper.tree else ""
    row["merge"] = msgspec.json.encode(helper.merge).decode() if helper.merge else ""
    return tuple(row[name.strip()] for name in _COLUMNS.split(","))


def _read_helper(row: tuple[Any, ...]) -> HelperRow:
    values = dict(zip((name.strip() for name in _COLUMNS.split(",")), row, strict=True))
    del values["budget_usd"]  # it is also part of the wish
    values["wish"] = from_json(values["wish"], HelperWish)
    values["tree"] = from_json(values["tree"], WorkingTree) if values["tree"] else None
    values["merge"] = from_json(values["merge"], MergePlan) if values["merge"] else None
    return HelperRow(**values)
