from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.warm.corpus import run_cases
from tests.warm.stores import Turn, open_store, store
from whet.contract.texts import parse_arguments
from whet.store.calls import StoredCall
from whet.warm.outcome import find_error_line, find_json_error, judge_alone, programs_of


def agreement(tmp_path: Path, clock: FixedClock, rounds: int) -> int:
    """Run the corpus and hold the judge to its labels; gives the number of calls."""
    database = open_store(tmp_path, clock)
    store(database, clock, Turn("anything at all"), id="talk")
    ran = asyncio.run(run_cases(tmp_path / "work", database, rounds))
    database.close()
    assert len({case.tool for case, _ in ran}) >= 12
    judged = [(case, call, judge_alone(call, parse_arguments(call.arguments))) for case, call in ran]
    wrong = [
        (case.tool, case.arguments, case.label, found, (call.result or "")[-200:])
        for case, call, found in judged
        if found[0] != case.label
    ]
    assert 1 - len(wrong) / len(ran) >= 0.97, wrong
    return len(ran)


@pytest.mark.slow
def test_the_labelled_corpus_in_short(tmp_path: Path, clock: FixedClock) -> None:
    assert agreement(tmp_path, clock, 1) >= 50


@pytest.mark.soak
def test_the_labelled_corpus(tmp_path: Path, clock: FixedClock) -> None:
    assert agreement(tmp_path, clock, 12) >= 300


def test_a_line_of_trouble_that_was_got_over_is_none() -> None:
    assert find_error_line("sh: 1: no")
    assert not find_error_line("sh: 1: no\nbuilding\nlinking\ntesting\nall is well")


def test_an_interrupted_or_missing_result_is_unknown() -> None:
    call = StoredCall(1, 0, 1, 1, "read_file", "{}", None)
    assert judge_alone(call, parse_arguments(call.arguments))[0] == "unknown"
    call = StoredCall(1, 0, 1, 1, "read_file", "{}", "Interrupted", 0, "interrupted")
    assert judge_alone(call, parse_arguments(call.arguments))[0] == "unknown"


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("cd x && grep -n 'a b' y | head", ["cd", "grep", "head"]),
        ("FOO=1 sudo env /usr/bin/make -j2 test", ["make"]),
        ("echo 'a; b' || true", ["echo", "true"]),
        ("(cd a; ls)", ["cd", "ls"]),
        ("", []),
    ],
)
def test_programs_of(command: str, programs: list[str]) -> None:
    assert list(programs_of(command)) == programs


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ('{"success": false}', True),
        ('{"ok": false, "error": "x"}', True),
        ('{"status": "failed"}', True),
        ('{"isError": true}', True),
        ('{"error": "no"}', True),
        ('{"success": true, "error": "none"}', False),
        ('{"error": null}', False),
        ('{"errors": []}', False),
        ("[1, 2]", False),
        ('{"broken', False),
        ("not json", False),
        ('{"x": ' + "[" * 5_000, False),
    ],
)
def test_json_trouble(text: str, trouble: bool) -> None:
    assert bool(find_json_error(text)) == trouble
