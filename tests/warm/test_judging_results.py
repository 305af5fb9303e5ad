"""What a result says of its call: exit codes, words, fields, traces and HTTP statuses."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.store.calls import StoredCall
from whet.warm.aftermath import is_unknown_tool
from whet.warm.outcome import (
    find_error_line,
    find_json_error,
    find_printed_exit,
    judge_alone,
    programs_of,
)


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
        ("grep x a", "grep: a: No such file or directory", 1, "failed"),
        ("sort a | grep x", "", 1, "ok"),
        ("grep x a | sort", "", 1, "failed"),
        ("git diff --quiet", "", 1, "ok"),
        ("git pull", "", 1, "failed"),
        ("command -v jq", "", 1, "ok"),
        ("command -v jq", "", 2, "failed"),
        ("command -v jq && jq . a", "", 1, "failed"),
        ("command jq", "", 1, "failed"),
        ("cat a", "error: in the log", 0, "ok"),
        ("cat a", "cat: a: No such file or directory", 0, "failed"),
        ("cat a", "x\ncat: b: Permission denied\ny", 0, "failed"),
        ("head a", "cat: b: Permission denied", 0, "ok"),
        ("cat a", '{"success": false}', 0, "ok"),
        ("./call", '{"success": false}', 0, "failed"),
        ("./call", '{"success": true}', 0, "ok"),
        ("./call", "", 0, "ok"),
        ("grep x a; echo $?", "1", 0, "ok"),
        ("make | tail", "bash: line 1: make: command not found", 0, "failed"),
        ("sh save.sh", "save: cannot write to /mnt/nas: No space left on device", 0, "failed"),
        ("sh save.sh", "No space left on device", 0, "ok"),
        ("ssh a ls; echo", "ssh: connect to host a port 22: Connection refused.", 0, "failed"),
        ("./logq --since noon", "12:01 ERROR mail: connection refused", 0, "ok"),
        ("./cli --port abc || true", "error: port must be a number", 0, "ok"),
        ("curl -so /dev/null -w '%{http_code}' a/none", "404", 0, "ok"),
        ("nc -z a 1 && echo open || echo closed", "closed", 0, "ok"),
    ],
)
def test_a_command_by_its_exit_code_and_words(command: str, result: str, code: int, outcome: str) -> None:
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
    assert alone("./x", "sh: no") == ("failed", "exit 0, but it says: sh: no")
    assert alone("./x; echo $?", "3") == ("failed", "exit 0, but it printed the exit 3")
    assert alone("ls", None) == ("unknown", "no result")
    assert alone("ls", "x", kind="denied") == ("denied", "not let through")
    assert alone("ls", "x", kind="cancelled") == ("unknown", "cancelled")
    assert alone("ls", "x", kind="bad_input") == ("failed", "bad input")


def test_a_result_of_another_tool_is_judged_by_its_fields_alone() -> None:
    def of(name: str, result: str, code: int | None = None) -> tuple[str, str]:
        return judge_alone(StoredCall(2, 1, 1, 1, name, "{}", result, 0, "", code), {})

    assert of("look_up", '{"success": false}') == ("failed", "success is false")
    assert of("look_up", '[{"success": false}]') == ("ok", "no error flag")
    assert of("look_up", "sh: no") == ("ok", "no error flag")
    assert of("look_up", "") == ("ok", "no error flag")
    assert of("look_up", "sh: no", 0)[0] == "failed", "what has an exit code is a command"
    assert of("terminal", "sh: no")[0] == "failed", "whatever its arguments are"


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


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    x\n'


@each(
    ("text", "line"),
    [
        (TRACE + "ValueError: no\n", "ValueError: no"),
        (TRACE + "pkg.OddError: " + "x" * 200, "pkg.OddError: " + "x" * 106),
        (TRACE + "ValueError: no\nall is well\n", ""),
        ("ValueError: no", ""),
        ("begin\n  sh: no\nend", ""),
        ("begin\nsh: no\nend", "sh: no"),
        ("sh: no\na\nb\nc", "sh: no"),
        ("sh: no\na\nb\nc\nd", ""),
        ("sh: no\na\nb\nc\n\n", "sh: no"),
        ("sh: " + "x" * 200, "sh: " + "x" * 116),
        ("zsh:1: command not found: x", "zsh:1: command not found: x"),
        ("x: command not found", "x: command not found"),
        ("x\n" * 3_000 + "sh: no", "sh: no"),
        ("  is not sh: at all", ""),
    ],
)
def test_the_line_by_which_a_shell_says_that_it_failed(text: str, line: str) -> None:
    assert find_error_line(text) == line


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


def test_a_printed_exit_code_belongs_to_the_part_before_it() -> None:
    assert find_printed_exit("./a; rc=$?; echo rc=$rc", "rc=3") == ("./a", 3)
    assert find_printed_exit("./a; echo $?", "it was 3.") == ("./a", 3)
    assert find_printed_exit("./a; echo $?", "0") is None
    assert find_printed_exit("./a; echo $?", "none") is None
    assert find_printed_exit("echo 7", "7") is None
