"""One `whet acp` for the tests that need none of their own, and a practice server for those that do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.editors.rig import Desk
from whet_lab.practice.server import PracticeServer


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One process for the tests that need none of their own."""
    root = tmp_path_factory.mktemp("editors")
    with PracticeServer() as server:
        made = Desk(root, server)
        yield made
        made.close()


@pytest.fixture
def desk(shared: Desk) -> Desk:
    shared.clear()
    return shared


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
