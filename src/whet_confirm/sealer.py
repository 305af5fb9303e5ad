"""Detects writes of other programs: keeps a sum of each table and seals the sums in every transaction.

A seal is signed or, if the last signature is less than a second old, holds a code (MAC) that only this
service can make.

The sealer sees each row that this process writes, so no write can bypass it. A write by another program
changes no sum, so `verify` detects it. If that write concerns permissions or the log's end, the next
transaction here detects it too, fails and changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import apsw

from whet.contract.errors import StoreCorrupt, StoreError
from whet_confirm import seals
from whet_confirm.keys import PublicKey, SigningKey
from whet_confirm.seals import RowSum, Seal, expand_digest, is_sealed, row_digest

# Small tables that control permissions. They are summed again whenever another connection has written.
_WATCHED = (
    "tokens", "whitelist", "whitelist_limits", "second_factors", "passkeys", "delegations", "members",
    "people", "devices",
)  # fmt: skip
LogEnd = tuple[int, bytes]
NO_EVENT: LogEnd = (0, bytes(32))
_LOG_END = "SELECT id, hash FROM events ORDER BY id DESC LIMIT 1"
SIGN_EVERY_S = 1.0
_MAX_NEWER = 8  # sums that fit into the seal's page
SEALED = "sealed"  # the event that marks the first seal
_STORE_SUM = (
    "INSERT INTO seals VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET rows = excluded.rows, sum = excluded.sum"
)
_STORE_SEAL = (
    "INSERT INTO seal VALUES (1, ?, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET size = excluded.size,"
    " head = excluded.head, state = excluded.state, key_id = excluded.key_id,"
    " signature = excluded.signature, newer = excluded.newer"
)
HINT = (
    "see what was changed: whet confirm audit verify; then restore a backup, or take it as it is:"
    " whet confirm serve --accept-state 'why'"
)


class Sealer:
    """The sums of one writing connection. `newest` holds the hash of the last written row, by table."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._key: SigningKey | None = None
        self._trusted_keys: Mapping[str, PublicKey] = {}
        self._seal: Seal | None = None
        self._sums: dict[str, RowSum] = {}
        self._pieces: dict[str, bytes] = {}
        self._newer: frozenset[str] = frozenset()
        self._version = -1
        self._seen_version: int | None = None
        self._expected_counter: int | None = None
        self._deltas: dict[str, list[int]] = {}
        self._first_event = 0
        self._last_event: LogEnd = NO_EVENT
        self._was_sealed = False
        self._alone_from = math.inf
        self._is_alone = True
        self.signed_at_s: float = -math.inf
        self._must_sign = False
        self._row_caches: dict[str, dict[Any, Any]] = {}
        self.newest: dict[str, bytes] = {}
        connection.preupdate_hook(self._add_change)
        connection.set_rollback_hook(self._on_rollback)

    def sign_with(self, key: SigningKey, trusted: Mapping[str, PublicKey]) -> None:
        """Sign with `key` from here on, and trust signatures of any key in `trusted`."""
        self._key = key
        self._trusted_keys = {**trusted, key.id: key}

    def use_keys_of(self, other: Sealer) -> None:
        """Use the keys of `other`, the sealer of another connection."""
        self._key, self._trusted_keys, self._was_sealed = other._key, other._trusted_keys, other._was_sealed

    @property
    def has_unsigned_seal(self) -> bool:
        """Whether the last seal that this process knows is not signed yet."""
        return self._key is not None and self._seal is not None and not self._seal.is_signed

    def sign(self) -> None:
        """Sign this transaction's seal, even if the last signature is recent or nothing else is written."""
        self._must_sign = True

    def accept(self) -> None:
        """Sum all tables again in this transaction, discarding the earlier seal."""
        self._connection.execute("DELETE FROM seal")
        self._connection.execute("DELETE FROM seals")
        self._newer = frozenset[str]()
        self._was_sealed = False

    def is_own_write(self, seq: int) -> bool:
        """Return whether only this process can have written the request with that number."""
        if not self._is_alone or seq < self._alone_from:
            return False
        return self._version < 0 or self._current_version() == self._version

    def row_cache(self, table: str) -> dict[Any, Any]:
        """Return a cache for rows of a table.

        It is emptied when a row of that table changes, a transaction is rolled back, or another connection
        writes.
        """
        version = self._seen_version
        if (self._current_version() if version is None else version) != self._version:
            return {}
        cache = self._row_caches.get(table)
        if cache is None:
            cache = self._row_caches[table] = {}
        return cache

    def _current_version(self) -> int:
        """Return a number that changes when another connection has written. Read once per transaction."""
        if self._seen_version is None:
            # The counter behind the pragma also changes with commits of this connection. If it is as expected
            # after the last one, no one else wrote; this check costs a fiftieth of the pragma.
            is_same = self._connection.data_version() == self._expected_counter
            self._seen_version = self._version if is_same else int(self._connection.pragma("data_version"))
        return self._seen_version

    def log_end(self) -> LogEnd:
        """Return the number and hash of the newest event in this transaction."""
        if self._first_event:
            return self._last_event
        seal = self._seal
        if seal is not None and self._current_version() == self._version:  # no other writer since
            return seal.size, seal.head
        return self._connection.execute(_LOG_END).fetchone() or NO_EVENT

    def append(self, sql: str, event: tuple[Any, ...]) -> None:
        """Insert an event. Its number is the first cell, its hash the last."""
        connection = self._connection
        connection.preupdate_hook(None)  # the log has no sum
        try:
            connection.execute(sql, event)
        finally:
            connection.preupdate_hook(self._add_change)
        self._last_event = event[0], event[-1]
        self._first_event = self._first_event or event[0]

    def find_problem(self) -> str:
        """Return the problem with the permission tables or the log's end, or an empty string.

        Called in a transaction when the service starts.
        """
        db = self._connection
        self._alone_from = 1 + int((db.execute("SELECT max(seq) FROM requests").fetchone() or (0,))[0] or 0)
        try:
            self._load(db)
        except StoreCorrupt as error:
            return error.message
        if self._seal is None:
            lost = db.execute("SELECT 1 FROM events WHERE kind = ? LIMIT 1", (SEALED,)).fetchone()
            return "the database's seal was taken away" if lost else ""
        if self.log_end() != (self._seal.size, self._seal.head):
            return f"the log does not end with event {self._seal.size}, which was written last"
        return _describe_change(db, self._sums, self._deltas)

    def seal(self, connection: apsw.Connection) -> None:
        """Update the sums with this transaction's rows and seal them.

        Raises StoreCorrupt if another program changed data that only the service may change.
        """
        if not self._deltas and not self._first_event and not self._must_sign:
            self._finish()
            return
        key = self._key
        if key is None:
            raise StoreError("the signing key was not read, so nothing can be written")
        if self._seal is None or self._current_version() != self._version:
            self._check_others(connection)
        if self._seal is None:
            self._sums = {
                name: seals.sum_table(connection, name) for name in seals.list_sealed_tables(connection)
            }
            self._pieces = {name: seals.hash_sum(name, total) for name, total in self._sums.items()}
            changed = list(self._sums)
        else:
            changed = [name for name, (rows, total) in self._deltas.items() if rows or total]
            for name in changed:
                self._sums[name] = total = self._sums.get(name, RowSum()).plus(*self._deltas[name])
                self._pieces[name] = seals.hash_sum(name, total)
            if not changed and not self._first_event and self._seal.is_signed:
                self._finish()
                return
        self._write(connection, key, changed)
        self._finish()

    def _finish(self) -> None:
        """Compute the counter that the next transaction expects if nobody else writes, and reset this one."""
        now = self._connection.data_version()
        version = self._seen_version
        is_known = now == self._expected_counter if version is None else version == self._version
        self._expected_counter = now + 1 if is_known else None  # this commit increments it by one
        self._reset()

    def _write(self, connection: apsw.Connection, key: SigningKey, changed: list[str]) -> None:
        now_s = time.monotonic()
        is_signed = self._must_sign or now_s - self.signed_at_s >= SIGN_EVERY_S
        newer = self._newer.union(changed)
        connection.preupdate_hook(None)  # these two tables have no sum
        try:
            if is_signed or len(newer) > _MAX_NEWER:
                for name in newer:
                    total = self._sums[name]
                    connection.execute(_STORE_SUM, (name, total.rows, total.blob))
                newer = frozenset[str]()
            seal = seals.make_seal(*self.log_end(), self._pieces, key, is_signed=is_signed)
            packed = seals.pack_sums({name: self._sums[name] for name in newer})
            values = (seal.size, seal.head, seal.state, seal.key_id, seal.signature, packed)
            connection.execute(_STORE_SEAL, values)
        finally:
            connection.preupdate_hook(self._add_change)
        if is_signed:
            self.signed_at_s = now_s
        # If the commit fails after this, the next transaction notices and reads the stored seal again.
        self._seal, self._was_sealed, self._newer = seal, True, newer

    def _load(self, connection: apsw.Connection) -> None:
        """Read the last seal unless this process wrote it. Raises StoreCorrupt if it is not valid."""
        stored = seals.read_seal(connection)
        if stored is not None and stored == self._seal:
            return
        self._seal = None  # trust and sign nothing before it has been checked
        self._sums = seals.read_sums(connection)
        self._pieces = {name: seals.hash_sum(name, total) for name, total in self._sums.items()}
        if stored is None:
            if self._was_sealed:
                raise StoreCorrupt("the database's seal was taken away", hint=HINT)
            return
        self._was_sealed = True
        if why := seals.seal_problem(stored, self._trusted_keys):
            raise StoreCorrupt(f"the database's seal {why}", hint=HINT)
        if seals.hash_tables(self._pieces) != stored.state:
            raise StoreCorrupt("the sums of the tables are not those that were signed", hint=HINT)
        self._seal, self._newer = stored, frozenset(seals.read_newer_sums(connection))

    def _check_others(self, connection: apsw.Connection) -> None:
        """Check the writes of other connections since the last transaction here."""
        version = self._current_version()
        self._load(connection)
        seal = self._seal
        if seal is None:
            return
        is_next = self._first_event == seal.size + 1
        if not (is_next if self._first_event else self.log_end() == (seal.size, seal.head)):
            raise StoreCorrupt(f"events after {seal.size} were not written by this service", hint=HINT)
        if seal.size and self._first_event:
            row = connection.execute("SELECT hash FROM events WHERE id = ?", (seal.size,)).fetchone()
            if row is None or row[0] != seal.head:
                raise StoreCorrupt(f"event {seal.size} was altered", hint=HINT)
        if version != self._version:
            self._row_caches.clear()
            self._is_alone = self._version < 0
            if problem := _describe_change(connection, self._sums, self._deltas):
                raise StoreCorrupt(problem, hint=HINT)
            self._version = version

    def _add_change(self, update: apsw.PreUpdate) -> None:
        """Add one row's change to the sums, before it happens."""
        table = update.table_name
        delta = self._deltas.get(table)
        if delta is None:
            if not is_sealed(table):
                return
            delta = self._deltas[table] = [0, 0]
        if table in self._row_caches:
            del self._row_caches[table]
        if (old := update.old) is not None:
            delta[0] -= 1
            delta[1] -= expand_digest(row_digest(table, old))
        if (new := update.new) is not None:
            self.newest[table] = digest = row_digest(table, new)
            delta[0] += 1
            delta[1] += expand_digest(digest)

    def _on_rollback(self) -> None:
        self._seal = None  # read again: the sums may be ahead
        self._expected_counter = None
        self._row_caches.clear()
        self._reset()

    def _reset(self) -> None:
        self._deltas.clear()
        self.newest.clear()
        self._first_event = 0
        self._seen_version = None
        self._must_sign = False


def _describe_change(
    connection: apsw.Connection, sums: Mapping[str, RowSum], deltas: Mapping[str, list[int]]
) -> str:
    """Return which permission table does not have its sum, or an empty string if all have it."""
    for name in _WATCHED:
        rows, total = deltas.get(name, (0, 0))
        if seals.sum_table(connection, name) != sums.get(name, RowSum()).plus(rows, total):
            return f"the table {name} was changed by something other than this service"
    return ""


class SealedConnection(apsw.Connection):
    """The writing connection, with its sums."""

    sealer: Sealer | None = None


def sealer_of(connection: apsw.Connection) -> Sealer:
    """Return the sealer of the writing connection, creating it when the connection is opened."""
    if isinstance(connection, SealedConnection) and connection.sealer is None:
        connection.sealer = Sealer(connection)
    sealer: Sealer | None = getattr(connection, "sealer", None)
    if sealer is None:
        raise StoreError("this connection is not the service's own")
    return sealer
