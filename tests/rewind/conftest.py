"""A recorded workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rewind.trees import open_workspace
from whet.rewind.recorder import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = open_workspace(tmp_path)
    yield workspace
    workspace.close()


@pytest.fixture
def root(workspace: Workspace) -> Path:
    """The workspace's folder."""
    return Path(workspace.root)
