from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.team.cluster import NO_SERVER, shared
from whet.postgres.connection import connect
from whet.store.database import StateDatabase
from whet.store.team import TeamDatabase

BOTH = ("sqlite", pytest.param("postgres", marks=pytest.mark.skipif(bool(NO_SERVER), reason=NO_SERVER)))


# In place of the server's own time, for connections that are opened after it.
_STANDS_STILL = (
    "CREATE SCHEMA still",
    "CREATE TABLE still.moment (at TIMESTAMPTZ)",
    "INSERT INTO still.moment VALUES (now())",
    "CREATE FUNCTION still.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
    " AS 'SELECT at FROM still.moment'",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = still, pg_catalog, public',"
    " current_database()); END $$",
)


class StoreClock(FixedClock):
    """A fixed clock that a database's time can go with."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[datetime], object] = lambda moment: None

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.tell(self.moment)


@pytest.fixture
def clock() -> StoreClock:
    """Time that stands still."""
    return StoreClock()


@pytest.fixture
def still_time() -> None:
    """Asks `db` for a server whose time is the test's clock's, and not its own."""


@pytest.fixture(params=BOTH)
def db(request: pytest.FixtureRequest, tmp_path: Path, clock: StoreClock) -> Iterator[StateDatabase]:
    if request.param == "sqlite":
        database = StateDatabase.open(tmp_path / "state.db", clock)
        yield database
        database.close()
        return
    cluster = shared()
    url = cluster.database()
    if "still_time" in request.fixturenames:
        with closing(connect(url)) as raw:
            for statement in _STANDS_STILL:
                raw.execute(statement)
    database = TeamDatabase.open_url(url)
    if "still_time" in request.fixturenames:
        clock.tell = lambda moment: database.write_now(
            lambda c: c.execute("UPDATE still.moment SET at = ?::timestamptz", (moment.isoformat(),))
        )
        clock.advance(0)
    yield database
    database.close()
    cluster.drop(url)
