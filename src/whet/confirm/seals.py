"""What every table holds, as one number for each, and a signature over all of them and the log's end.

Where many commits come close together, most carry a code in place of the signature, which the service's own
key alone can make and check; a signature follows within a second.

A table's number is the sum of its rows' hashes (each spread over 2048 bits, so that no other rows can be
found with the same sum): a row that is written, changed or taken away moves it, whatever the order, and it
costs no more than the row. The log has its chain of hashes instead. Reads and computes only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

import apsw
import msgspec

from whet.confirm.keys import PublicKey, SigningKey
from whet.contract.texts import from_values

SUM_BYTES = 256
CODED = "code:"  # before a key's id: its own code, no signature
_MASK = (1 << 8 * SUM_BYTES) - 1
# The log is chained, and the seal is signed; SQLite's own tables hold nothing that is read.
_OTHERWISE = frozenset(("events", "seal", "seals"))
_SEAL_CELLS = 7
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode

Cells = Sequence[object]


class RowSum(msgspec.Struct, frozen=True):
    """How many rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def plus(self, rows: int, total: int) -> RowSum:
        """Give the sum with `rows` more of `total`; negative ones take away."""
        return RowSum(self.rows + rows, (self.total + total) & _MASK)

    @property
    def blob(self) -> bytes:
        """The sum as it is stored."""
        return self.total.to_bytes(SUM_BYTES, "little")


class Seal(msgspec.Struct, frozen=True):
    """The sealed statement: how long the log is, its newest hash, and what the tables hold. `signature` is a
    code where `key_id` says so."""

    size: int
    head: bytes
    state: bytes
    key_id: str
    signature: bytes

    @property
    def is_signed(self) -> bool:
        """Whether it is signed, so that anybody can check it."""
        return not self.key_id.startswith(CODED)

    @property
    def signer(self) -> str:
        """The id of the key that sealed it."""
        return self.key_id.removeprefix(CODED)

    @property
    def message(self) -> bytes:
        """What the signature covers."""
        return _message(self.size, self.head, self.state)


def _message(size: int, head: bytes, state: bytes) -> bytes:
    return f"whet-seal/1\n{size}\n{head.hex()}\n{state.hex()}".encode()


def sealed(size: int, head: bytes, pieces: Mapping[str, bytes], key: SigningKey, *, is_signed: bool) -> Seal:
    """Seal the log's end and what `piece` gives for each table."""
    state = state_of(pieces)
    message = _message(size, head, state)
    if is_signed:
        return Seal(size, head, state, key.id, key.sign(message))
    return Seal(size, head, state, CODED + key.id, key.code(message))


def doubt(seal: Seal, keys: Mapping[str, PublicKey]) -> str:
    """Say why a seal is not to be believed; "" where it is."""
    key = keys.get(seal.signer)
    if key is None:
        return "is not signed with a key that is known"
    if seal.is_signed:
        is_ours = key.is_signed(seal.message, seal.signature)
    elif isinstance(key, SigningKey):
        is_ours = key.is_coded(seal.message, seal.signature)
    else:
        return "is not signed yet: look again in a second, or where the service's signing key is"
    return "" if is_ours else "is not signed by this service"


def row_digest(table: str, cells: Cells) -> bytes:
    """Give the hash of one row with all its columns."""
    return hashlib.sha256(_encode((table, *cells))).digest()


@lru_cache(maxsize=2048)  # a row that is changed has mostly been written shortly before
def spread(digest: bytes) -> int:
    """Give a row's hash as a number to add."""
    return int.from_bytes(hashlib.shake_256(digest).digest(SUM_BYTES), "little")


@cache
def is_sealed(table: str) -> bool:
    """Whether a table has a sum."""
    return table not in _OTHERWISE and not table.startswith("sqlite_")


def tables(db: apsw.Connection) -> list[str]:
    """Give the names of all tables that have a sum."""
    names = (str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    return sorted(name for name in names if is_sealed(name))


def added_up(db: apsw.Connection, table: str) -> RowSum:
    """Add a table up, row by row."""
    count = total = 0
    quoted = table.replace('"', '""')
    for cells in db.execute(f'SELECT * FROM "{quoted}"'):
        count += 1
        total += spread(row_digest(table, cells))
    return RowSum(count, total & _MASK)


def stored_sums(db: apsw.Connection) -> dict[str, RowSum]:
    """Give the sums that were last written: those of `seals`, and in their place what the seal has newer."""
    found = {str(name): (int(rows), bytes(total)) for name, rows, total in db.execute("SELECT * FROM seals")}
    return {name: _row_sum(*given) for name, given in (found | newer_sums(db)).items()}


def _row_sum(rows: int, total: bytes) -> RowSum:
    return RowSum(rows, int.from_bytes(total, "little")) if len(total) == SUM_BYTES else RowSum(-1)


def newer_sums(db: apsw.Connection) -> dict[str, tuple[int, bytes]]:
    """Give the sums that stand in the seal itself; where they can't be read, one that fits no state."""
    row = db.execute("SELECT * FROM seal").fetchone()
    if row is None or len(row) < _SEAL_CELLS or row[-1] is None:
        return {}
    try:
        return from_values(msgspec.msgpack.decode(bytes(row[-1])), dict[str, tuple[int, bytes]])
    except msgspec.DecodeError:
        return {"seal": (-1, b"")}


def packed(sums: Mapping[str, RowSum]) -> bytes | None:
    """Write sums as they stand in the seal; None for none."""
    return _pack({name: (one.rows, one.blob) for name, one in sums.items()}) if sums else None


def stored_seal(db: apsw.Connection) -> Seal | None:
    """Give the signed statement; None where nothing was ever sealed."""
    row = db.execute("SELECT size, head, state, key_id, signature FROM seal").fetchone()
    return Seal(*row) if row else None


def state_of(pieces: Mapping[str, bytes]) -> bytes:
    """Give one hash for all tables of what `piece` gives for each."""
    return hashlib.sha256(b"".join(map(pieces.__getitem__, sorted(pieces)))).digest()


def piece(table: str, total: RowSum) -> bytes:
    """Give a table's part of the state."""
    return hashlib.sha256(_encode((table, total.rows)) + total.blob).digest()


def differing(db: apsw.Connection, names: Iterable[str], sums: Mapping[str, RowSum]) -> list[str]:
    """Give those of the tables whose rows do not add up to what was last written."""
    return [name for name in names if added_up(db, name) != sums.get(name, RowSum())]
