"""What each rule of judging a call takes for its own, and what it leaves: pairs that differ in one thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import each
from whet.store.calls import StoredCall, UserWords
from whet.warm.aftermath import JudgedCall, OutcomeJudge, failure_text, is_fix
from whet.warm.takeback import replaces_text, restores_content, undoes

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
    return [one.outcome for one in judged(*steps, failed=failed)]


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


@each(
    ("failed", "again", "is_mended_by_it"),
    [
        ({"path": "a.txt", "offset": -1}, {"path": "a.txt"}, True),
        ({"path": "old/a.txt"}, {"path": "new/place/a.txt"}, True),
        ({"path": "old/a.txt/"}, {"path": "new/place/of/things/a.txt"}, True),
        ({"path": "src/report.txt"}, {"path": "x/reports.txt"}, True),
        ({"path": "a/b/c.txt"}, {"path": "q/zz.md"}, False),
        ({"path": f"{'a' * 30}/report.txt"}, {"path": f"{'z' * 30}/reports.txt"}, True),
        ({"path": f"{'a' * 30}/report.txt"}, {"path": f"{'z' * 30}/invoice.txt"}, False),
        ({"command": "pytest tests"}, {"command": "python -m pytest tests/unit -x"}, True),
        ({"command": ""}, {"command": ""}, False),
        ({"path": "src/module/deep/x"}, {"path": "src/module/deep/yyyy"}, True),
        ({"command": "pytest tests"}, {"command": "pytest test"}, True),
        ({"command": "make all"}, {"command": "curl -s http://example.org"}, False),
        ({}, {"path": "a"}, True),
        ({"path": "a"}, {}, False),
        ({}, {}, False),
        ({"path": "", "limit": 5}, {"command": "ls"}, False),
    ],
)
def test_what_mends_a_failed_call(
    failed: dict[str, Any], again: dict[str, Any], is_mended_by_it: bool
) -> None:
    assert is_fix(failed, again) is is_mended_by_it


def test_a_mended_call_says_what_it_mends_and_how_that_failed() -> None:
    bad, good = judged(look("old/a.txt", "no such file"), look("new/a.txt"), failed=(0,))
    assert bad.outcome == "failed" and good.repairs is bad.call
    assert good.repairs_why == "bad input" and good.reason == "mends a call that failed (bad input)"


def test_of_two_failed_calls_the_later_one_is_mended() -> None:
    one, two, good = judged(look("o/a.txt", "no"), look("p/a.txt", "no"), look("new/a.txt"), failed=(0, 1))
    assert one.call is not good.repairs and good.repairs is two.call


def test_a_call_between_that_names_the_target_makes_it_a_repair() -> None:
    wrong, right = look("zzzzzz", "no"), look("lib/deep/module.py")
    assert repaired(wrong, run("ls -R", "lib/deep/module.py\nother"), right)
    assert not repaired(wrong, run("ls -R", "nothing of it"), right)
    assert not repaired(wrong, right)
    assert not repaired(look("zzzzzz", "no"), run("ls", "a.c b.c"), look("a.c"))
    shown = run("ls -R", "lib/deep/module.py and tools.sh")
    assert repaired(run("zzzzzz", "no"), look("a", "lib/deep/module.py"), run("wc -l lib/deep/module.py"))
    assert repaired(run("zzzzzz", "no"), look("a", "see tools.sh"), run("wc -l tools.sh"))
    assert repaired(look("zzzzzz", "no"), run("ls", "a.py b.py"), look("a.py"))
    assert repaired(("read_file", {"file": "zzzzzz"}, "no"), shown, ("read_file", {"file": "tools.sh"}, "x"))
    assert not repaired(run("zzzzzz", "no"), look("a", "a word of it"), run("qqq word"))
    assert not repaired(wrong, shown, ("read_file", {"path": 7, "offset": 1}, "x"))


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


# Objections, and what is taken back.


def test_an_objection_is_to_the_turn_before_and_to_what_worked_in_it() -> None:
    assert outcomes(look("a"), look("b"), "no, not that") == ["objected", "objected"]
    assert outcomes(look("a", "no"), "wrong!", failed=(0,)) == ["failed"]
    assert outcomes(look("a"), "go on", look("b"), "undo that") == ["ok", "objected"]
    later = outcomes(look("a"), "No, that's wrong, not all!", "Now the next", look("b"), "thanks", look("c"))
    assert later == ["objected", "ok", "ok"], "nothing was done in the objection's own turn"
    assert outcomes(look("a"), "go on: no, not that") == ["ok"]
    assert outcomes(look("a"), "I said " + "x " * 100 + "not that") == ["objected"]
    assert outcomes(look("a"), "I said " + "x " * 200 + "not that") == ["ok"]


@each(
    ("message", "is_objection"),
    [
        ("stop!! not that one", True),
        ("wait, I meant the docs", True),
        ("hey - the docs", True),
        ("wrong", True),
        ("stop the timer and thanks", False),
        ("wait for the build, then deploy", False),
        ("hey can you also run the linter", False),
        ("stop words go into stop.txt", False),
        ("oh no not on prod!!", True),
        ("that was the wrong folder", True),
        ("I told you never to commit", True),
        ("We had a rule about commits. Undo it.", True),
        ("Perfect. No more for today.", False),
        ("so no news yet", False),
    ],
)
def test_a_word_that_also_begins_a_task_objects_only_by_itself(message: str, is_objection: bool) -> None:
    assert outcomes(look("a"), message) == ["objected" if is_objection else "ok"]


def test_a_part_of_a_compound_word_complains_of_nothing() -> None:
    assert outcomes(run("make build"), "non-linear fits next", run("make fits")) == ["ok", "ok"]


def test_what_is_typed_during_a_turn_is_no_objection_to_it() -> None:
    judge = OutcomeJudge()
    judge.add(stored(2, 1, look("a")))
    judge.add(UserWords(1, "no, not that"))
    judge.add(stored(4, 1, look("b")))
    judge.add(stored(6, 2, look("c")))
    judge.add(UserWords(2, "no, not that"))
    assert [one.outcome for one in judge.finish()] == ["ok", "ok", "ok"]


def test_calls_come_out_once_their_next_turn_is_over_and_only_once() -> None:
    judge = OutcomeJudge()
    judge.add(stored(2, 1, look("a")))
    judge.add(UserWords(2, "on"))
    assert judge.take() == []
    judge.add(stored(6, 2, look("b")))
    judge.add(UserWords(3, "on"))
    assert [one.call.seq for one in judge.take()] == [2]
    assert judge.take() == []
    assert [one.call.seq for one in judge.finish()] == [6]


def test_a_turn_of_very_many_calls_is_settled_in_parts_and_in_order() -> None:
    judge = OutcomeJudge()
    judge.add(stored(2, 1, look("a")))
    judge.add(UserWords(2, "on"))
    for number in range(2_000):
        judge.add(stored(4 + 2 * number, 2, look(f"f{number}")))
    assert judge.take() == []
    judge.add(stored(4_004, 2, look("last")))
    assert [one.call.seq for one in judge.take()] == [2, *range(4, 2_004, 2)]
    assert [one.call.seq for one in judge.finish()] == list(range(2_004, 4_006, 2))


def test_a_call_of_a_turn_that_was_undone_is_undone_however_it_went() -> None:
    judge = OutcomeJudge({2})
    judge.add(stored(2, 1, look("a")))
    judge.add(stored(4, 2, look("b"), "bad_input"))
    assert [(one.outcome, one.reason) for one in judge.finish()] == [
        ("ok", "no error flag"),
        ("undone", "the turn was undone"),
    ]


def test_what_a_command_takes_back_is_undone_in_this_turn_and_the_one_before() -> None:
    made, gone = write("probe.txt", "x"), run("rm probe.txt")
    assert outcomes(made, gone) == ["undone", "ok"]
    assert outcomes(made, "away with it", gone) == ["undone", "ok"]
    assert outcomes(made, "and", look("b"), "away with it", gone)[0] == "ok"
    assert outcomes(made, look("probe.txt"), gone)[0] == "ok", "it was of use"
    assert outcomes(made, look("probe.txt"), "away with it", gone)[0] == "undone"
    assert outcomes(made, run("echo probe.txt")) == ["ok", "ok"]
    assert outcomes(made, "no, wrong", gone)[0] == "undone", "what was objected to can be taken back"


def test_a_file_written_back_to_what_it_was_undoes_the_write_between() -> None:
    a, b = write("f", "one"), write("f", "two")
    assert outcomes(a, b, a) == ["corrected", "undone", "ok"]
    assert judged(a, b, a)[1].reason == "a later call put back what it replaced"
    assert outcomes(a, b, "as it was", a)[1] == "undone"
    assert outcomes(a, write("g", "two"), a)[:2] == ["ok", "ok"]
    assert outcomes(a, b, edit("f", "two", "one"))[1] == "ok"
    assert outcomes(a, b, write("f", "three"), a) == ["corrected", "corrected", "undone", "ok"]
    nowhere: list[Step] = [("write_file", {"content": text}, "written") for text in ("1", "2", "1")]
    assert outcomes(*nowhere) == ["ok", "ok", "ok"]
    assert outcomes(("write_file", {"path": "f"}, "written")) == ["ok"]


def test_what_is_taken_back_is_looked_for_among_the_last_fifty_calls() -> None:
    def others(count: int) -> list[Step]:
        return [run(f"wc -l part{number}") for number in range(count)]

    made, gone = write("probe.txt", "x"), run("rm probe.txt")
    assert outcomes(made, *others(49), gone)[0] == "undone"
    assert outcomes(made, *others(50), gone)[0] == "ok"
    assert outcomes(made, *others(49), "away with it", gone)[0] == "undone"
    assert outcomes(made, *others(50), "away with it", gone)[0] == "ok"


def test_an_edit_after_a_message_that_replaces_what_was_written_objects() -> None:
    wrote = edit("a", "x", "first words")
    assert outcomes(wrote, "shorter", edit("a", "first words", "words"))[0] == "objected"
    assert outcomes(wrote, "shorter", edit("b", "y", "z"), edit("a", "first words", "words"))[0] == "ok"
    assert outcomes(wrote, "shorter", look("a"), edit("a", "first words", "words"))[0] == "objected"
    assert outcomes(wrote, "more", edit("a", "first words", "first words and more"))[0] == "ok"
    assert outcomes(wrote, "change first words to words too", edit("a", "first words", "words"))[0] == "ok"
    assert outcomes(wrote, "not first words", edit("a", "first words", "words"))[0] == "objected"


def test_a_look_at_another_place_is_no_other_way_of_the_first_look() -> None:
    assert outcomes(run("ls old"), "never mind the old folder", run("ls new")) == ["ok", "ok"]
    assert outcomes(run("./put old"), "not the old folder", run("./put new")) == ["objected", "ok"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"path": "a", "content": "1\n2"}, {"path": "a", "content": "0\n1\n2\n3"}, False),
        ({"path": "a", "content": "1\n2"}, {"path": "a", "content": "2\n1"}, True),
        ({"path": "a", "content": "1\n2"}, {"path": "b", "content": "3"}, False),
        ({"content": "1"}, {"content": "3"}, False),
        ({"path": "a", "new_string": " w "}, {"path": "a", "old_string": "w", "new_string": "v"}, True),
        ({"path": "a", "new_string": "w"}, {"path": "a", "old_string": "u", "new_string": "v"}, False),
        ({"path": "a", "new_string": "w"}, {"path": "a", "old_string": "w", "new_string": "w v"}, False),
        ({"path": "a", "new_string": " "}, {"path": "a", "old_string": "w", "new_string": "v"}, False),
        ({"path": "a", "content": "1"}, {"path": "a", "old_string": "1", "new_string": "v"}, False),
        ({"path": "a", "new_string": "w"}, {"path": "a", "content": "v"}, False),
    ],
)
def test_what_replaces_what_was_written(
    before: dict[str, Any], after: dict[str, Any], expected: bool
) -> None:
    assert replaces_text(before, after) is expected


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["a", "b", "a"], True),
        (["a", "x", "b", "a"], True),
        (["a", "a"], False),
        (["a", "a", "a"], False),
        (["a", "b", "c"], False),
        (["x", "b", "a", "b", "b"], False),
        (["x", "a", "b", "c"], False),
        (["x", "y", "a", "b", "a"], True),
        ([], False),
        (["b", "a", "b", "b"], False),
    ],
)
def test_when_the_content_of_a_file_is_back(contents: list[str], expected: bool) -> None:
    assert restores_content(contents) is expected


def taken_back(old: Step, new: Step, *between: dict[str, Any]) -> bool:
    assert isinstance(old[1], dict) and isinstance(new[1], dict)
    return undoes((old[0], old[1]), (new[0], new[1]), between)


@each(
    ("done", "command", "expected"),
    [
        ("git commit -m x", "git revert HEAD", True),
        ("git commit -m x", "git reset --soft HEAD~1", True),
        ("git commit -m x", "git log", False),
        ("kubectl scale deploy web --replicas=5", "kubectl rollout undo deploy/web", True),
        ("kubectl scale deploy web --replicas=5", "kubectl rollout undo deploy/api", False),
        ("git status", "git revert HEAD", False),
        ("git checkout -b feature/a", "git branch -D feature/a", True),
        ("git checkout -b feature/a", "git branch -D feature/b", False),
        ("mv a b", "mv b a", True),
        ("cd x && mv -f a b", "mv b a", True),
        ("mv a b", "mv a b", False),
        ("mv a b", "mv b c", False),
        ("mkdir -p new/dir", "rm -r new/dir/", True),
        ("mkdir new/", "rmdir new", True),
        ("touch a; ls", "ls && rm a b", True),
        ("cp x y", "rm y", True),
        ("cp x y", "rm x", False),
        ("date > out.txt", "rm out.txt", True),
        ("make 2> err.txt", "rm err.txt", False),
        ("ls", "rm out.txt", False),
        ("touch rm", "rm out.txt", False),
    ],
)
def test_what_a_command_did_is_taken_back_by_its_opposite(done: str, command: str, expected: bool) -> None:
    assert taken_back(run(done), run(command)) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git checkout -- a.py", True),
        ("git checkout .", True),
        ("git restore a.py && ls", True),
        ("git restore --staged a.py", False),
        ("git checkout b.py", False),
        ("git stash", True),
        ("git stash pop", False),
        ("git reset --hard", True),
        ("rm -f a.py", True),
        ("rm b.py", False),
        ("unlink a.py", True),
    ],
)
def test_what_git_and_rm_do_to_an_edited_file(command: str, expected: bool) -> None:
    assert taken_back(edit("a.py", "1", "2"), run(command)) is expected


def test_an_edit_is_taken_back_by_its_reverse_in_the_same_file_alone() -> None:
    assert taken_back(edit("a", "1", "2"), edit("a", "2", "1"))
    assert taken_back(edit("a", "", "2"), edit("a", "2", ""))
    assert not taken_back(edit("a", "1", "2"), edit("b", "2", "1"))
    assert not taken_back(edit("a", "1", "2"), edit("a", "2", "3"))
    assert not taken_back(edit("", "1", "2"), edit("", "2", "1"))
    assert not taken_back(edit("a", "", ""), edit("a", "", ""))
    assert not taken_back(("patch", {"new_string": "2"}, ""), run("git stash"))
    assert not taken_back(look("a"), run("rm a"))
    assert not taken_back(run("touch a"), look("a"))


def test_a_thing_that_was_named_between_was_of_use() -> None:
    assert not taken_back(run("touch d/a.txt"), run("rm d/a.txt"), {"command": "cat a.txt"})
    assert taken_back(run("touch d/a.txt"), run("rm d/a.txt"), {"command": "cat b.txt"}, {"path": "c"})
    assert not taken_back(run("touch d/a.txt"), run("rm d/a.txt"), {"path": "c", "n": "a.txt"})


# A call by its own result.
