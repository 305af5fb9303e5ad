"""A folder's tools: those for its files, and those that run commands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.calls import Desk
from tests.tools.running import Commands


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path)
    yield commands
    commands.processes.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "work"
    folder.mkdir()
    return Desk(folder)
