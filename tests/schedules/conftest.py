"""The practice server, and a bench before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.schedules.rig import Bench
from whet_lab.practice.server import PracticeServer


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture
def bench(home: Path, tmp_path: Path, server: PracticeServer) -> Iterator[Bench]:
    (tmp_path / "work").mkdir()
    made = Bench(home, tmp_path / "work", server)
    with closing(made.database):
        yield made
