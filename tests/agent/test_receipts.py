"""What a turn did, as its receipt says it: from the calls, not from what the model says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, Running, call, running, shell
from tests.support import each
from whet.agent.facts import display_name
from whet.agent.loop import run_turn
from whet.agent.test_runs import read_counts
from whet.contract.changes import TextChange
from whet.contract.events import Event, TextDelta, TurnEnd
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.receipts import CallEffects, FileLines, TestCounts, TurnReceipt
from whet.store import facts
from whet_lab.practice.script import ScriptedReply

_PYTEST = "==== 1 failed, 12 passed, 2 skipped in 0.31s ===="


def _receipts(folder: Path, *turns: Sequence[ScriptedReply]) -> list[TurnReceipt | None]:
    replies = [reply for turn in turns for reply in (*turn, ANSWER)]

    async def run() -> list[TurnReceipt | None]:
        async with running(folder, replies) as rig:
            return [await _receipt(rig) for _ in turns]

    return asyncio.run(run())


async def _receipt(rig: Running) -> TurnReceipt | None:
    await rig.turn()
    ends = [event for event in rig.events if isinstance(event, TurnEnd)]
    return ends[-1].receipt


@pytest.mark.slow
def test_a_turn_with_effects_says_files_commands_and_exit_codes(tmp_path: Path) -> None:
    (receipt,) = _receipts(
        tmp_path,
        [call("write_file", path="a.txt", content="one\ntwo\n"), shell("echo three >> b.txt; exit 3")],
    )
    assert receipt is not None
    assert {(file.path, file.added) for file in receipt.files} == {("a.txt", 2), ("b.txt", 1)}
    assert [(command.exit_code, command.is_failed) for command in receipt.commands] == [(3, True)]
    assert receipt.state == "never"
    assert receipt.line == "did: 2 files +3 −0 · 1 command, 1 failed · no tests ran"


def test_what_lies_nowhere_in_the_file_system_keeps_its_name(tmp_path: Path) -> None:
    assert display_name(TextChange("untitled:1", "", None, "text"), tmp_path) == "untitled:1"
    assert display_name(TextChange("b", str(tmp_path / "a" / "b"), None, "text"), tmp_path) == "a/b"
    assert display_name(TextChange("b", "/elsewhere/b", None, "text"), tmp_path) == "/elsewhere/b"


def test_a_turn_without_effects_has_no_receipt(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    assert _receipts(tmp_path, [call("read_file", path="nothing.txt")]) == [None]


async def test_a_command_that_a_kill_cut_off_is_in_the_receipt(tmp_path: Path) -> None:
    async with running(tmp_path, []) as rig:
        log = rig.session.log
        record = await log.begin_turn(rig.session.user_message("go"))
        asked = ToolCall("call-1", "terminal", '{"command": "make world"}')
        await log.append_reply(record, Message(role="assistant", tool_calls=(asked,)), Usage(), "m")
        [open_call] = log.open_calls(record)
        await log.store_call_start(record, open_call, "rule")
        log.close()
        name = rig.session.id
    async with running(tmp_path, [ANSWER], session_id=name) as rig:
        await run_turn(rig.session, None, rig.events.append)
        receipt = next(event.receipt for event in rig.events if isinstance(event, TurnEnd))
    assert receipt is not None and receipt.line == "did: 1 command, 1 failed"
    assert receipt.rows == ("$ make world  [interrupted]",)


@pytest.mark.slow
def test_tests_are_stale_once_a_file_changed_after_them_in_a_later_turn_too(tmp_path: Path) -> None:
    script = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    run = "python3 -m unittest test_it"
    first, second, third = _receipts(
        tmp_path,
        [call("write_file", path="test_it.py", content=script), shell(run)],
        [shell("echo more > notes.txt")],
        [shell(run), call("write_file", path="z.txt", content="z\n")],
    )
    assert first is not None and second is not None and third is not None
    assert (first.state, second.state, third.state) == ("fresh", "stale", "stale")
    assert first.tests == TestCounts("unittest", 1, direct=True)
    assert "stale" in third.line


class _Neighbour(list[Event]):
    """Writes a file while the turn's last step answers, as a process that runs on or a person does."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def append(self, event: Event, /) -> None:
        super().append(event)
        if isinstance(event, TextDelta):
            self.file.write_text("z = 1\n")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "state"), [("z.py", "stale"), (".cache/z", "fresh")])
def test_tests_are_stale_where_no_call_changed_a_file_since(tmp_path: Path, name: str, state: str) -> None:
    async def run() -> tuple[TurnReceipt | None, TurnReceipt | None]:
        script = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
        replies = [
            call("write_file", path="test_it.py", content=script),
            shell("python3 -m unittest test_it"),
            ANSWER,
        ]
        async with running(tmp_path, replies) as rig:
            (tmp_path / "work" / ".cache").mkdir()
            rig.events = _Neighbour(tmp_path / "work" / name)
            shown = await _receipt(rig)
            key = rig.session.log.live.key
            return shown, rig.app.database.read_now(lambda db: facts.build_receipt(db, key, 1))

    shown, stored = asyncio.run(run())
    assert shown is not None and shown == stored
    assert (shown.state, shown.later) == (state, ("z.py",) if state == "stale" else ())
    assert ("stale: files changed" in shown.line) == (state == "stale")
    assert ("z.py  [changed after the tests, by no call of this turn]" in shown.rows) == (state == "stale")


@pytest.mark.slow
def test_a_command_that_runs_tests_and_changes_files_leaves_it_unclear(tmp_path: Path) -> None:
    script = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    run = "python3 -m unittest test_it"
    first, second = _receipts(
        tmp_path,
        [call("write_file", path="test_it.py", content=script), shell(f"{run}; echo more > notes.txt")],
        [shell(run)],
    )
    assert first is not None and second is not None
    assert (first.state, second.state) == ("mixed", "fresh")
    assert "unclear: the command that ran the tests changed files, too" in first.line


@each(
    ("command", "output", "expected"),
    [
        ("pytest -q", _PYTEST, TestCounts("pytest", 12, 1, 2, direct=True)),
        ("make test", "3 passed in 0.01s\nmake: done", TestCounts("pytest", 3)),
        ("pytest", "2 failed in 0.3s", TestCounts("pytest", 0, 2, direct=True)),
        ("uv run pytest", "2 passed, 1 error in 1.2s", TestCounts("pytest", 2, 1, direct=True)),
        (
            "python -m unittest",
            "Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=1)",
            TestCounts("unittest", 2, 2, 1, direct=True),
        ),
        ("python -m unittest", "Ran 5 tests in 0.1s\n\nOK", TestCounts("unittest", 5, direct=True)),
        (
            "python -m unittest",
            "Ran 5 tests in 0.1s\n\nFAILED (unexpected successes=1)",
            TestCounts("unittest", 4, 1, direct=True),
        ),
        (
            "python -m unittest test5",
            "Ran 5 tests in 0.1s\n\nFAILED (failures=1, skipped=1, expected failures=1)",
            TestCounts("unittest", 2, 1, 2, direct=True),
        ),
        (
            "python -m unittest",
            "Ran 0 tests in 0.1s\n\nFAILED (errors=1)",
            TestCounts("unittest", 0, 1, direct=True),
        ),
        (
            "pytest -k '9 passed'",
            "\x1b[31m9 passed, 1 skipped, 2 xfailed, 3 xpassed, 1 failed, 4 errors\x1b[0m in 0.1s",
            TestCounts("pytest", 12, 5, 3, direct=True),
        ),
        ("pytest -q", f"{_PYTEST}\n3 passed in 0.1s", TestCounts("pytest", 3, direct=True)),
        ("npx jest", "Tests:       1 failed, 4 passed, 5 total\n", TestCounts("jest", 4, 1, direct=True)),
        ("npx jest -t '1 passed,'", "Tests:       1 passed, 1 total\n", TestCounts("jest", 1, direct=True)),
        ("npx jest", "Tests:       2 skipped, 2 total\n", TestCounts("jest", 0, 0, 2, direct=True)),
        (
            "cargo test",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n"
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured",
            TestCounts("cargo test", 4, 2, 1, direct=True),
        ),
        (
            "go test ./tokens -v",
            "--- PASS: TestA (0.00s)\nok  \texample/tokens\t0.1s\n",
            TestCounts("go test", 1, direct=True),
        ),
        (
            "go test ./tokens",
            "ok  \texample/tokens\t0.1s\n",
            TestCounts("go test", 1, direct=True, unit="packages"),
        ),
        (
            "cargo test -j 3",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured",
            TestCounts("cargo test", 3, direct=True),
        ),
        (
            "go test ./...",
            "ok  \texample/c\t0.1s\nok  \texample/a\t0.1s\nFAIL\texample/b\t0.2s\n",
            TestCounts("go test", 2, 1, 0, direct=True, unit="packages"),
        ),
        (
            "go test -v ./...",
            "--- PASS: TestA (0.00s)\n    --- SKIP: TestA/x (0.00s)\n--- FAIL: TestB (0.00s)\n"
            "FAIL\texample/b\t0.2s\n",
            TestCounts("go test", 1, 1, 1, direct=True),
        ),
        (
            "echo 'test result: ok. 9 passed; 0 failed; 0 ignored'; cargo test",
            "test result: ok. 9 passed; 0 failed; 0 ignored\n"
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured",
            TestCounts("cargo test", 10, 2, 0),
        ),
        (
            "echo 'ok  \texample/a'; go test ./...",
            "ok  \texample/a\nok  \texample/a\t0.1s\nFAIL\texample/b\t0.2s\n",
            TestCounts("go test", 2, 1, unit="packages"),
        ),
        ("echo 12 passed in 0.31s", "12 passed in 0.31s", None),
        ("ls", "12 passed the door in 3 days", None),
    ],
)
def test_counts_of_known_runners(command: str, output: str, expected: TestCounts | None) -> None:
    assert read_counts(command, output) == expected


def test_a_runner_that_is_only_named_in_words_did_not_run() -> None:
    counts = read_counts("echo pytest; cat old.log", _PYTEST)
    assert counts is not None and not counts.direct


@each(
    "command",
    [
        "pytest || true",
        "pytest; echo ok",
        "pytest && cat old.log",
        "cat old.log; pytest --version",
        "pytest | tail -3",
        "pytest &",
        "! pytest",
        "pytest() { cat old.log; }; pytest",
        "trap 'exit 0' EXIT; pytest",
        "PATH=bin:$PATH pytest",
        "export PATH=bin; pytest",
        "python fake.py ';' pytest",
        "python fake.py '\n' && : # && pytest",
        "python fake.py <<pytest\npytest",
        "sh -c 'pytest; true'",
        ". ./mine && pytest",
        "(pytest)",
    ],
)
def test_a_runner_whose_end_or_output_may_be_anothers_is_not_direct(command: str) -> None:
    counts = read_counts(command, _PYTEST)
    assert counts is not None and not counts.direct


@pytest.mark.parametrize(
    "command",
    [
        "cd sub && pytest -q 2>&1",
        "set -e; export A=1\npytest -k 'a and (b or c)'",
        ". .venv/bin/activate && python -m pytest \\\n  tests  # all of them",
        "PYTHONPATH=src .venv/bin/python -m pytest;",
    ],
)
def test_a_runner_that_ends_its_command_is_direct(command: str) -> None:
    counts = read_counts(command, _PYTEST)
    assert counts is not None and counts.direct


def test_the_work_for_a_receipt_grows_with_the_calls_and_no_faster() -> None:
    def rows(count: int) -> list[facts.FactRow]:
        return [
            facts.FactRow(
                n,
                1,
                n,
                str(n),
                "terminal",
                "",
                0,
                CallEffects((FileLines(f"f{n % 9}", 3, 1),), command="make"),
            )
            for n in range(count)
        ]

    assert work(rows(200)) < 2.5 * work(rows(100)) < 2_500


def work(rows: list[facts.FactRow]) -> int:
    """Count the functions that are called: the same on a busy machine."""
    count = 0

    def called(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        facts.sum_up(rows)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow
def test_names_that_are_not_utf8_are_escaped_in_a_receipt(tmp_path: Path) -> None:
    replies = [
        shell("printf 'a\\n' > $(printf 'lat\\351.txt'); mkdir $(printf 'd\\351'); cd $(printf 'd\\351')"),
        call("read_file", path="lat\\xe9.txt"),
        call("patch", path="lat\\xe9.txt", old_string="a", new_string="b"),
        ANSWER,
    ]

    async def run() -> tuple[TurnReceipt | None, str]:
        async with running(tmp_path, replies) as rig:
            receipt = await _receipt(rig)
            return receipt, "\n".join(message.text for message in rig.session.log.messages)

    receipt, text = asyncio.run(run())
    assert receipt is not None
    assert [file.path for file in receipt.files] == ["lat\\xe9.txt"]
    assert "[cd to d\\xe9 held for this command only: its name is not UTF-8]" in text
