"""The marks of a family choose its fast rows, and name none that isn't there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.families import mark_rest_slow
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark_rest_slow(items, is_whole=True)
"""
MODULE = """
import pytest
pytestmark = pytest.mark.slow_rows("two")
@pytest.mark.parametrize("row", ["one", "two", "three"])
def test_module(row): pass
@pytest.mark.fast_rows(PARTS)
@pytest.mark.parametrize("row", ["one", "two", "three"])
def test_family(row): pass
@pytest.mark.slow_rows()
@pytest.mark.parametrize("row", ["one", "two"])
def test_all(row): pass
def test_two(): pass
"""


def collect(folder: Path, parts: str, expression: str) -> tuple[set[str], str]:
    """Return the names of the tests that pytest would run, and all that it printed."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    slow\n    fast_rows(*parts)\n    slow_rows(*parts)\n"
    )
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(MODULE.replace("PARTS", parts))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", expression, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    names = {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}
    return names, done.stdout + done.stderr


def test_rows_of_the_named_parts_are_fast_and_all_others_slow(tmp_path: Path) -> None:
    fast = {
        "test_module[one]",
        "test_module[three]",
        "test_family[one]",
        "test_all[one]",
        "test_all[two]",
        "test_two",
    }
    assert collect(tmp_path, '"one", "two"', "not slow")[0] == fast
    slow = {"test_module[two]", "test_family[two]", "test_family[three]"}
    assert collect(tmp_path, '"one", "two"', "slow")[0] == slow


def test_a_part_that_no_row_has_is_an_error(tmp_path: Path) -> None:
    _, output = collect(tmp_path, '"one", "four"', "not slow")
    assert "test_family: no row is named four" in output
