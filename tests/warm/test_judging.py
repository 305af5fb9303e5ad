"""What the calls after a call, its turn and its review say of it: pairs that differ in one thing."""

from __future__ import annotations

import json
from typing import Any

from tests.support import each
from whet.store.calls import StoredCall, UserWords
from whet.warm.aftermath import JudgedCall, OutcomeJudge, failure_text

Step = tuple[str, dict[str, Any] | str, str | None]


def run(command: str, result: str = "done", **more: Any) -> Step:
    return "terminal", {"command": command, **more}, result


def edit(path: str, old: str, new: str) -> Step:
    return "patch", {"path": path, "old_string": old, "new_string": new}, "patched"


def write(path: str, content: str) -> Step:
    return "write_file", {"path": path, "content": content}, "written"


def look(path: str, result: str = "1|x", **more: Any) -> Step:
    return "read_file", {"path": path, **more}, result


def find(pattern: str, path: str, result: str) -> Step:
    return "search_files", {"pattern": pattern, "path": path}, result


def stored(seq: int, turn: int, step: Step, error_kind: str = "", step_number: int = 0) -> StoredCall:
    name, arguments, result = step
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return StoredCall(seq, seq - 1, turn, step_number or seq, name, text, result, 0, error_kind)


def judged(*steps: Step | str | list[Step], failed: tuple[int, ...] = ()) -> list[JudgedCall]:
    """Judge steps in order: a text is what the person says, a list is calls made at once; numbered from 0."""
    judge = OutcomeJudge()
    turn, seq, number = 1, 0, 0
    for step in steps:
        if isinstance(step, str):
            turn += 1
            judge.add(UserWords(turn, step))
            continue
        together = step if isinstance(step, list) else [step]
        first = seq + 2
        for one in together:
            seq += 2
            kind = "bad_input" if number in failed else ""
            judge.add(stored(seq, turn, one, kind, first))
            number += 1
    return judge.finish()


def outcomes(*steps: Step | str | list[Step], failed: tuple[int, ...] = ()) -> list[str]:
    return [judged_call.outcome for judged_call in judged(*steps, failed=failed)]


def repaired(*steps: Step | str | list[Step], failed: tuple[int, ...] = (0,)) -> bool:
    return judged(*steps, failed=failed)[-1].repairs is not None


# A call made again.


@each(
    ("first", "again", "is_corrected"),
    [
        ("pytest tests", "pytest -x tests", True),
        ("pytest tests", "CI=1 pytest tests", True),
        ("pytest tests", "pytest tests > out.txt", False),
        ("pytest tests", "pytest tests 2>&1", True),
        ("pytest tests", "pytest tests &", True),
        ("pytest tests", "pytest other", False),
        ("pytest tests", "ruff tests", False),
        ("./run tests", "./go tests", False),
        ("a.sh", "a.sh -v", True),
        ("ls", "ls -la", False),
        ("git --version", "git --help", False),
        ("cat 2025.txt", "cat 2026.txt", False),
        ("make < in", "make | in", True),
        ("make", "make -j2", True),
        ("--help", "--version", False),
        ("x y", "x y", False),
        ("", "-x", False),
    ],
)
def test_a_command_with_other_options_corrects_the_one_before(
    first: str, again: str, is_corrected: bool
) -> None:
    assert (outcomes(run(first), run(again))[0] == "corrected") is is_corrected


def test_a_command_is_corrected_by_where_it_runs_too_but_not_by_paging_alone() -> None:
    assert outcomes(run("make", workdir="a"), run("make", workdir="b"))[0] == "corrected"
    assert outcomes(run("make", timeout_s=5), run("make", timeout_s=50))[0] == "ok"
    assert outcomes(run("make all", background=True), run("make -j all"))[0] == "ok"


def test_an_edit_of_what_an_edit_put_corrects_it() -> None:
    first = edit("a.py", "x = 1", "x = 2\n")
    assert outcomes(first, edit("a.py", "x = 2\n", "x = 3"))[0] == "corrected"
    assert outcomes(first, edit("a.py", "x = 2", "x = 3"))[0] == "corrected"
    assert outcomes(first, edit("a.py", "y = 2", "y = 3"))[0] == "ok"
    assert outcomes(first, edit("b.py", "x = 2", "x = 3"))[0] == "ok"
    assert outcomes(edit("a.py", "x = 1", ""), edit("a.py", "", "x = 3"))[0] == "ok"


def test_a_search_that_found_nothing_is_corrected_by_one_in_the_same_place_that_finds() -> None:
    for nothing in ("", " \n", "No matches.", "nothing found", "No files match", "[no match]", "No results"):
        assert outcomes(find("cat", "src", nothing), find("cats?", "src", "a.py:1"))[0] == "corrected"
    assert outcomes(find("cat", "src", "b.py:2"), find("cats?", "src", "a.py:1"))[0] == "ok"
    assert outcomes(find("cat", "src", "No match"), find("cats?", "lib", "a.py:1"))[0] == "ok"
    assert outcomes(find("cat", "src", "No match"), find("cats?", "src", "No match"))[0] == "ok"


def test_a_page_of_the_same_target_that_differs_in_more_than_its_place_corrects() -> None:
    assert outcomes(look("a"), look("a", encoding="latin-1"))[0] == "corrected"
    assert outcomes(look("a", offset=1), look("a", offset=2))[0] == "ok"
    assert outcomes(look("a"), look("b", encoding="latin-1"))[0] == "ok"
    assert outcomes(look("a", name="x"), look("a", name="y"))[0] == "ok"
    assert outcomes(("look_up", {"q": "a"}, "x"), ("look_up", {"q": "b"}, "x")) == ["ok", "ok"]


def test_a_correction_comes_within_two_calls_and_not_at_once() -> None:
    first, again, other = run("pytest tests"), run("pytest -x tests"), look("a")
    assert outcomes(first, other, again)[0] == "corrected"
    assert outcomes(first, other, look("b"), again)[0] == "ok"
    assert outcomes([first, again]) == ["ok", "ok"]
    assert outcomes(first, [other, look("b")], again)[0] == "ok"


def test_a_task_list_written_again_corrects_nothing() -> None:
    first: Step = ("todo", {"name": "plan", "items": [1]}, "kept")
    again: Step = ("todo", {"name": "plan", "items": [2]}, "kept")
    assert outcomes(first, again) == ["ok", "ok"]


# A failed call that is mended.


def test_a_mended_call_says_what_it_mends_and_how_that_failed() -> None:
    bad, good = judged(look("old/a.txt", "no such file"), look("new/a.txt"), failed=(0,))
    assert bad.outcome == "failed" and good.repairs is bad.call
    assert good.repairs_why == "bad input" and good.reason == "mends a call that failed (bad input)"


def test_of_two_failed_calls_the_later_one_is_mended() -> None:
    judged_call, two, good = judged(
        look("o/a.txt", "no"), look("p/a.txt", "no"), look("new/a.txt"), failed=(0, 1)
    )
    assert judged_call.call is not good.repairs and good.repairs is two.call


def test_the_same_call_made_again_mends_nothing() -> None:
    assert not repaired(look("a.txt", "no"), look("a.txt"))


def test_a_call_without_arguments_mends_nothing() -> None:
    assert not repaired(look("a.txt", "no"), ("read_file", {}, "x"))


def test_how_a_call_had_failed_is_told_in_own_words() -> None:
    call = StoredCall(2, 1, 1, 1, "terminal", "{}", "fatal: words", 0, "bad_input", 3)
    assert failure_text(call) == "exit 3"
    call.exit_code = None
    assert failure_text(call) == "bad input"
    call.error_kind = ""
    assert failure_text(call) == "its result says so"


# Reviews, turns, and files.


def test_what_a_review_has_shown_outweighs_the_result_and_can_be_repaired() -> None:
    judge = OutcomeJudge()
    first = stored(2, 1, run("./put a", "put 0 of 3"))
    first.pointed = "failed"
    judge.add(first)
    judge.add(stored(4, 1, run("./put a --all", "put 3 of 3")))
    failed, again = judge.finish()
    assert (failed.outcome, failed.reason) == ("failed", "a review has shown it")
    assert again.outcome == "ok" and again.repairs is first


def test_calls_come_out_once_their_next_turn_is_over_and_only_once() -> None:
    judge = OutcomeJudge()
    judge.add(stored(2, 1, look("a")))
    judge.add(UserWords(2, "on"))
    assert judge.take() == []
    judge.add(stored(6, 2, look("b")))
    judge.add(UserWords(3, "on"))
    assert [judged_call.call.seq for judged_call in judge.take()] == [2]
    assert judge.take() == []
    assert [judged_call.call.seq for judged_call in judge.finish()] == [6]


def test_a_turn_of_very_many_calls_is_settled_in_parts_and_in_order() -> None:
    judge = OutcomeJudge()
    judge.add(stored(2, 1, look("a")))
    judge.add(UserWords(2, "on"))
    for number in range(2_000):
        judge.add(stored(4 + 2 * number, 2, look(f"f{number}")))
    assert judge.take() == []
    judge.add(stored(4_004, 2, look("last")))
    assert [judged_call.call.seq for judged_call in judge.take()] == [2, *range(4, 2_004, 2)]
    assert [judged_call.call.seq for judged_call in judge.finish()] == list(range(2_004, 4_006, 2))


def test_a_call_of_a_turn_that_was_undone_is_undone_however_it_went() -> None:
    judge = OutcomeJudge({2})
    judge.add(stored(2, 1, look("a")))
    judge.add(stored(4, 2, look("b"), "bad_input"))
    assert [(judged_call.outcome, judged_call.reason) for judged_call in judge.finish()] == [
        ("ok", "no error flag"),
        ("undone", "the turn was undone"),
    ]


@each(
    ("steps", "expected"),
    [
        ([run("./put old"), "No, not the old one!", run("./put new")], "an objection"),
        ([write("a", "x"), "shorter", write("a", "y")], "another version"),
        ([write("probe.txt", "x"), run("rm probe.txt")], "a removal"),
        ([run("git checkout -b try"), "delete it again", run("git branch -D try")], "a branch on request"),
        ([run("./serve start"), "and stop it", run("./serve stop")], "a service on request"),
        ([run("nc -z a 80; echo $?", "1")], "a printed answer"),
        ([run("./load a", "cannot open a"), run("./load b/a", "3 rows")], "a message"),
        ([run("x || true", "bash: line 1: x: command not found")], "a line of the shell"),
    ],
)
def test_words_and_opposite_commands_alone_prove_nothing(steps: list[Step | str], expected: str) -> None:
    assert outcomes(*steps)[0] in ("ok", "corrected"), expected
