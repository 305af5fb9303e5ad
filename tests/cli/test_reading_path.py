"""How much of the source runs before a one-shot's first byte leaves: it may get less, not more."""

from __future__ import annotations

import pytest
from benchmarks.reading_path import measure

pytestmark = pytest.mark.slow

MAX_FILES = 60
MAX_MODULES = 145


def test_a_one_shot_reaches_its_first_byte_through_so_many_files() -> None:
    path = measure()
    assert {"cli/main.py", "app/build.py", "agent/loop.py"} <= set(path.files), (
        "it did not run to the request"
    )
    assert len(path.files) <= MAX_FILES, sorted(path.files)
    assert len(path.own_modules) <= MAX_MODULES, sorted(path.own_modules)
