"""What a call's own record says of it: exit codes, pipelines, and fields of a JSON result."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.contract.receipts import CallEffects
from whet.store.calls import StoredCall
from whet.warm.aftermath import is_unknown_tool
from whet.warm.outcome import find_json_error, judge_alone, programs_of


def test_the_line_that_there_is_no_such_tool() -> None:
    def said(text: str | None) -> bool:
        return is_unknown_tool(StoredCall(2, 1, 1, 1, "frob", "{}", text))

    assert said("Unknown tool: frob") and said("the tool frob does not exist\n")
    assert not said("Unknown tool: " + "x" * 400 + " frob")
    assert not said("Unknown tool: other") and not said("frob: all is well") and not said(None)
    assert not said("Unknown tool: frob\nbut this is a page")


def alone(command: str, result: str | None, code: int | None = 0, kind: str = "") -> tuple[str, str]:
    call = StoredCall(2, 1, 1, 1, "terminal", "{}", result, 0, kind or ("exit" if code else ""), code)
    return judge_alone(call, {"command": command})


@each(
    ("command", "result", "code", "outcome"),
    [
        ("pytest", "2 failed, 3 passed in 0.1s", 1, "ok"),
        ("cargo test", "test result: FAILED. 3 passed; 2 failed; 0 ignored", 101, "ok"),
        ("pytest", "2 failed in 0.1s", 2, "failed"),
        ("pytest", "2 failed, 1 error in 0.1s", 1, "failed"),
        ("python -m unittest", "Ran 1 test in 0.0s\n\nFAILED (errors=1)", 1, "failed"),
        ("python -m unittest", "Ran 1 test in 0.0s\n\nFAILED (failures=1)", 1, "ok"),
        ("pytest", "no words of it", 1, "failed"),
        ("./build", "2 failed", 1, "failed"),
        ("grep x a", "", 1, "ok"),
        ("grep x a", "", 2, "failed"),
        ("sort a | grep x", "", 1, "ok"),
        ("grep x a | sort", "", 1, "failed"),
        ("git diff --quiet", "", 1, "ok"),
        ("git pull", "", 1, "failed"),
        ("command -v jq", "", 1, "ok"),
        ("command -v jq", "", 2, "failed"),
        ("command -v jq && jq . a", "", 1, "failed"),
        ("command jq", "", 1, "failed"),
        ("cat a", "error: in the log", 0, "ok"),
        ("cat a", '{"success": false}', 0, "ok"),
        ("./call", '{"success": false}', 0, "failed"),
        ("./call", '{"success": true}', 0, "ok"),
        ("./call", "", 0, "ok"),
        ("grep x a; echo $?", "1", 0, "ok"),
        ("make; true", "bash: line 1: make: command not found", 0, "ok"),
        ("./logq --since noon", "12:01 ERROR mail: connection refused", 0, "ok"),
        ("./cli --port abc || true", "error: port must be a number", 0, "ok"),
        ("curl -so /dev/null -w '%{http_code}' a/none", "404", 0, "ok"),
        ("nc -z a 1 && echo open || echo closed", "closed", 0, "ok"),
    ],
)
def test_a_command_by_its_exit_code(command: str, result: str, code: int, outcome: str) -> None:
    assert alone(command, result, code)[0] == outcome


def test_the_reason_is_told_in_a_few_words() -> None:
    assert alone("ls", "", 3) == ("failed", "exit 3")
    assert alone("./x", "") == ("ok", "exit 0") == alone("./x", "fine")
    assert alone("grep x a", "", 1) == ("ok", "grep answers no with exit 1")
    assert alone("/bin/[ -e x ]", "", 1) == ("ok", "[ answers no with exit 1")
    assert alone("git diff --quiet", "", 1) == ("ok", "git answers no with exit 1")
    assert alone("cd x && command -v jq", "", 1)[1] == "command -v answers no with exit 1"
    assert alone("pytest", "1 failed in 1s", 1)[1] == "the tests ran and report failures"
    assert alone("./x", '{"ok": false}')[1] == "exit 0, but ok is false"
    assert alone("ls", None) == ("unknown", "no result")
    assert alone("ls", "x", kind="denied") == ("denied", "not let through")
    assert alone("ls", "x", kind="cancelled") == ("unknown", "cancelled")
    assert alone("ls", "x", kind="interrupted") == ("unknown", "interrupted")
    assert alone("ls", "x", kind="bad_input") == ("failed", "bad input")


def test_a_result_of_another_tool_is_judged_by_its_fields_alone() -> None:
    def of(name: str, result: str, code: int | None = None) -> tuple[str, str]:
        return judge_alone(StoredCall(2, 1, 1, 1, name, "{}", result, 0, "", code), {})

    assert of("look_up", '{"success": false}') == ("failed", "success is false")
    assert of("look_up", '[{"success": false}]') == ("ok", "no error flag")
    assert of("look_up", "") == ("ok", "no error flag")
    assert of("look_up", '{"ok": false}', 0)[1] == "exit 0, but ok is false", (
        "with an exit code it is a command"
    )


@each(
    ("text", "trouble"),
    [
        ('{"success": "False"}', "success is false"),
        ('{"success": "no"}', ""),
        ('{"ok": false}', "ok is false"),
        ('{"status": 400}', "its status is 400"),
        ('{"statusCode": 599}', "its status is 599"),
        ('{"code": 600}', ""),
        ('{"code": 399}', ""),
        ('{"errors": [1]}', "errors is set"),
        ('{"errors": [1], "data": {"a": 1}}', ""),
        ('{"errors": []}', ""),
        ('{"errors": "x"}', ""),
        ('{"status": "Error"}', "status is Error"),
        ('{"status": "fine"}', ""),
        ('{"isError": true}', "isError is true"),
        ('{"is_error": true}', "is_error is true"),
        ('{"isError": false}', ""),
        (' {"error": "x"}\n', "error is set"),
        ('{"error": "x", "success": true}', ""),
        ('{"error": "x", "ok": true}', ""),
        ('{"error": ""}', ""),
        ('{"status": "failed"}', "status is failed"),
        ('{"error": null}', ""),
        ("[1, 2]", ""),
        ('{"broken', ""),
        ("not json", ""),
        ('{"x": ' + "[" * 5_000, ""),
    ],
)
def test_which_fields_say_that_something_went_wrong(text: str, trouble: str) -> None:
    assert find_json_error(text) == trouble


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("a | b |& c & d || e && f; g\nh", list("abcdefgh")),
        ("x 2>&1", ["x"]),
        ("sudo -u timeout 5 nice /usr/bin/make", ["make"]),
        ('! grep "a | b" c', ["grep"]),
        ("{ a; }", ["a"]),
        ("A=1 B=2 c", ["c"]),
        ("x " * 1_000 + "| y", ["x"]),
        ("cd x && grep -n 'a b' y | head", ["cd", "grep", "head"]),
        ("FOO=1 sudo env /usr/bin/make -j2 test", ["make"]),
        ("echo 'a; b' || true", ["echo", "true"]),
        ("(cd a; ls)", ["cd", "ls"]),
        ("", []),
    ],
)
def test_the_programs_of_a_line(command: str, programs: list[str]) -> None:
    assert list(programs_of(command)) == programs


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
def test_the_exit_codes_of_a_pipe_count_unless_a_review_read_them_and_was_silent(
    command: str, codes: tuple[int, ...], outcome: str
) -> None:
    text = "2 failed, 1 passed in 0.1s" if "pytest" in command else "make: error in a"
    call = StoredCall(2, 1, 1, 1, "terminal", "{}", text, exit_code=0, effects=CallEffects(pipeline=codes))
    assert judge_alone(call, {"command": command})[0] == outcome
    assert judge_alone(call, {"command": command}, is_reviewed=True) == ("ok", "exit 0")


def test_a_review_that_is_silent_excuses_no_error_that_was_recorded() -> None:
    failed = StoredCall(2, 1, 1, 1, "terminal", "{}", "x", 0, "exit", 3)
    assert judge_alone(failed, {"command": "make"}, is_reviewed=True) == ("failed", "exit 3")
    other = StoredCall(2, 1, 1, 1, "look_up", "{}", '{"success": false}')
    assert judge_alone(other, {}, is_reviewed=True) == ("failed", "success is false")
