"""One plain installation for all tests of this folder, and a home of its own for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installed.program import Installed, install


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def whet(environment: Path, tmp_path: Path) -> Installed:
    """The program of a user who has just installed it, in another folder."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return Installed(environment, home, work)
