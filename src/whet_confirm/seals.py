"""Computes a sum over the rows of each table, and the seal: a signature over all sums and the log's end.

If many commits follow each other closely, most seals hold a code (MAC) instead of the signature. Only the
service's own key can make and check a code; a signature follows within a second.

A table's sum adds the hashes of its rows, each expanded to 2048 bits so that no other rows with the same sum
can be found. Each changed row changes the sum at the cost of hashing that row only. The log has its hash
chain instead. This module writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

import apsw
import msgspec

from whet.contract.texts import from_values
from whet_confirm.keys import PublicKey, SigningKey

SUM_BYTES = 256
CODED = "code:"  # prefix of a key's id: a code (MAC) of that key, not a signature
_MASK = (1 << 8 * SUM_BYTES) - 1
# The log is chained, and the seal is signed; SQLite's own tables hold no data of ours.
_UNSEALED = frozenset(("events", "seal", "seals"))
_SEAL_CELLS = 7
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode

Cells = Sequence[object]


class RowSum(msgspec.Struct, frozen=True):
    """The number of rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def plus(self, rows: int, total: int) -> RowSum:
        """Return the sum with `rows` and `total` added; negative values subtract."""
        return RowSum(self.rows + rows, (self.total + total) & _MASK)

    @property
    def blob(self) -> bytes:
        """The sum in its stored form."""
        return self.total.to_bytes(SUM_BYTES, "little")


class Seal(msgspec.Struct, frozen=True):
    """A seal: the log's length, its newest hash, and one hash over the sums of all tables (`state`).

    `signature` is a code if `key_id` begins with `CODED`.
    """

    size: int
    head: bytes
    state: bytes
    key_id: str
    signature: bytes

    @property
    def is_signed(self) -> bool:
        """Whether it is signed, so that anyone can verify it."""
        return not self.key_id.startswith(CODED)

    @property
    def signer(self) -> str:
        """The id of the key that sealed it."""
        return self.key_id.removeprefix(CODED)

    @property
    def message(self) -> bytes:
        """The bytes that the signature covers."""
        return _message(self.size, self.head, self.state)


def _message(size: int, head: bytes, state: bytes) -> bytes:
    return f"whet-seal/1\n{size}\n{head.hex()}\n{state.hex()}".encode()


def make_seal(
    size: int, head: bytes, pieces: Mapping[str, bytes], key: SigningKey, *, is_signed: bool
) -> Seal:
    """Seal the log's end and the tables, of which `pieces` are the hashed sums."""
    state = hash_tables(pieces)
    message = _message(size, head, state)
    if is_signed:
        return Seal(size, head, state, key.id, key.sign(message))
    return Seal(size, head, state, CODED + key.id, key.make_code(message))


def seal_problem(seal: Seal, keys: Mapping[str, PublicKey]) -> str:
    """Return why a seal is not trusted, or an empty string if it is."""
    key = keys.get(seal.signer)
    if key is None:
        return "is not signed with a key that is known"
    if seal.is_signed:
        is_ours = key.is_valid_signature(seal.message, seal.signature)
    elif isinstance(key, SigningKey):
        is_ours = key.is_valid_code(seal.message, seal.signature)
    else:
        return "is not signed yet: look again in a second, or where the service's signing key is"
    return "" if is_ours else "is not signed by this service"


def row_digest(table: str, cells: Cells) -> bytes:
    """Return the hash of one row with all its columns."""
    return hashlib.sha256(_encode((table, *cells))).digest()


@lru_cache(maxsize=2048)  # a changed row was usually written shortly before
def expand_digest(digest: bytes) -> int:
    """Expand a row's hash to a number for the sum."""
    return int.from_bytes(hashlib.shake_256(digest).digest(SUM_BYTES), "little")


@cache
def is_sealed(table: str) -> bool:
    """Return whether a table has a sum."""
    return table not in _UNSEALED and not table.startswith("sqlite_")


def list_sealed_tables(db: apsw.Connection) -> list[str]:
    """Return the names of all tables that have a sum."""
    names = (str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    return sorted(name for name in names if is_sealed(name))


def sum_table(db: apsw.Connection, table: str) -> RowSum:
    """Sum a table, row by row."""
    count = total = 0
    quoted = table.replace('"', '""')
    for cells in db.execute(f'SELECT * FROM "{quoted}"'):
        count += 1
        total += expand_digest(row_digest(table, cells))
    return RowSum(count, total & _MASK)


def read_sums(db: apsw.Connection) -> dict[str, RowSum]:
    """Return the newest stored sums: those in the table `seals`, replaced by newer ones in the seal."""
    stored = {str(name): (int(rows), bytes(total)) for name, rows, total in db.execute("SELECT * FROM seals")}
    return {name: _row_sum(*cells) for name, cells in (stored | read_newer_sums(db)).items()}


def _row_sum(rows: int, total: bytes) -> RowSum:
    return RowSum(rows, int.from_bytes(total, "little")) if len(total) == SUM_BYTES else RowSum(-1)


def read_newer_sums(db: apsw.Connection) -> dict[str, tuple[int, bytes]]:
    """Return the sums stored in the seal itself. If they can't be decoded, return one that never matches."""
    row = db.execute("SELECT * FROM seal").fetchone()
    if row is None or len(row) < _SEAL_CELLS or row[-1] is None:
        return {}
    try:
        return from_values(msgspec.msgpack.decode(bytes(row[-1])), dict[str, tuple[int, bytes]])
    except msgspec.DecodeError:
        return {"seal": (-1, b"")}


def pack_sums(sums: Mapping[str, RowSum]) -> bytes | None:
    """Encode sums for the seal, or return None if there are none."""
    return _pack({name: (row_sum.rows, row_sum.blob) for name, row_sum in sums.items()}) if sums else None


def read_seal(db: apsw.Connection) -> Seal | None:
    """Return the stored seal, or None if nothing was ever sealed."""
    row = db.execute("SELECT size, head, state, key_id, signature FROM seal").fetchone()
    return Seal(*row) if row else None


def hash_tables(pieces: Mapping[str, bytes]) -> bytes:
    """Return one hash over the hashed sums of all tables: the state of a seal."""
    return hashlib.sha256(b"".join(map(pieces.__getitem__, sorted(pieces)))).digest()


def hash_sum(table: str, total: RowSum) -> bytes:
    """Return the hash of one table's sum."""
    return hashlib.sha256(_encode((table, total.rows)) + total.blob).digest()


def find_differences(db: apsw.Connection, names: Iterable[str], sums: Mapping[str, RowSum]) -> list[str]:
    """Return the tables whose rows don't match the sums that were written last."""
    return [name for name in names if sum_table(db, name) != sums.get(name, RowSum())]
