"""The practice server, and a bench before it."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.schedules.rig import Bench
from whet_lab.practice.server import PracticeServer


@pytest.fixture
def server():
    with PracticeServer() as running:
        yield running


@pytest.fixture
def bench(home, tmp_path, server):
    (tmp_path / "work").mkdir()
    made = Bench(home, tmp_path / "work", server)
    with closing(made.database):
        yield made
