"""Read the state of a team's database: its server, its claimed sessions and its waiting turns."""

from __future__ import annotations

import time
from contextlib import closing

import apsw
import msgspec

from whet.postgres.driver import hide_password
from whet.store.team import TeamDatabase


class TeamStatus(msgspec.Struct, frozen=True):
    """The state of a team's database for its administrator.

    `clock_off_s` tells how far the database's clock is ahead of this machine's; nothing depends on that.
    `excess` names the rights of this role that turns do not need.
    """

    address: str
    server: str
    steps: int
    sessions: int
    waiting: int
    running: int
    aside: int
    oldest_s: float
    held: int
    run_out: int
    clock_off_s: float
    excess: str = ""


COUNTS = """
  (SELECT count(*) FROM team_turns WHERE state = 'waiting'),
  (SELECT count(*) FROM team_turns WHERE state = 'running'),
  (SELECT count(*) FROM team_turns WHERE state = 'aside'),
  (SELECT coalesce(extract(epoch FROM now() - min(asked)), 0)::float8
   FROM team_turns WHERE state = 'waiting'),
  (SELECT count(*) FROM claims WHERE lease_until >= now()),
  (SELECT count(*) FROM claims WHERE lease_until < now()),
"""
_ASKED = f"""
SELECT (SELECT setting FROM pg_settings WHERE name = 'server_version'),
  (SELECT count(*) FROM migrations), (SELECT count(*) FROM sessions), {COUNTS}
  extract(epoch FROM clock_timestamp())::float8
"""


def read_status(url: str, lease_s: float) -> TeamStatus:
    """Read the state of the database at `url`. Raises StoreError."""
    with closing(TeamDatabase.open_url(url, lease_s=lease_s, patience_s=2)) as database:
        status = database.read_now(lambda connection: _read_counts(connection, url))
        return msgspec.structs.replace(status, excess=database.describe_excess())


def _read_counts(connection: apsw.Connection, url: str) -> TeamStatus:
    row = connection.execute(_ASKED).fetchone()
    assert row is not None  # a query of sums always returns a row
    version, *counts, now_s = row
    return TeamStatus(
        hide_password(url), f"PostgreSQL {version}", *counts, clock_off_s=round(now_s - time.time(), 3)
    )
