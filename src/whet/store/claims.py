"""Ensure that one living process at a time writes a session's turn.

A claim names its owner by host, process id and the process's start time. So a dead owner's claim is taken
over at once, and a reused process id is not mistaken for the owner. If the start time can't be read (no
/proc, another host), a claim is valid for 60 s after its last renewal. In a team, two machines or
containers may have the same host name, so leases decide instead (`team_claims.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import apsw

from whet.clock import iso
from whet.contract.errors import StoreBusy
from whet.postgres.driver import needs_driver
from whet.store.rows import is_team

if TYPE_CHECKING:
    from whet.store.team_claims import ClaimingProcess  # imports psycopg

LEASE_S = 60.0


class Holder:
    """One open session log of this process. Its claim is void after it is closed or garbage-collected."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.fence = 0
        """In a team: the fence number under which the session was claimed."""
        _holders[token] = self


_holders: WeakValueDictionary[str, Holder] = WeakValueDictionary()


def live_tokens() -> list[str]:
    """Return the tokens of this process's holders."""
    return list(_holders.copy())


def drop_holder(holder: Holder) -> None:
    """Remove a holder, so that others can take its claims."""
    _holders.pop(holder.token, None)


def read_process_birth(pid: int) -> str:
    """Return a text that distinguishes a process from earlier and later ones with the same id.

    It is empty if it can't be read, or if the process has ended and its parent has not reaped it yet.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except (OSError, ValueError):
        return ""
    state, *fields = stat.rpartition(b")")[2].split()
    return "" if state in (b"Z", b"X") else f"{boot}-{fields[18].decode('ascii')}"


class _ThisProcess:
    """The identity of this process. A forked process gets its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.nonce = os.urandom(12).hex()
        self.host = os.uname().nodename
        self.born = read_process_birth(self.pid)


_cached_process: list[_ThisProcess] = []


def _current_process() -> _ThisProcess:
    if not _cached_process or _cached_process[0].pid != os.getpid():
        _cached_process[:] = [_ThisProcess()]
    return _cached_process[0]


def claiming_process() -> ClaimingProcess:
    """Return this process as a team knows it. Raises ConfigError if the database driver is not installed."""
    with needs_driver():
        from whet.store.team_claims import ClaimingProcess  # noqa: PLC0415 - brings psycopg, 60 ms

    process = _current_process()
    return ClaimingProcess(process.host, process.pid, process.nonce, live_tokens)


def owner_name(token: str) -> str:
    """Return a name by which others can see whether this process lives. `token` distinguishes its owners."""
    process = _current_process()
    return f"{process.host} {process.pid} {process.born or '-'} {process.nonce} {token}"


def register_process(connection: apsw.Connection) -> None:
    """Register this process as living before anything is written in its name. In a team this creates a lease,
    which `keep_claims` of the database renews."""
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        team_claims.enter(connection, claiming_process())


def is_gone(connection: apsw.Connection, owner: str) -> bool:
    """Return whether the process with this `owner_name` has certainly ended or, in a team, whether its lease
    has run out. False if that can't be known."""
    parts = owner.split(" ")
    if len(parts) not in (4, 5) or not parts[1].isdecimal():  # four: written by an earlier version
        return False
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return len(parts) == 5 and team_claims.has_run_out(connection, parts[3])
    if parts[0] != _current_process().host:
        return False
    pid, born = int(parts[1]), parts[2]
    return not _exists(pid) or (born != "-" and read_process_birth(pid) != born)


def begin_claim(
    connection: apsw.Connection, key: int, session_id: str, holder: Holder, now: datetime
) -> Callable[[], bool]:
    """Claim a session for `holder`, and return the function that completes the claim.

    If that function returns True, the statements in between ran under the claim. Raises StoreBusy if another
    living holder has the session.
    """
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return team_claims.take(connection, key, session_id, holder, claiming_process())
    refuse_if_held(connection, key, session_id, holder, now)
    process = _current_process()
    connection.execute(
        "INSERT OR REPLACE INTO claims (session, token, host, pid, born, renewed) VALUES (?, ?, ?, ?, ?, ?)",
        (key, holder.token, process.host, process.pid, process.born, iso(now)),
    )
    return _is_claimed


def _is_claimed() -> bool:
    return True


def claim_unchanged(
    connection: apsw.Connection, key: int, holder: Holder, version: tuple[int, int, int]
) -> Callable[[], int]:
    """Claim a team's session as `team_claims.claim_unchanged` does. Raises ValueError for another store."""
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return team_claims.claim_unchanged(connection, key, holder, claiming_process(), version)
    raise ValueError("only a team's session has a version")


def refuse_if_held(
    connection: apsw.Connection,
    key: int,
    session_id: str,
    holder: Holder | None = None,
    now: datetime | None = None,
) -> None:
    """Raise StoreBusy if another living holder has the session. Without `now`, leases count as valid."""
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return team_claims.refuse_if_held(connection, key, session_id, holder, claiming_process())
    row = connection.execute(
        "SELECT token, host, pid, born, renewed FROM claims WHERE session = ?", (key,)
    ).fetchone()
    if row is None or (holder is not None and row[0] == holder.token):
        return
    if _is_alive(row, now):
        raise StoreBusy(
            f"session {session_id} is in use by process {row[2]}",
            hint="wait for its turn to end, or start a new session",
        )


def renew(connection: apsw.Connection, key: int, holder: Holder, now: datetime) -> None:
    """Renew the holder's claim on the session. Raises StoreBusy if it lost the claim."""
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return team_claims.check_claim(connection, key, holder)
    connection.execute(
        "UPDATE claims SET renewed = ? WHERE session = ? AND token = ?", (iso(now), key, holder.token)
    )
    if not connection.changes():
        raise _claim_lost_error()


def release(connection: apsw.Connection, key: int, holder: Holder) -> None:
    """Release the session. Raises StoreBusy if the claim was lost meanwhile."""
    if is_team(connection):
        from whet.store import team_claims  # noqa: PLC0415 - as above

        return team_claims.release_claim(connection, key, holder)
    connection.execute("DELETE FROM claims WHERE session = ? AND token = ?", (key, holder.token))
    if not connection.changes():
        raise _claim_lost_error()


def _claim_lost_error() -> StoreBusy:
    return StoreBusy(
        "another process has taken over this session", hint="open the session again to see what it did"
    )


def _is_alive(claim: tuple[str, str, int, str, str], now: datetime | None) -> bool:
    token, host, pid, born, renewed = claim
    process = _current_process()
    if host == process.host:
        if pid == process.pid and born == process.born:
            return token in _holders
        if not _exists(pid):
            return False
        if born:
            return read_process_birth(pid) == born
    return now is None or renewed > iso(now - timedelta(seconds=LEASE_S))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
