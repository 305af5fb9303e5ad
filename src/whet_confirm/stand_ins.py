"""Delegations, and the current members of groups of other systems.

A person who is away names one stand-in, until a time. Until then the stand-in replaces the absent person
in groups and lists of approvers, so that they have one vote together. A delegation is not passed on, and a
stand-in can't decide on requests of the person they represent. Groups of the policy may contain
`oidc:NAME` and `slack:ID`: their members are stored here, until a time, as the other system last reported
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet_confirm.ledger import Tx
from whet_confirm.names import is_same_person, person_key
from whet_confirm.policy import ConfirmPolicy

LONGEST_AWAY_S = 90 * 86_400
OUTSIDE = ("oidc:", "slack:")
_IN_FORCE = "ended_at IS NULL AND until > ?"
_COLUMNS = "id, giver, stand_in, until, created_by, created_at, ended_at"


class Delegation(msgspec.Struct, frozen=True):
    """Who is absent, their stand-in, and until when. Times are Unix seconds."""

    id: int
    giver: str
    stand_in: str
    until: float
    created_by: str
    created_at: float
    ended_at: float | None = None


def delegate(tx: Tx, giver: str, stand_in: str, until_s: float, approvers: Iterable[str] = ()) -> Delegation:
    """Make `stand_in` decide for `giver`, replacing an earlier delegation.

    `approvers` are people who need no token. Raises ValueError if the delegation is not allowed.
    """
    name = _find_approver(tx.connection, stand_in, approvers)
    if name is None:
        raise ValueError(f"nobody who may decide is called {stand_in[:60]!r}")
    if is_same_person(giver, name):
        raise ValueError("somebody else must stand in for you")
    if not tx.now_s < until_s <= tx.now_s + LONGEST_AWAY_S:
        raise ValueError("until must be a time from now on, at most 90 days ahead")
    if is_same_person(giver, stand_ins_by_key(tx.connection, tx.now_s).get(person_key(name), "")):
        raise ValueError(f"{name} is away, and you stand in for them")
    _end(tx, "giver = ?", giver, giver)
    tx.connection.execute(
        "INSERT INTO delegations (giver, stand_in, until, created_by, created_at) VALUES (?, ?, ?, ?, ?)",
        (giver, name, until_s, giver, tx.now_s),
    )
    delegation = Delegation(tx.connection.last_insert_rowid(), giver, name, until_s, giver, tx.now_s)
    details: dict[str, object] = {"id": delegation.id, "stand_in": name, "until": until_s}
    tx.record("delegated", principal=giver, data=details)
    return delegation


def end(tx: Tx, number: int, by: str, *, is_admin: bool) -> None:
    """End a delegation. Only its giver or an admin may. Raises NotFound."""
    row = tx.connection.execute(
        f"SELECT giver FROM delegations WHERE id = ? AND {_IN_FORCE}", (number, tx.now_s)
    ).fetchone()
    if row is None or not (is_admin or is_same_person(str(row[0]), by)):
        raise NotFound(f"there is no delegation {number} of yours in force")
    _end(tx, "id = ?", number, by)


def _end(tx: Tx, where: str, value: str | int, by: str) -> None:
    sql = f"SELECT id FROM delegations WHERE {where} AND {_IN_FORCE}"
    for (number,) in tx.connection.execute(sql, (value, tx.now_s)).fetchall():
        tx.connection.execute("UPDATE delegations SET ended_at = ? WHERE id = ?", (tx.now_s, number))
        tx.record("delegation_ended", principal=by, data={"id": number})


def list_active(db: apsw.Connection, now_s: float) -> list[Delegation]:
    """Return the delegations in force, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM delegations WHERE {_IN_FORCE} ORDER BY id", (now_s,))
    return [Delegation(*row) for row in rows]


def stand_ins_by_key(db: apsw.Connection, now_s: float, *, except_for: str = "") -> dict[str, str]:
    """Return the current stand-ins by the key of the absent person, with an empty one for `except_for`."""
    return {
        person_key(delegation.giver): ""
        if is_same_person(delegation.giver, except_for)
        else delegation.stand_in
        for delegation in list_active(db, now_s)
    }


def apply_stand_ins(
    db: apsw.Connection, policy: ConfirmPolicy, now_s: float, asked_by: str = ""
) -> ConfirmPolicy:
    """Return the policy with stand-ins applied to its groups, for a request of `asked_by`."""
    if not policy.rules:
        return policy
    away = stand_ins_by_key(db, now_s, except_for=asked_by)
    outside_groups = {
        entry for people in policy.groups.values() for entry in people if entry.startswith(OUTSIDE)
    }
    if not away and not outside_groups:
        return policy
    inside = {entry: list_members(db, entry, now_s) for entry in outside_groups}
    groups = {name: _present_members(people, inside, away) for name, people in policy.groups.items()}
    return msgspec.structs.replace(policy, groups=groups, away=away)


def _present_members(
    people: Sequence[str], inside: Mapping[str, Sequence[str]], away: Mapping[str, str]
) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for entry in people:
        for name in inside.get(entry, (entry,)):
            if present := away.get(person_key(name), name):
                names[present] = None
    return tuple(names)


def find_givers(db: apsw.Connection, name: str, now_s: float) -> list[str]:
    """Return the people for whom `name` decides now."""
    return [
        delegation.giver for delegation in list_active(db, now_s) if is_same_person(delegation.stand_in, name)
    ]


def list_members(db: apsw.Connection, group: str, now_s: float) -> list[str]:
    """Return the members of another system's group, as long as its last answer is valid."""
    rows = db.execute("SELECT name FROM members WHERE grp = ? AND until > ? ORDER BY name", (group, now_s))
    return [str(row[0]) for row in rows]


def set_members(tx: Tx, group: str, names: Iterable[str], until_s: float) -> None:
    """Store the members of a group, with an event if they changed."""
    new, old = sorted(set(names)), list_members(tx.connection, group, tx.now_s)
    tx.connection.execute("DELETE FROM members WHERE grp = ?", (group,))
    for name in new:
        tx.connection.execute("INSERT INTO members VALUES (?, ?, ?)", (group, name, until_s))
    if new != old:
        tx.record("members_changed", principal="system:groups", data={"group": group, "members": new})


def set_groups(tx: Tx, name: str, groups: Iterable[str], until_s: float) -> None:
    """Store the groups of a provider that a person is in."""
    new = sorted(set(groups))
    sql = "SELECT grp FROM members WHERE name = ? AND grp LIKE 'oidc:%' AND until > ? ORDER BY grp"
    old = [str(row[0]) for row in tx.connection.execute(sql, (name, tx.now_s))]
    tx.connection.execute("DELETE FROM members WHERE name = ? AND grp LIKE 'oidc:%'", (name,))
    for group in new:
        tx.connection.execute("INSERT INTO members VALUES (?, ?, ?)", (group, name, until_s))
    if new != old:
        tx.record("groups_changed", principal=name, data={"groups": new})


def _find_approver(db: apsw.Connection, name: str, approvers: Iterable[str]) -> str | None:
    """Return a person's name in its stored spelling, or None if it is unknown."""
    sql = (
        "SELECT name FROM tokens WHERE role IN ('approve', 'admin') AND revoked_at IS NULL"
        " UNION SELECT name FROM people NOT INDEXED"
    )
    names = [*approvers, *(str(row[0]) for row in db.execute(sql))]
    for candidate in names:
        if is_same_person(candidate, name):
            return candidate
    return None
