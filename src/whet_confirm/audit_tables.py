"""Compare the contents of every table with the signed sums, and the schema with the one that we create."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import apsw

from whet_confirm import seals
from whet_confirm.index_check import index_problems
from whet_confirm.keys import PublicKey
from whet_confirm.schema import STEPS
from whet_confirm.sealer import SEALED


def check_tables(
    db: apsw.Connection, keys: Mapping[str, PublicKey], end: tuple[int, bytes], *, is_silent: bool
) -> list[str]:
    """Return the problems of the seal, the log's `end` (last event and hash), the tables and the schema.

    `is_silent` skips the sums, because a more specific problem was already found.
    """
    problems = _schema_problems(db) + index_problems(db)
    if not _has_seals(db):
        return problems
    seal, sums = seals.read_seal(db), seals.read_sums(db)
    if seal is None:
        was_sealed = db.execute("SELECT 1 FROM events WHERE kind = ? LIMIT 1", (SEALED,)).fetchone()
        return [*problems, "the seal over the tables was taken away"] if was_sealed or sums else problems
    if is_silent:
        return problems
    pieces = {name: seals.hash_sum(name, total) for name, total in sums.items()}
    if why := seals.seal_problem(seal, keys) or _replaced_key_problem(seal, keys):
        problems.append(f"the seal over the tables {why}")
    elif seals.hash_tables(pieces) != seal.state:
        problems.append("the sums of the tables are not those that were signed")
    if (seal.size, seal.head) != end:
        problems.append(f"the log ends at event {end[0]}, but the seal was made at {seal.size}")
    names = sorted({*seals.list_sealed_tables(db), *sums})
    problems += [
        f"the table {name} does not hold what was written" for name in _find_changed_tables(db, names, sums)
    ]
    return problems


def _replaced_key_problem(seal: seals.Seal, keys: Mapping[str, PublicKey]) -> str:
    """Return a problem if a replaced key made the seal: whoever has an old key could have made it."""
    in_use = [*keys][-1]
    return "" if seal.signer == in_use else f"is made with a key that was replaced ({seal.signer})"


def _find_changed_tables(
    db: apsw.Connection, names: list[str], sums: Mapping[str, seals.RowSum]
) -> list[str]:
    existing = set(seals.list_sealed_tables(db))
    missing = [name for name in names if name not in existing]
    return missing + seals.find_differences(db, [name for name in names if name in existing], sums)


def _has_seals(db: apsw.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'seals'").fetchone() is not None


def _schema_problems(db: apsw.Connection) -> list[str]:
    """Return which tables, indexes, triggers or views differ from the ones that our migration steps create.

    A team's database has other steps and is not checked.
    """
    if not isinstance(db, apsw.Connection):  # pyright: ignore[reportUnnecessaryIsInstance] a team's has the same calls
        return []
    version = int(db.pragma("user_version"))
    with closing(apsw.Connection(":memory:")) as reference:
        for step in STEPS[:version]:
            reference.execute(step)
        expected, actual = _schema(reference), _schema(db)
    odd = sorted({name for _, name, _ in expected ^ actual if not name.startswith("sqlite_")})
    return [f"the schema was altered: {', '.join(odd[:5])}"] if odd else []


def _schema(db: apsw.Connection) -> set[tuple[str, str, str]]:
    rows = db.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return {(str(kind), str(name), str(sql)) for kind, name, sql in rows}
