"""What tests of the commands share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty workspace."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
