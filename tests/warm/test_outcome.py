from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import FixedClock
from tests.warm.corpus import run_cases
from tests.warm.stores import Turn, open_store, store
from whet.contract.texts import arguments_of
from whet.store.calls import StoredCall
from whet.warm.outcome import by_itself, json_trouble, phrase_of_trouble, programs_of


def agreement(tmp_path: Path, clock: FixedClock, rounds: int) -> int:
    """Run the corpus and hold the judge to its labels; gives the number of calls."""
    database = open_store(tmp_path, clock)
    store(database, clock, Turn("anything at all"), id="talk")
    ran = asyncio.run(run_cases(tmp_path / "work", database, rounds))
    database.close()
    assert len({case.tool for case, _ in ran}) >= 12
    judged = [(case, call, by_itself(call, arguments_of(call.arguments))) for case, call in ran]
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
    assert bool(json_trouble(text)) == trouble


def test_a_line_of_trouble_that_was_got_over_is_none() -> None:
    assert phrase_of_trouble("ls: cannot access 'x'")
    assert not phrase_of_trouble("ls: cannot access 'x'\nbuilding\nlinking\ntesting\nall is well")
    assert not phrase_of_trouble("note: warning: error: never mind")


def test_an_interrupted_or_missing_result_is_unknown() -> None:
    call = StoredCall(1, 0, 1, 1, "read_file", "{}", None)
    assert by_itself(call, arguments_of(call.arguments))[0] == "unknown"
    call = StoredCall(1, 0, 1, 1, "read_file", "{}", "Interrupted", 0, "interrupted")
    assert by_itself(call, arguments_of(call.arguments))[0] == "unknown"
