"""Who stands for whom, and who is in which group now: delegations, and members that other systems name.

A person who is away names one other person, until a time. Until then that person sits where the first one
would: in groups and lists of approvers, in place of and never beside them, so that one seat gives one vote. A
seat is not handed on, and nobody's stand-in decides on what that person asked for. Groups of the policy may
hold `oidc:NAME` and `slack:ID`: their members are kept here, until a time, as the other system said last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import apsw
import msgspec

from whet.confirm.ledger import Tx
from whet.confirm.names import is_same_person, person_key
from whet.confirm.policy import ConfirmPolicy
from whet.contract.errors import NotFound

LONGEST_AWAY_S = 90 * 86_400
OUTSIDE = ("oidc:", "slack:")
_ENDED = "ended_at IS NULL AND until > ?"
_COLUMNS = "id, giver, stand_in, until, created_by, created_at, ended_at"


class Delegation(msgspec.Struct, frozen=True):
    """Until when who is away, and who sits there. Times are Unix seconds."""

    id: int
    giver: str
    stand_in: str
    until: float
    created_by: str
    created_at: float
    ended_at: float | None = None


def delegate(tx: Tx, giver: str, stand_in: str, until_s: float, known: Iterable[str] = ()) -> Delegation:
    """Let `stand_in` sit for `giver`; replaces what the giver said before. `known` are people who need no
    token. Raises ValueError for what may not be."""
    name = _known(tx.connection, stand_in, known)
    if name is None:
        raise ValueError(f"nobody who may decide is called {stand_in[:60]!r}")
    if is_same_person(giver, name):
        raise ValueError("somebody else must stand in for you")
    if not tx.now_s < until_s <= tx.now_s + LONGEST_AWAY_S:
        raise ValueError("until must be a time from now on, at most 90 days ahead")
    if is_same_person(giver, substitutes(tx.connection, tx.now_s).get(person_key(name), "")):
        raise ValueError(f"{name} is away, and you stand in for them")
    _end(tx, "giver = ?", giver, giver)
    tx.connection.execute(
        "INSERT INTO delegations (giver, stand_in, until, created_by, created_at) VALUES (?, ?, ?, ?, ?)",
        (giver, name, until_s, giver, tx.now_s),
    )
    made = Delegation(tx.connection.last_insert_rowid(), giver, name, until_s, giver, tx.now_s)
    said: dict[str, object] = {"id": made.id, "stand_in": name, "until": until_s}
    tx.record("delegated", principal=giver, data=said)
    return made


def end(tx: Tx, number: int, by: str, *, is_admin: bool) -> None:
    """End a delegation: its giver may, and an admin. Raises NotFound."""
    row = tx.connection.execute(
        f"SELECT giver FROM delegations WHERE id = ? AND {_ENDED}", (number, tx.now_s)
    ).fetchone()
    if row is None or not (is_admin or is_same_person(str(row[0]), by)):
        raise NotFound(f"there is no delegation {number} of yours in force")
    _end(tx, "id = ?", number, by)


def _end(tx: Tx, where: str, value: str | int, by: str) -> None:
    sql = f"SELECT id FROM delegations WHERE {where} AND {_ENDED}"
    for (number,) in tx.connection.execute(sql, (value, tx.now_s)).fetchall():
        tx.connection.execute("UPDATE delegations SET ended_at = ? WHERE id = ?", (tx.now_s, number))
        tx.record("delegation_ended", principal=by, data={"id": number})


def in_force(db: apsw.Connection, now_s: float) -> list[Delegation]:
    """Give the delegations that hold now, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM delegations WHERE {_ENDED} ORDER BY id", (now_s,))
    return [Delegation(*row) for row in rows]


def substitutes(db: apsw.Connection, now_s: float, *, but_of: str = "") -> dict[str, str]:
    """Give who sits for whom now, by the key of the person who is away; nobody sits for `but_of`."""
    return {
        person_key(one.giver): "" if is_same_person(one.giver, but_of) else one.stand_in
        for one in in_force(db, now_s)
    }


def seated(db: apsw.Connection, policy: ConfirmPolicy, now_s: float, asked_by: str = "") -> ConfirmPolicy:
    """Give the policy with its groups as they are seated now, for a request that `asked_by` made."""
    if not policy.rules:
        return policy
    away = substitutes(db, now_s, but_of=asked_by)
    named = {one for people in policy.groups.values() for one in people if one.startswith(OUTSIDE)}
    if not away and not named:
        return policy
    inside = {one: members(db, one, now_s) for one in named}
    groups = {name: _seats(people, inside, away) for name, people in policy.groups.items()}
    return msgspec.structs.replace(policy, groups=groups, away=away)


def _seats(
    people: Sequence[str], inside: Mapping[str, Sequence[str]], away: Mapping[str, str]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for entry in people:
        for name in inside.get(entry, (entry,)):
            if sits := away.get(person_key(name), name):
                found[sits] = None
    return tuple(found)


def seats_of(db: apsw.Connection, name: str, now_s: float) -> list[str]:
    """Give for whom `name` sits now."""
    return [one.giver for one in in_force(db, now_s) if is_same_person(one.stand_in, name)]


def members(db: apsw.Connection, group: str, now_s: float) -> list[str]:
    """Give who is in a group of another system, as long as what it said holds."""
    rows = db.execute("SELECT name FROM members WHERE grp = ? AND until > ? ORDER BY name", (group, now_s))
    return [str(row[0]) for row in rows]


def set_members(tx: Tx, group: str, names: Iterable[str], until_s: float) -> None:
    """Keep who is in a group; an event says so where that changed."""
    new, old = sorted(set(names)), members(tx.connection, group, tx.now_s)
    tx.connection.execute("DELETE FROM members WHERE grp = ?", (group,))
    for name in new:
        tx.connection.execute("INSERT INTO members VALUES (?, ?, ?)", (group, name, until_s))
    if new != old:
        tx.record("members_changed", principal="system:groups", data={"group": group, "members": new})


def set_groups(tx: Tx, name: str, groups: Iterable[str], until_s: float) -> None:
    """Keep which of a provider's groups a person is in."""
    new = sorted(set(groups))
    sql = "SELECT grp FROM members WHERE name = ? AND grp LIKE 'oidc:%' AND until > ? ORDER BY grp"
    old = [str(row[0]) for row in tx.connection.execute(sql, (name, tx.now_s))]
    tx.connection.execute("DELETE FROM members WHERE name = ? AND grp LIKE 'oidc:%'", (name,))
    for group in new:
        tx.connection.execute("INSERT INTO members VALUES (?, ?, ?)", (group, name, until_s))
    if new != old:
        tx.record("groups_changed", principal=name, data={"groups": new})


def _known(db: apsw.Connection, name: str, known: Iterable[str]) -> str | None:
    """Give a person's name as it is known; None for a stranger."""
    sql = (
        "SELECT name FROM tokens WHERE role IN ('approve', 'admin') AND revoked_at IS NULL"
        " UNION SELECT name FROM people NOT INDEXED"
    )
    found = [*known, *(str(row[0]) for row in db.execute(sql))]
    return next((one for one in found if is_same_person(one, name)), None)
