"""What is recorded of a call decides how it went: the exit codes of a pipe, and the contents of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.outcomes import OutcomeCase, judged

from tests.rewind.running import ANSWER, call, running, shell
from tests.support import each
from tests.warm.test_judging import outcomes, run
from whet.contract.receipts import CallEffects
from whet.store.calls import StoredCall
from whet.warm.label import label_all
from whet.warm.outcome import judge_alone


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


@each(
    ("command", "codes", "outcome"),
    [
        ("make | tail -3", (2, 0), "failed"),
        ("make | tail -3", (0, 0), "ok"),
        ("yes | head -1", (141, 0), "ok"),
        ("grep -c x a | sort", (1, 0), "ok"),
        ("grep -c x a | sort", (2, 0), "failed"),
        ("cd a && ./build | tee log", (1, 0), "failed"),
        ("pytest -q | tail -1", (1, 0), "ok"),
    ],
)
def test_the_exit_codes_of_a_pipe_decide_and_not_its_words(
    command: str, codes: tuple[int, ...], outcome: str
) -> None:
    text = "2 failed, 1 passed in 0.1s" if "pytest" in command else "make: error in a"
    call = StoredCall(2, 1, 1, 1, "terminal", "{}", text, exit_code=0, effects=CallEffects(pipeline=codes))
    assert judge_alone(call, {"command": command})[0] == outcome


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
    made = ["run", "./draft", "", 0, {"files": {"probe.py": [None, "1"]}}]
    gone = ["run", "./tidy", "", 0, {"files": {"probe.py": ["1", None]}}]
    used = ["run", "python probe.py", "1", 0]

    def first(*steps: Sequence[object]) -> str:
        return judged(OutcomeCase("fine", -1, [["say", "go on"], *map(list, steps)]))[0][0]

    assert first(made, gone) == "undone"
    assert first(made, used, gone) == "ok"


def test_a_command_that_left_a_file_alone_which_its_next_try_changes_did_nothing() -> None:
    def first(command: str, again: str, path: str) -> str:
        steps = [["run", command, "", 0], ["run", again, "", 0, {"files": {path: ["1", "2"]}}]]
        return judged(OutcomeCase("fine", -1, [["say", "go on"], *steps]))[0][0]

    assert first("sed -i s/Ab/c/ app.toml", "sed -i s/ab/c/ app.toml", "app.toml") == "failed"
    assert first("./fix a.py", "./fix b.py", "b.py") == "ok"
    assert first("./fix --check a.py", "./fix --write a.py", "a.py") != "failed"


@each(
    ("first", "output", "again", "result", "is_vain"),
    [
        ("./send list", "Datei nicht lesbar", "sudo ./send list", "40 Mails verschickt", True),
        ("node seed.js", "ошибка: нет доступа", "node seed.js --local", "готово", True),
        ("./put a -a app1", "kept", "./put a -a app12", "done", False),
        ("curl -s a.test", '{"id": 1}', "curl -s -H k:v a.test", '{"id": 1, "name": "a"}', False),
        ("./describe a.csv", "a.csv: ok", "./describe b.csv", "b.csv: 3 columns", False),
        ("./run.sh dev", "starting: dev", "./run.sh prod", "starting: prod", False),
        ("./app help", "usage", "./app help run", "runs it", False),
    ],
)
def test_the_form_of_two_outputs_shows_a_vain_try_in_any_language(
    first: str, output: str, again: str, result: str, is_vain: bool
) -> None:
    assert (outcomes(run(first, output), run(again, result))[0] == "failed") is is_vain


def test_the_same_command_works_after_another_one_mended_what_it_needs() -> None:
    seed, start = run("node seed.js", "ошибка: нет базы"), run("./start db", "ok")
    again = run("node seed.js", "40 Artikel angelegt")
    assert outcomes(seed, start, again)[0] == "failed"
    assert outcomes(seed, run("sleep 5", ""), again)[0] == "ok"
    assert outcomes(seed, run("cat db.log", "x"), again)[0] == "ok"


def test_the_notes_of_the_shell_tool_are_no_output() -> None:
    silent = run("make", "[no output, exit 0]\n[the next command begins in a]")
    assert outcomes(silent, run("./configure", "ok"), run("make", "linked a.out"))[0] == "ok"
    noted = run("node seed.js", "ошибка: нет базы\n[the next command begins in a]")
    assert outcomes(noted, run("node seed.js --local", "готово"))[0] == "failed"


def test_a_message_that_names_only_what_was_wrong_objects() -> None:
    done, again = run("psql staging -c x", "ok"), run("psql local -c x", "ok")
    assert outcomes(done, "This is the staging database!", again)[0] == "objected"
    assert outcomes(done, "And local, like staging.", again)[0] == "ok"
    assert outcomes(done, "And local.", again)[0] == "ok"


@each(
    ("done", "back"),
    [
        ("systemctl enable shop", "systemctl disable shop"),
        ("kubectl cordon n1", "kubectl uncordon n1"),
        ("ufw allow 80", "ufw delete allow 80"),
        ("vault attach disk", "vault detach disk"),
    ],
)
def test_a_verb_of_reversal_takes_back(done: str, back: str) -> None:
    assert outcomes(run(done, "ok"), run(back, "ok"))[0] == "undone"
