"""The recorded contents of files decide whether a call was undone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.outcomes import OutcomeCase, judged

from tests.rewind.running import ANSWER, call, running, shell
from whet.warm.label import label_all


@pytest.mark.slow
async def test_a_pipe_and_a_file_that_returns_are_recorded_and_judged(tmp_path: Path) -> None:
    script = [
        shell("(echo all is well; exit 3) | tail -1"),
        shell("yes | head -1"),
        shell("echo b > note"),
        shell("echo a > note"),
        call("write_file", path="note", content="c\n"),
        shell("echo a > note"),
        ANSWER,
    ]
    async with running(tmp_path, script) as r:
        (r.app.services.workspace / "note").write_text("a\n")
        await r.turn()
        database = r.app.services.database
        label_all(database, lambda done, total: None)
        rows = database.read_now(
            lambda connection: connection.execute("SELECT outcome FROM tool_calls ORDER BY seq").fetchall()
        )
    assert [outcome for (outcome,) in rows] == ["failed", "ok", "undone", "ok", "undone", "ok"]


def test_a_call_is_undone_when_all_its_files_have_their_former_contents_again() -> None:
    def judge_files(*steps: dict[str, list[str | None]]) -> list[str]:
        calls = [["run", f"./step {number}", "", 0, {"files": files}] for number, files in enumerate(steps)]
        return [outcome for outcome, _ in judged(OutcomeCase("fine", -1, [["say", "go on"], *calls]))]

    assert judge_files({"a": ["1", "2"]}, {"a": ["2", "1"]}) == ["undone", "ok"]
    assert judge_files({"a": ["1", "2"]}, {"a": ["2", "3"]}, {"a": ["3", "1"]}) == ["undone", "ok", "ok"]
    assert judge_files({"a": ["1", "2"]}, {"a": ["2", "3"]}) == ["ok", "ok"]
    assert judge_files({"a": ["1", "2"], "b": ["1", "2"]}, {"a": ["2", "1"]}) == ["ok", "ok"]
    assert judge_files({"a": ["1", "2"]}, {"b": ["2", "1"]}) == ["ok", "ok"]


def test_a_created_file_that_was_used_before_its_removal_is_a_tool_of_the_work() -> None:
    texts = ["run", "./draft", "", 0, {"files": {"probe.py": [None, "1"]}}]
    gone = ["run", "./tidy", "", 0, {"files": {"probe.py": ["1", None]}}]
    used = ["run", "python probe.py", "1", 0]

    def first(*steps: Sequence[object]) -> str:
        return judged(OutcomeCase("fine", -1, [["say", "go on"], *map(list, steps)]))[0][0]

    assert first(texts, gone) == "undone"
    assert first(texts, used, gone) == "ok"


def test_a_review_that_read_both_calls_and_was_silent_excuses_a_change_and_its_reversal() -> None:
    change = ["run", "./debug on", "", 0, {"files": {"a.ini": ["0", "1"]}}]
    back = ["run", "./debug off", "", 0, {"files": {"a.ini": ["1", "0"]}}]
    case = OutcomeCase("fine", -1, [["say", "Debug it, and switch that off again."], change, back])
    assert [outcome for outcome, _ in judged(case)] == ["undone", "ok"]
    assert [outcome for outcome, _ in judged(case, "Nothing to save.")] == ["ok", "ok"]
    pointer = '{"call": "./debug on", "outcome": "undone", "quote": "./debug off"}'
    assert [outcome for outcome, _ in judged(case, pointer)] == ["undone", "ok"]
