"""The pages on what holds and what does not name tests that exist, for every promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_NAMED = re.compile(r"`((?:tests/)?[\w/]*?(?:test_\w+\.py|tests/\w+))`")
_HEADS = "## What each promise rests on", "## What is tried, and what comes of it"


@pytest.mark.parametrize(("page", "folder"), [("sandbox.md", "sandbox"), ("confirm-threats.md", "confirm")])
def test_every_promise_names_tests_that_exist(page: str, folder: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    head = next(head for head in _HEADS if head in text)
    table = text.partition(head)[2].partition("\n\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 6
    for row in rows:
        names = _NAMED.findall(row)
        assert names, row
        for name in names:
            path = ROOT / name if name.startswith("tests/") else ROOT / "tests" / folder / name
            assert path.exists(), name
