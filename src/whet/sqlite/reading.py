"""Reads in one consistent state, and the look at a file's schema before anything is written to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from whet.contract.errors import SchemaTooNew
from whet.sqlite.faults import as_store_error

T = TypeVar("T")


def in_one_state(reader: apsw.Connection, work: Callable[[apsw.Connection], T], path: Path) -> T:
    """Give what `work` reads, all of it as it was at one moment. Raises StoreError."""
    try:
        reader.execute("BEGIN")
        try:
            return work(reader)
        finally:
            if reader.in_transaction:
                reader.execute("ROLLBACK")
    except apsw.Error as error:
        raise as_store_error(error, str(path), reader.system_errno) from error


def has_step(connection: apsw.Connection, last: int, path: str, way_out: str) -> bool:
    """Say whether the schema's `last` step was applied. Raises SchemaTooNew, hinting at the `way_out`."""
    version = int(connection.pragma("user_version"))
    if version > last:
        raise SchemaTooNew(
            f"{path} was written by a newer Whet (schema {version}, this one knows {last})",
            hint=f"upgrade Whet, or {way_out}",
        )
    return version == last
