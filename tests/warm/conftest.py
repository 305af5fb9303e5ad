"""A store of sessions to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.warm.stores import open_store
from whet.store.database import StateDatabase


@pytest.fixture
def database(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    opened = open_store(tmp_path, clock)
    yield opened
    opened.close()
