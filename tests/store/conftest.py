from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import FixedClock
from whet.store.database import Database


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[Database]:
    database = Database.open(tmp_path / "state.db", clock)
    yield database
    database.close()
