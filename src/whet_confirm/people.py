"""People who log in with a provider, as rows: bound to the provider's subject, valid as long as the login."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet_confirm import stand_ins
from whet_confirm.ledger import Tx
from whet_confirm.names import is_same_person
from whet_confirm.oidc import OidcPerson
from whet_confirm.records import Caller, Role, Vote
from whet_confirm.tokens import TOKENS, as_principal, check_name

PREFIX = "oidc:"
_BY_NAME = "SELECT 1 FROM people WHERE name = ?"
_LOGGED_IN = "SELECT name, role FROM people WHERE name = ? AND until > ?"


class PersonRow(msgspec.Struct, frozen=True):
    """A person of a provider. `until` is when the last login ends."""

    name: str
    issuer: str
    subject: str
    role: Role
    signed_in_at: float
    until: float


def record_login(tx: Tx, person: OidcPerson, valid_s: float) -> str:
    """Record a login. Returns why it is refused, or an empty string if it is accepted."""
    db, name = tx.connection, person.name
    try:
        check_name(db, name)
    except ConfigError as error:
        return error.message
    for row in list_people(db):
        is_same = (row.issuer, row.subject) == (person.issuer, person.subject)
        if is_same and row.name != name:
            return f"you are known here as {row.name}; an admin must forget that first"
        if not is_same and is_same_person(row.name, name):
            return f"{name} is somebody else here"
    if db.execute(_BY_NAME, (name,)).fetchone() is None and TOKENS.find(db, TOKENS.by_name, name):
        return f"{name} has a token here, which may be somebody else's; an admin must revoke that first"
    until_s = tx.now_s + valid_s
    values = (name, person.issuer, person.subject, person.role, tx.now_s, until_s)
    db.execute("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?)", values)
    stand_ins.set_groups(tx, name, (f"oidc:{group}" for group in person.groups), until_s)
    details: dict[str, object] = {"issuer": person.issuer, "subject": person.subject, "role": person.role}
    tx.record("login", principal=name, data=details)
    return ""


def find(db: apsw.Connection, name: str, now_s: float) -> Caller | None:
    """Return a person whose login is still valid, or None."""
    row = db.execute(_LOGGED_IN, (name, now_s)).fetchone()
    return Caller(str(row[0]), row[1], f"{PREFIX}{row[0]}") if row else None


def is_still_valid(tx: Tx, caller: Caller) -> bool:
    """Return whether a caller's token or login is still valid in this transaction.

    Always true for a user at the Unix socket, who has neither.
    """
    token_id = caller.token_id
    if caller.is_open or not token_id or token_id.startswith("uid:"):
        return True
    if token_id.startswith(PREFIX):
        now = find(tx.connection, caller.name, tx.now_s)
    else:
        cached = tx.sealer.row_cache("tokens")
        row = cached.get(token_id)
        if row is None and (row := tx.connection.execute(TOKENS.by_id, (token_id,)).fetchone()):
            cached[token_id] = row
        now = as_principal(row, tx.now_s)
    return now is not None and now.name == caller.name and now.role == caller.role


def list_people(db: apsw.Connection) -> list[PersonRow]:
    """Return all people who ever logged in, by name."""
    return [PersonRow(*row) for row in db.execute("SELECT * FROM people ORDER BY name")]


def drop_removed_voters(db: apsw.Connection, votes: Sequence[Vote]) -> list[Vote]:
    """Return the votes without those of people whose last token was revoked after they had voted."""
    return [vote for vote in votes if not _was_removed(db, vote)]


def _was_removed(db: apsw.Connection, vote: Vote) -> bool:
    rows = db.execute(
        "SELECT revoked_at FROM tokens NOT INDEXED WHERE name = ?", (vote.principal,)
    ).fetchall()
    revoked = [float(at) for (at,) in rows if at is not None]
    return bool(revoked) and len(revoked) == len(rows) and max(revoked) >= vote.at


def forget(tx: Tx, name: str, *, by: str) -> None:
    """Delete a person's login, groups and binding to the provider. Raises NotFound."""
    tx.connection.execute("DELETE FROM people WHERE name = ?", (name,))
    if not tx.connection.changes():
        raise NotFound(f"nobody signed in as {name!r}", hint="whet confirm people list")
    tx.connection.execute("DELETE FROM members WHERE name = ? AND grp LIKE 'oidc:%'", (name,))
    tx.record("person_forgotten", principal=by, data={"name": name})
