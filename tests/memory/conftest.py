"""A home with its learning service for the tests of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.lessons.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A store and a learning service."""
    one = World(tmp_path / "home")
    yield one
    one.close()
