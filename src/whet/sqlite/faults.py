"""Translate SQLite's errors into the store's own errors, in one place."""

from __future__ import annotations

import errno
import os

import apsw

from whet.contract.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreUnwritable

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}


FAULTS = (apsw.Error, OverflowError, UnicodeDecodeError)
"""The exceptions of SQLite and its binding. The binding raises OverflowError for integers of more than 64
bits and UnicodeDecodeError for text that is not UTF-8."""


def translate_error(error: Exception, path: str, system_errno: int = 0) -> StoreError:
    """Return the StoreError for one of `FAULTS`. `system_errno` separates a full disk from a broken one."""
    if isinstance(error, OverflowError):
        return StoreError("a number is larger than the database can hold", hint="give a smaller one")
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(
            f"a text in {path} can't be read",
            hint="restore a backup; `whet doctor` shows the way",
        )
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and system_errno in DISK_FULL):
        return StoreFull(
            f"no space is left to write {path}", hint="free some disk space; everything stored before is safe"
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(
            f"another process is writing {path} and did not finish in time",
            hint="try again; `whet doctor` shows who holds the database",
        )
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(
            f"{path} is damaged or not a database",
            hint="move it away or restore a backup; `whet doctor` shows the way",
        )
    if isinstance(error, apsw.CantOpenError) and has_no_descriptors():
        return no_descriptors_error(path)
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError) or (
        isinstance(error, apsw.IOError) and system_errno in _UNWRITABLE
    ):
        return StoreUnwritable(
            f"can't write {path}",
            hint="check who owns the folder and its permissions, or set WHET_HOME to another one",
        )
    return StoreError(f"the database {path} failed: {error}", hint="run `whet doctor`")


def has_no_descriptors() -> bool:
    """Return whether this process or this machine can open no more files."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def no_descriptors_error(path: str) -> StoreError:
    """Return the error for a process that can open no more files."""
    import resource  # noqa: PLC0415 - loads a library, and is needed for this error only

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return StoreUnwritable(
        f"can't open {path}: this process has all the files open that it may ({limit})",
        hint="raise its limit (ulimit -n, LimitNOFILE of the service), or give it less to do at once",
    )
