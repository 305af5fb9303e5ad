"""Translate PostgreSQL's errors into the store's own errors, in one place. No message holds a password."""

from __future__ import annotations

import logging
import re

import psycopg
from psycopg import errors

from whet.contract.errors import ClaimRefused, QueueFull, StoreBusy, StoreError, StoreFull, StoreUnwritable
from whet.log import WAITS
from whet.postgres.driver import has_password, hide_password, is_ambiguous
from whet.sqlite.faults import has_no_descriptors, no_descriptors_error

FENCE_LOST = "WF001"
_QUEUE_FULL = "WF003"
_CLAIM_REFUSED = "WF004"
_ADDRESS_HINT = (
    "write postgresql://user@host/database, and in a name or password %40 for @, %2F for /, %20 for a space"
)
# If connecting fails, the error has no code, only the server's message.
_POOLER = re.compile(r"unsupported startup parameter")
_REFUSED = re.compile(r"connection failed.*FATAL: +(?!the database system is)", re.DOTALL)
_NO_ROOM = re.compile(r"too many (?:clients|connections)|remaining connection slots")
_LOG_AT_RUN = 3
_waits = logging.getLogger(WAITS)


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is lost, so that a new one may work."""
    return isinstance(
        error,
        errors.AdminShutdown
        | errors.CrashShutdown
        | errors.CannotConnectNow
        | errors.IdleInTransactionSessionTimeout,
    ) or (isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not error.sqlstate)


def is_away(error: BaseException) -> bool:
    """Return whether the database may accept the same write later: the connection is lost, or its disk is
    full."""
    return is_lost(error) or isinstance(error, errors.DiskFull)


def log_wait(error: psycopg.Error, url: str, patience_s: float, runs: int) -> None:
    """Log the reason for a wait, once: when the operation has failed for the third time."""
    if runs == _LOG_AT_RUN:
        _waits.warning("waiting up to %.0f s: %s", patience_s, translate_error(error, url).message)


def log_silence(url: str) -> None:
    """Log that the server has not answered for a second."""
    _waits.warning("waiting: the team's database %s does not answer", hide_password(url))


def may_run_again(error: BaseException) -> bool:
    """Return whether the same write may succeed now, because it failed by a conflict with another process."""
    return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def translate_error(error: psycopg.Error, url: str) -> StoreError:
    """Return the StoreError for `error`."""
    where = hide_password(url)
    if error.sqlstate == FENCE_LOST:
        return fence_error()
    if error.sqlstate == _CLAIM_REFUSED:
        return ClaimRefused(_first_line(error), hint="open the session again to go on")
    if error.sqlstate == _QUEUE_FULL:
        return QueueFull(_first_line(error), hint="ask again when some of them have ended")
    if _POOLER.search(str(error)):
        return pooler_error(url)
    if not error.sqlstate and (is_ambiguous(url) or isinstance(error, psycopg.ProgrammingError)):
        why = "" if has_password(url) else f": {_first_line(error)}"
        return StoreError(f"{where} is not an address that can be read{why}", hint=_ADDRESS_HINT)
    store_error = _by_class(error, where)
    if store_error is not None:
        return store_error
    if not error.sqlstate and has_no_descriptors():
        return no_descriptors_error(where)
    if _REFUSED.match(str(error)):
        return StoreUnwritable(
            f"the team's database {where} refused the connection: {_first_line(error)}",
            hint="check the role, its password (~/.pgpass or PGPASSWORD) and the database's name",
        )
    if is_lost(error) or isinstance(error, psycopg.OperationalError):
        return StoreUnwritable(
            f"can't reach the team's database {where}: {_first_line(error)}",
            hint="is the server running, and is that its address?",
        )
    return StoreError(
        f"the team's database {where} failed: {_first_line(error)}", hint="run `whet team status`"
    )


def fence_error() -> StoreBusy:
    """Return the error for a worker that has lost its session."""
    return StoreBusy(
        "another worker has taken over this session", hint="open the session again to see what it did"
    )


def pooler_error(url: str) -> StoreError:
    """Return the error for the address of a connection pooler."""
    return StoreError(
        f"{hide_password(url)} is a connection pooler, which does not pass on a connection's settings",
        hint="name the server itself in store.url: Whet keeps its own few connections",
    )


def _by_class(error: psycopg.Error, where: str) -> StoreError | None:
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        return StoreFull(
            f"the team's database {where} has no space left",
            hint="free some space on its server; everything stored before is safe",
        )
    if isinstance(error, errors.TooManyConnections) or _NO_ROOM.search(str(error)):
        return StoreBusy(
            f"the team's database {where} has no connection left",
            hint="raise max_connections, or run fewer workers",
        )
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled):
        return StoreBusy(f"the team's database {where} did not answer in time", hint="try again")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnwritable(
            f"the team's database {where} is a replica that can't be written",
            hint="name the primary in store.url, with target_session_attrs=read-write",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnwritable(
            f"no right to do this in the team's database {where}: {_first_line(error)}",
            hint="connect as the owner for whet team init, else as a role of whet team init URL --roles",
        )
    return None


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    line = text.rpartition("FATAL:")[2] if "FATAL:" in text else text
    return line.strip().partition("\n")[0][:200]
