"""Claim sessions for turns when several machines share a database, by a lease and a fence number.

The lease is measured by the database's clock. Claiming a session raises its fence number, and every write of
a turn checks the number of its claim in the same transaction. So later writes of a worker that was stopped or
cut off are refused. Another machine can't see whether a process lives, so a thread of the process renews its
leases until it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import psycopg

from whet.contract.errors import StoreBusy
from whet.postgres.connection import PostgresConnection
from whet.sqlite.lane import RowStatement

FENCE = RowStatement("SELECT whet_fence(?, ?, ?)")
START_CALL = RowStatement("SELECT whet_start_call(?, ?, ?, ?, ?, ?, ?)")
UNTIL = "now() + current_setting('whet.lease_s')::float8 * interval '1 s'"
_TAKE = "SELECT whet_take(?, ?, ?, ?, ?)"
_CLAIM = "SELECT whet_claim(?, ?, ?, ?, ?, ?, ?, ?)"
_ENTER = (
    f"INSERT INTO team_processes (id, lease_until) VALUES (?, {UNTIL})"
    " ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
)
_STAY = f"UPDATE team_processes SET lease_until = {UNTIL} WHERE id = $1"
_FORGET = "DELETE FROM team_processes WHERE lease_until < now() - interval '1 day'"
# A claim that a running transaction has locked is skipped, so that the renewal waits for nobody. It is
# renewed the next time; a process that wants the session waits for that lock, too.
_KEEP = (
    f"UPDATE claims SET lease_until = {UNTIL} WHERE session = ANY (ARRAY("
    "SELECT session FROM claims WHERE token = ANY ($1) FOR UPDATE SKIP LOCKED))"
)
_RENEWALS = 6
_logger = logging.getLogger("whet.team")


class ClaimHolder(Protocol):
    """The identity of a claim's holder."""

    token: str
    fence: int


class ClaimingProcess(NamedTuple):
    """This process: its name for others, a unique word, and the tokens of its holders."""

    host: str
    pid: int
    nonce: str
    tokens: Callable[[], Sequence[str]]


def take(
    connection: Any, key: int, session_id: str, holder: ClaimHolder, process: ClaimingProcess
) -> Callable[[], bool]:
    """Claim a session under a new fence number, and return the function that completes the claim.

    That function returns whether the first statement claimed the session. It raises StoreBusy while another
    holder's lease runs.
    """
    values = (key, holder.token, process.host, process.pid, process.nonce)
    cursor = connection.execute(_TAKE, values)

    def check() -> bool:
        (first_fence,) = (fence,) = cursor.fetchone()
        if fence is None and _has_lost_holder(connection, key, process):
            connection.execute("DELETE FROM claims WHERE session = ? AND born = ?", (key, process.nonce))
            (fence,) = connection.execute(_TAKE, values).fetchone()
        if fence is None:
            refuse_if_held(connection, key, session_id, holder, process)
            raise StoreBusy(f"session {session_id} was just taken", hint="try again in a moment")
        holder.fence = fence
        return first_fence is not None

    return check


def claim_unchanged(
    connection: Any, key: int, holder: ClaimHolder, process: ClaimingProcess, version: tuple[int, int, int]
) -> Callable[[], int]:
    """Claim a session without a wait if it has this version (epoch, last turn, next number).

    If it has not, or another holder has the session, the transaction fails with ClaimRefused. Returns the
    function that reads the claim's fence number after the commit, 0 if the commit's answer was lost.
    """
    values = (key, holder.token, process.host, process.pid, process.nonce, *version)
    cursor = connection.execute(_CLAIM, values)

    def read_fence() -> int:
        row = cursor.received_row
        return 0 if row is None else row[0]

    return read_fence


def enter(connection: Any, process: ClaimingProcess) -> None:
    """Create a lease for the process. While it is valid, no other process takes over rows in its name."""
    connection.execute(_FORGET)
    connection.execute(_ENTER, (process.nonce,))


def has_run_out(connection: Any, nonce: str) -> bool:
    """Return whether the lease of a process has run out. A missing one ran out more than a day ago."""
    row = connection.execute(
        "SELECT lease_until < clock_timestamp() FROM team_processes WHERE id = ?", (nonce,)
    ).fetchone()
    return row is None or bool(row[0])


def _has_lost_holder(connection: Any, key: int, process: ClaimingProcess) -> bool:
    """Return whether the session was claimed in this process by a holder that no longer exists."""
    row = connection.execute("SELECT token, born FROM claims WHERE session = ?", (key,)).fetchone()
    return row is not None and row[1] == process.nonce and row[0] not in process.tokens()


def refuse_if_held(
    connection: Any, key: int, session_id: str, holder: ClaimHolder | None, process: ClaimingProcess
) -> None:
    """Raise StoreBusy while the lease of another holder runs."""
    row = connection.execute(
        "SELECT host, pid, extract(epoch FROM lease_until - now())::float8 FROM claims"
        " WHERE session = ? AND token <> ? AND lease_until >= now()",
        (key, holder.token if holder else ""),
    ).fetchone()
    if row is not None and not _has_lost_holder(connection, key, process):
        raise StoreBusy(
            f"session {session_id} is in use by process {row[1]} on {row[0]}",
            hint=f"wait for its turn to end; if it is gone, its lease ends in {max(row[2], 0):.0f} s",
        )


def check_claim(connection: Any, key: int, holder: ClaimHolder) -> None:
    """Lock the claim until the end of the transaction, which fails if it was lost."""
    connection.execute(FENCE.sql, (key, holder.token, holder.fence))


def release_claim(connection: Any, key: int, holder: ClaimHolder) -> None:
    """Release the session. The transaction fails if the claim was lost meanwhile."""
    connection.execute("SELECT whet_release(?, ?, ?)", (key, holder.token, holder.fence))


def delete_claim(connection: Any, key: int, holder: ClaimHolder) -> None:
    """Release the session if the holder has it."""
    connection.execute(
        "DELETE FROM claims WHERE session = ? AND token = ? AND fence = ?", (key, holder.token, holder.fence)
    )


class Keeper:
    """Renews the leases of this process and of its holders six times per lease.

    Its thread begins with the first claim, and waits for no other work of the process and for no lock of the
    database.
    """

    def __init__(self, connect: Callable[[], PostgresConnection], lease_s: float) -> None:
        self._connect = connect
        self._every_s = lease_s / _RENEWALS
        self.renewals: list[Callable[[PostgresConnection], None]] = []
        """Further leases to renew with these; called on the thread of the keeper."""
        self._ended = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, process: ClaimingProcess) -> bool:
        """Start renewing the claims of this process, and return whether that is new."""
        with self._start_lock:
            if self._thread is not None or self._ended.is_set():
                return False
            self._thread = threading.Thread(
                target=self._run, args=(process,), name="team-keeper", daemon=True
            )
            self._thread.start()
            return True

    def close(self) -> None:
        """Stop renewing."""
        with self._start_lock:
            self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, process: ClaimingProcess) -> None:
        connection: PostgresConnection | None = None
        renewed_s = time.monotonic()
        while not self._ended.wait(self._every_s):
            try:
                connection = connection or self._connect()
                connection.raw.execute(_STAY, (process.nonce,))
                if tokens := list(process.tokens()):
                    connection.raw.execute(_KEEP, (tokens,))
                for renew in self.renewals:
                    renew(connection)
            except psycopg.Error:  # retried next time; writes under a lease that ran out fail
                if connection is not None:
                    connection.raw.close()
                connection = None
            else:
                renewed_s, before_s = time.monotonic(), renewed_s
                self._warn_if_late(renewed_s - before_s)
        if connection is not None:
            connection.raw.close()

    def _warn_if_late(self, apart_s: float) -> None:
        if apart_s > self._every_s * _RENEWALS / 2:
            _logger.warning(
                "leases were renewed after %.1f s and would run out after %.1f s; set a longer one:"
                " whet config set store.lease_s %d",
                apart_s,
                self._every_s * _RENEWALS,
                round(apart_s * 3) + 1,
            )
