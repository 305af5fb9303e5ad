"""A desk for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confirm.people import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service of its own, without a policy file."""
    made = Desk(tmp_path)
    yield made
    made.close()
