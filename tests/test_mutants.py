"""The mutants: what is changed, names that outlive shifted lines, a list of exceptions that is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import mutants
from tests.mutations import SOURCE, accepted, mutants_of, sample

CODE = """
\"\"\"Not changed: 3.\"\"\"

def bounded(value, limit=10):
    if value > limit or not value:
        raise ValueError(f"more than {limit + 1}")
    return value - 1
"""


def changes(folder: Path, code: str) -> dict[str, str]:
    path = folder / "sample.py"
    path.write_text(code, "utf-8")
    found = mutants_of(path, folder)
    return {mutant.change: mutant.id for mutant in found}


def test_comparisons_numbers_conditions_signs_and_statements_change_but_no_text(tmp_path: Path) -> None:
    assert sorted(changes(tmp_path, CODE)) == [
        "1 -> 0",
        "1 -> 2",
        "10 -> 11",
        "10 -> 9",
        "not value -> value",
        "raise ValueError(f'more than {limit + 1}') -> pass",
        "return value - 1 -> return None",
        "value - 1 -> value + 1",
        "value > limit -> value <= limit",
        "value > limit -> value >= limit",
        "value > limit or not value -> not (value > limit or not value)",
        "value > limit or not value -> value > limit and (not value)",
    ]


def test_the_first_of_a_row_becomes_the_second_but_not_the_last(tmp_path: Path) -> None:
    assert sorted(changes(tmp_path, "def first(row): return row[0], row[2]")) == [
        "0 -> 1",
        "2 -> 1",
        "2 -> 3",
        "return (row[0], row[2]) -> return None",
    ]


def test_a_mutant_is_applied_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text('NAME = "ä"; LIMIT = 3\n', "utf-8")
    texts = [mutant.applied(path.read_bytes()).decode() for mutant in mutants_of(path, tmp_path)]
    assert texts == ['NAME = "ä"; LIMIT = (4)\n', 'NAME = "ä"; LIMIT = (2)\n']


def test_a_name_outlives_lines_that_shift(tmp_path: Path) -> None:
    assert changes(tmp_path, CODE) == changes(tmp_path, "import os\n\n\n" + CODE)


def test_a_sample_stays_when_other_code_changes(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(CODE, "utf-8")
    before = {mutant.id for mutant in sample("sample.py", 6, 1, tmp_path)}
    (tmp_path / "sample.py").write_text("def other():\n    return None\n\n" + CODE, "utf-8")
    assert {mutant.id for mutant in sample("sample.py", 6, 1, tmp_path)} == before
    assert {mutant.id for mutant in sample("sample.py", 6, 2, tmp_path)} != before


@pytest.mark.slow
def test_every_accepted_mutant_is_still_in_the_source_and_has_a_reason() -> None:
    entries = accepted()
    keys = {mutant.key for path in {key[0] for key in entries} for mutant in mutants_of(SOURCE / path)}
    assert set(entries) <= keys
    assert all(len(reason.split()) >= 4 for reason in entries.values())


@pytest.mark.soak
@pytest.mark.parametrize("area", mutants.areas())
def test_an_areas_own_tests_notice_nine_of_ten_changes(area: str) -> None:
    assert mutants.main([area]) == 0
