from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import FixedClock
from whet.store.database import StateDatabase


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    yield database
    database.close()
