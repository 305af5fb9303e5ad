"""What a result says of its call: exit codes, words, fields, traces and HTTP statuses."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.store.calls import StoredCall
from whet.warm.aftermath import is_unknown_tool
from whet.warm.masking import find_hidden_exit, find_http_error, find_masked_error
from whet.warm.outcome import find_error_line, find_json_error, judge_alone, programs_of


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
        ("pytest", "2 failed, 3 passed", 1, "ok"),
        ("cargo test", "test result: FAILED. 3 passed; 2 failed", 101, "ok"),
        ("pytest", "2 failed, 1 error", 1, "failed"),
        ("pytest", "2 failed", 2, "failed"),
        ("pytest", "no words of it", 1, "failed"),
        ("./build", "2 failed", 1, "failed"),
        ("pytest -q | tail -1", "no tests ran in 0.01s", 0, "failed"),
        ("cargo test x", "running 0 tests\n\ntest result: ok. 0 passed; 9 filtered out", 0, "failed"),
        ("cargo test", "running 3 tests\n3 passed\n\nrunning 0 tests\n0 passed", 0, "ok"),
        ("go test ./...", "?   a/b [no test files]", 0, "failed"),
        ("go test ./...", "?   a/b [no test files]\nok  \ta/c\t0.1s", 0, "ok"),
        ("kubectl rollout status x || true", "error: timed out waiting", 0, "failed"),
        ("kubectl logs x || true", "error: timed out waiting", 0, "ok"),
        ("curl -so a.gz http://x; ls -l a.gz", "-rw-r--r-- 1 u u 0 Nov 30 08:00 a.gz", 0, "failed"),
        ("curl -so a.gz http://x; ls -l a.gz", "-rw-r--r-- 1 u u 10 Nov 30 08:00 a.gz", 0, "ok"),
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
        ("./put || echo 'no luck'", "no luck", 0, "failed"),
        ("grep x a; echo $?", "1", 0, "ok"),
        ("curl -i http://x", "HTTP/1.1 404 Not Found\n\nx", 0, "failed"),
        ("curl -i http://x", "HTTP/1.1 200 OK\n\nx", 0, "ok"),
        ("make | tail", "a.c:1:2: error: no", 0, "failed"),
        ("./make", "a.c:1:2: error of a kind", 0, "ok"),
        ("cat a | tail", "a.c:1:2: error: no", 0, "ok"),
        ("sh save.sh", "save: cannot write to /mnt/nas: No space left on device", 0, "failed"),
        ("ssh a uptime; echo", "ssh: connect to host a port 22: Connection timed out", 0, "failed"),
        ("sh save.sh", "retry after: connection timed out, as expected", 0, "ok"),
        ("./manage migrate; true", "db.utils.OperationalError: no such table: a", 0, "failed"),
        ("sh queue.sh", "  SendInvoice ........ 12ms FAIL", 0, "failed"),
        ("jq .a p.json || :", "jq: parse error: Invalid numeric literal at line 1", 0, "failed"),
        ("jq .a p.json", "jq: parse error of an old run", 0, "ok"),
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
    assert alone("pytest", "1 failed", 1)[1] == "the tests ran and report failures"
    assert alone("./x", '{"ok": false}')[1] == "exit 0, but ok is false"
    assert alone("./x", "fatal: no") == ("failed", "exit 0, but it says: fatal: no")
    assert alone("./x || echo no", "no") == ("failed", "exit 0, but its fallback ran: no")
    assert alone("ls", None) == ("unknown", "no result")
    assert alone("ls", "x", kind="denied") == ("denied", "not let through")
    assert alone("ls", "x", kind="cancelled") == ("unknown", "cancelled")
    assert alone("ls", "x", kind="bad_input") == ("failed", "bad input")


def test_a_result_of_another_tool_is_judged_by_its_fields_alone() -> None:
    def of(name: str, result: str, code: int | None = None) -> tuple[str, str]:
        return judge_alone(StoredCall(2, 1, 1, 1, name, "{}", result, 0, "", code), {})

    assert of("look_up", '{"success": false}') == ("failed", "success is false")
    assert of("look_up", '[{"success": false}]') == ("ok", "no error flag")
    assert of("look_up", "fatal: no") == ("ok", "no error flag")
    assert of("look_up", "") == ("ok", "no error flag")
    assert of("look_up", "fatal: no", 0)[0] == "failed", "what has an exit code is a command"
    assert of("terminal", "fatal: no")[0] == "failed", "whatever its arguments are"


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
        ("begin\n  fatal: no\nend", ""),
        ("begin\nfatal: no\nend", "fatal: no"),
        ("fatal: no\na\nb\nc", "fatal: no"),
        ("fatal: no\na\nb\nc\nd", ""),
        ("fatal: no\na\nb\nc\n\n", "fatal: no"),
        ("fatal: " + "x" * 200, "fatal: " + "x" * 113),
        ("error: 0 errors", ""),
        ("fatal: no\n" + "x" * 4_500, ""),
        ("fatal: no\n" + "x" * 3_500, "fatal: no"),
        ("x\n" * 3_000 + "fatal: no", "fatal: no"),
        ("  is not fatal: at all", ""),
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


def test_a_hidden_exit_names_the_part_that_ended_with_it() -> None:
    def parts(command: str, text: str) -> tuple[str, int, str] | None:
        found = find_hidden_exit(command, text)
        return (found.command, found.code, found.shown) if found else None

    assert parts("./a || echo 'no\\n'", "x\n no ") == ("./a ", 1, "its fallback ran: no")
    assert parts("./a || echo no", "no\nmore") is None
    assert parts("x; cat a || echo none", "none") is None
    assert parts("cat a && ./b || echo none", "none") == ("cat a && ./b ", 1, "its fallback ran: none")
    assert parts("./a || echo " + "w" * 90, "w" * 90) == ("./a ", 1, f"its fallback ran: {'w' * 80}")
    assert parts("./a; rc=$?; echo rc=$rc", "rc=3") == ("./a", 3, "it printed the exit code 3")
    assert parts("./a; echo $?", "it was 3.") == ("./a", 3, "it printed the exit code 3")
    assert parts("./a; echo $?", "0") is None and parts("./a; echo $?", "none") is None


def test_diagnostics_at_the_end_of_a_masked_command() -> None:
    assert find_masked_error("x\na.c:1:2: error: no  \ny") == "a.c:1:2: error: no"
    assert find_masked_error("build failed: " + "w" * 200) == "build failed: " + "w" * 106
    assert find_masked_error("a failed=1" + "\nx" * 5) == "a failed=1"
    assert find_masked_error("a failed=1" + "\nx" * 6) == ""
    assert find_masked_error("") == find_masked_error("failed=0") == ""


def test_the_last_http_status_counts_and_only_of_programs_that_ask() -> None:
    shown = "HTTP/1.1 301 Moved\n\nHTTP/2 404\n"
    assert find_http_error("curl", "curl -iL x", shown) == "HTTP 404"
    assert find_http_error("python", "python x", shown) == ""
    assert find_http_error("curl", "curl -iL x", "HTTP/1.1 404 No\nHTTP/1.1 200 OK") == ""
    assert find_http_error("curl", "curl -i x", "HTTP/1.1 400 Bad") == "HTTP 400"
    assert find_http_error("curl", "curl -s -w '%{http_code}' x", "body\n503\n") == "HTTP 503"
    assert find_http_error("curl", "curl -s x", "body\n503\n") == ""


def test_an_error_with_its_code_is_a_failure_and_a_lower_case_word_in_a_record_is_none() -> None:
    line = "ERROR 1146 (42S02) at line 3: Table 'shop.orders' doesn't exist"
    assert alone("mysql shop < a.sql", line) == ("failed", f"exit 0, but it says: {line}")
    assert alone("./x", "2026-11-01 login failed for bob (3 times)") == ("ok", "exit 0")
    assert alone("./x", "Deployment FAILED after 3 attempts")[0] == "failed"
