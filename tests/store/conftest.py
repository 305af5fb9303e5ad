from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.team.cluster import NO_SERVER, shared
from whet.store.database import StateDatabase
from whet.store.team import TeamDatabase

BOTH = ("sqlite", pytest.param("postgres", marks=pytest.mark.skipif(bool(NO_SERVER), reason=NO_SERVER)))


@pytest.fixture(params=BOTH)
def db(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    if request.param == "sqlite":
        database = StateDatabase.open(tmp_path / "state.db", clock)
        yield database
        database.close()
        return
    cluster = shared()
    url = cluster.database()
    database = TeamDatabase.open_url(url)
    yield database
    database.close()
    cluster.drop(url)
