"""`whet chat -q`, run as a real process against a real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.helper_runs import helper, mind, shell, steps
from tests.cli.running import WHET, Tty, flags, run, start
from tests.sandbox.engines import ENGINES
from tests.support import within
from whet.contract.brought_text import drop_marks
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

OBJECT = dict.fromkeys(("session_id", "conversation_id", "text", "end_reason"), str) | {"steps": int}
OBJECT |= {"tool_calls": list, "usage": dict, "notices": list, "review": dict, "duration_s": float}
USAGE = {f"{kind}_tokens" for kind in ("prompt", "completion", "total", "input", "output", "reasoning")}
USAGE |= {"cache_read_tokens", "cache_write_tokens", "estimated_tokens", "cost_usd", "cache_hit_ratio"}


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has fetched yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # also of one that ends between the opening of this file and its reading
        return False


def write(path: str, content: str = "hello") -> PracticeCall:
    return PracticeCall("write_file", json.dumps({"path": path, "content": content}))


@pytest.fixture
def echo() -> Iterator[PracticeServer]:
    with PracticeServer() as server:
        yield server


def test_the_answer_and_nothing_else_goes_to_standard_output(folder: Path) -> None:
    script = [ScriptedReply("Looking.", tool_calls=(write("a.txt"),)), ScriptedReply("It is **done**.")]
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "do it", "--yes", *flags(server)], folder)
    assert (code, out, err) == (0, "It is **done**.\n", "")
    assert (folder / "a.txt").read_text() == "hello"


@pytest.mark.parametrize("flag", ["--json", "--stream-json", ""])
def test_a_key_of_the_home_is_masked_in_the_answer(folder: Path, home: Path, flag: str) -> None:
    """Text shaped like a key stays: a program may have asked for it."""
    key, other = "Zq8vN3xLw72KdRt5YbHs9Pm4", "sk-proj-abcdefghijklmnopqrstuvwx"
    home.mkdir()
    (home / ".env").write_text(f"DEPLOY_TOKEN={key}\n")
    text = f"It is {key}, {key[:9]} and {other}. Zq8v"
    reply = ScriptedReply(text, tool_calls=(write("a.txt", key),), reasoning=f"Say {key}.", pieces=9)
    with PracticeServer(script=[reply, ScriptedReply(text, pieces=17)]) as server:
        code, out, _ = run(["chat", "-q", "do it", "--yes", *filter(None, [flag]), *flags(server)], folder)
        sent = server.requests[-1].body.decode()
    assert code == 0 and key not in out
    assert (folder / "a.txt").read_text() == key, "what a tool writes is exact"
    rows = [json.loads(line) for line in out.splitlines()] if flag else [{"text": out.strip()}]
    masked = text.replace(key, "[REDACTED]")
    assert rows[-1]["text"].endswith(masked)
    streamed = "".join(row["text"] for row in rows if row.get("type") == "text_delta")
    assert streamed == (masked * 2 if flag == "--stream-json" else "")
    assert f"It is {key}" not in sent


@pytest.mark.slow
def test_json_prints_the_one_object(folder: Path) -> None:
    script = [
        ScriptedReply("", tool_calls=(write("a.txt"), PracticeCall("read_file", '{"path": "missing"}'))),
        ScriptedReply("ok"),
    ]
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "do it", "--json", "--yes", *flags(server)], folder)
    assert (code, err) == (0, "")
    row = json.loads(out)
    assert {key: type(row[key]) for key in OBJECT} == OBJECT
    assert set(row["usage"]) == USAGE
    assert row["review"] == {"queued": [], "news": {"learned": 0, "refused": 0, "waiting": 0}}
    assert {call["name"]: call["ok"] for call in row["tool_calls"]} == {
        "write_file": True,
        "read_file": False,
    }
    assert (row["text"], row["end_reason"], row["steps"]) == ("ok", "answered", 2)


@pytest.mark.parametrize(("flag", "kind"), [("--json", {}), ("--stream-json", {"type": "result"})])
def test_an_error_before_the_turn_is_the_object(folder: Path, flag: str, kind: dict[str, str]) -> None:
    """https://github.com/google-gemini/gemini-cli/issues/20183"""
    code, out, err = run(["chat", "-q", "do it", flag, "--provider", "zzz"], folder)
    row = json.loads(out)
    error = {"error": row["error"], "hint": row["hint"]}
    assert row == kind | {"session_id": "", "text": "", "end_reason": "failed"} | error
    assert code == 1 and f"error: {row['error']}\nhint: {row['hint']}" in err and "zzz" in row["error"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_turn_is_the_object(
    folder: Path, echo: PracticeServer, number: int, expected: int
) -> None:
    process = start(["chat", "-q", "x", "--json", *flags(echo)], folder, subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"begun")
    process.stdin.flush()
    assert b"waiting for the end of standard input (5 bytes so far)" in process.stderr.readline()
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == expected
    assert json.loads(out)["end_reason"] == "cancelled" and "signal" in json.loads(out)["error"]


@pytest.mark.parametrize("flag", ["--json", ""])
def test_an_empty_answer_is_an_error_with_a_hint(folder: Path, flag: str) -> None:
    with PracticeServer(script=[ScriptedReply(), ScriptedReply()]) as server:
        code, out, err = run(["chat", "-q", "x", *filter(None, [flag]), *flags(server)], folder)
    assert code == 1 and err.count("error: the model gave no answer\nhint: whet chat --continue") == 1
    row = json.loads(out) if flag else {"error": "the model gave no answer", "hint": "whet chat --continue"}
    assert row["error"] in err and row["hint"] in err


def test_stream_json_prints_each_event_and_the_object_last(folder: Path) -> None:
    script = [ScriptedReply("hm", tool_calls=(write("a.txt"),)), ScriptedReply("all done", pieces=3)]
    with PracticeServer(script=script) as server:
        code, out, _ = run(["chat", "-q", "do it", "--stream-json", "--yes", *flags(server)], folder)
    rows = [json.loads(line) for line in out.splitlines()]
    kinds = [row["type"] for row in rows]
    assert code == 0
    assert kinds[-2:] == ["turn_end", "result"]
    assert {"text_delta", "step_finished", "tool_started", "tool_finished"} <= set(kinds)
    assert "".join(row["text"] for row in rows if row["type"] == "text_delta") == "hmall done"
    assert rows[-1]["text"] == "all done"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["fix it"], ["chat", "fix it"], ["直して"]])
def test_a_quoted_question_alone_is_answered(
    folder: Path, echo: PracticeServer, arguments: list[str]
) -> None:
    code, out, err = run([*arguments, *flags(echo)], folder)
    assert (code, out.split("\n")[0], err) == (0, arguments[-1], "")


@pytest.mark.slow
def test_piped_text_goes_along_as_context(folder: Path, echo: PracticeServer) -> None:
    code, out, _ = run(["chat", "-q", "why?", *flags(echo)], folder, b"a log line\n")
    assert code == 0
    piped = "<stdin>Standard input (11 characters):\n```\na log line\n```</stdin>"
    assert drop_marks(out).startswith(f"why?\n\n{piped}")
    code, out, _ = run(["chat", "-q", "-", *flags(echo)], folder, b"asked by pipe\n")
    assert (code, out.split("\n")[0]) == (0, "asked by pipe")
    code, out, _ = run(["chat", *flags(echo)], folder, b"no flag needed")
    assert (code, out.split("\n")[0]) == (0, "no flag needed")


@pytest.mark.slow
def test_a_session_goes_on(folder: Path, echo: PracticeServer) -> None:
    (folder.parent / "beside").mkdir()
    above = ["--workspace", f"../{folder.name}"]
    first = json.loads(
        run(["chat", "-q", "one", "--json", *above, *flags(echo)], folder.parent / "beside")[1]
    )
    by_id = ["chat", "-q", "two", "--json", "--session", first["session_id"], *flags(echo)]
    second = json.loads(run(by_id, folder)[1])
    third = json.loads(run(["--continue", "-q", "three", "--json", *flags(echo)], folder)[1])
    assert second["session_id"] == third["session_id"] == first["session_id"]
    bodies = [json.loads(request.body) for request in echo.requests]
    asked = [m["content"] for m in bodies[-1]["messages"] if m["role"] == "user"]
    assert [text.split("\n")[0] for text in asked] == ["one", "two", "three"]


@pytest.mark.slow
def test_a_renamed_folder_s_conversation_is_named(folder: Path, echo: PracticeServer) -> None:
    before, after = folder / "proj-a", folder / "proj-b"
    before.mkdir()
    first = json.loads(run(["chat", "-q", "one", "--json", *flags(echo)], before)[1])
    before.rename(after)
    code, _, err = run(["--continue", "-q", "two", *flags(echo)], after)
    assert code == 1
    assert f"hint: whet chat --session {first['session_id']} goes on with that of {before}" in err
    by_id = ["chat", "-q", "two", "--json", "--session", first["session_id"], *flags(echo)]
    second = json.loads(run(by_id, after)[1])
    assert second["session_id"] == first["session_id"]
    notice = f"the session's folder {before} no longer exists; it works in {after} now"
    assert (first["notices"], second["notices"]) == ([], [notice])
    code, _, err = run(["chat", "-q", "three", "--session", first["session_id"], *flags(echo)], after)
    assert code == 0 and err.count(notice) == 1


def test_an_image_goes_along(folder: Path, echo: PracticeServer) -> None:
    (folder / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    code, _, err = run(["chat", "-q", "what is it?", "--image", "dot.png", *flags(echo)], folder)
    assert (code, err) == (0, "")
    (user,) = [m for m in json.loads(echo.requests[-1].body)["messages"] if m["role"] == "user"]
    assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_a_failure_is_one_line_and_the_object_still_printed(folder: Path) -> None:
    script = [ScriptedReply(fault=Fault(status=401, message="bad key"))] * 5
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "x", "--json", *flags(server)], folder)
    row = json.loads(out)
    assert (code, row["end_reason"], bool(row["error"])) == (1, "failed", True)
    assert err.startswith("error: ") and "Traceback" not in err


def test_a_turn_that_ends_at_its_step_limit_exits_with_1(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(PracticeCall("read_file", '{"path": "a"}'),))] * 3
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "x", "--json", "--max-steps", "2", *flags(server)], folder)
    assert (code, json.loads(out)["end_reason"], json.loads(out)["steps"]) == (1, "budget", 2)
    assert "budget" in err


@pytest.mark.fast_rows("output0")
@pytest.mark.parametrize("output", [(), ("--json",), ("--stream-json",)])
def test_an_output_that_cannot_be_written_is_one_clear_line(
    folder: Path, echo: PracticeServer, output: tuple[str, ...]
) -> None:
    command = [*WHET, "chat", "-q", "x", *output, *flags(echo)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True
        )
    line = "error: standard output can't be written: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, line)
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr


@pytest.mark.slow
def test_a_home_that_was_deleted_meanwhile_is_an_error(folder: Path, home: Path) -> None:
    with PracticeServer(script=[ScriptedReply("done", fault=Fault(stall_after=1))]) as server:
        process = start(["chat", "-q", "x", *flags(server)], folder)
        server.wait_for_stall(1)
        shutil.rmtree(home)
        server.release()
        out, err = within(process.communicate, "the one-shot's end")
    assert (process.returncode, out) == (1, b"done\n")
    assert b"state.db was deleted or replaced during the run" in err


def test_the_first_failed_attempt_is_told_without_a_terminal(folder: Path) -> None:
    script = [ScriptedReply(fault=Fault(status=503))] * 2 + [ScriptedReply("ok")]
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "x", *flags(server)], folder)
    assert (code, out) == (0, "ok\n")
    assert len(err.splitlines()) == 1 and "503" in err


@pytest.mark.parametrize("output", ["text", "--json", "--stream-json"])
def test_calls_that_nobody_could_allow_are_named_on_standard_error(folder: Path, output: str) -> None:
    script = [ScriptedReply("", tool_calls=(write("a.txt"), write("b.txt"))), ScriptedReply("done")]
    flag = [] if output == "text" else [output]
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "x", *flag, "--approvals", "ask", *flags(server)], folder)
    line = "2 calls denied, because nobody could answer: write_file a.txt; write_file b.txt (--yes allows"
    assert code == 0 and len(err.splitlines()) == 1 and line in err
    assert b"nobody" in server.requests[-1].body.lower() and not (folder / "a.txt").exists()
    if flag:
        row = json.loads(out.splitlines()[-1])
        assert line in row["notices"][0] and not row["tool_calls"][0]["ok"]


@pytest.mark.fast_rows("while text")
@pytest.mark.parametrize("goes_on", [True, False], ids=["while text comes", "while the model is silent"])
def test_a_turn_whose_reader_left_is_cancelled(folder: Path, home: Path, *, goes_on: bool) -> None:
    reply = ScriptedReply("word " * 40, pieces=40, fault=Fault(stall_after=5))
    with PracticeServer(script=[reply]) as server:
        process = start(["chat", "-q", "x", "--stream-json", *flags(server)], folder)
        try:
            server.wait_for_stall(1)
            assert process.stdout is not None and process.stderr is not None
            assert b"text_delta" in within(process.stdout.readline, "the first line")
            process.stdout.close()
            if goes_on:
                server.release()
            within(process.wait, "the one-shot's end")
            with process.stderr as errors:
                assert (process.returncode, errors.read()) == (141, b"cancelled\n")
        finally:
            process.kill()
            process.wait()
    with closing(sqlite3.connect(home / "state.db")) as database:
        assert database.execute("SELECT reason FROM turns").fetchall() == [("cancelled",)]


@pytest.mark.parametrize("flags_", [[], ["--json"], ["--stream-json"]], ids=["text", "json", "stream"])
def test_a_one_shot_ends_with_141_if_the_reader_of_both_outputs_left(folder: Path, flags_: list[str]) -> None:
    with PracticeServer(script=[ScriptedReply("word " * 20_000)]) as server:
        command = " ".join([*WHET, "chat", "-q", "x", *flags_, *flags(server)])
        shell = ["bash", "-c", f'{command} 2>&1 | true; exit "${{PIPESTATUS[0]}}"']
        assert subprocess.run(shell, cwd=folder, stdin=subprocess.DEVNULL).returncode == 141


def test_a_closed_standard_output_is_an_error_that_names_the_session(
    folder: Path, echo: PracticeServer
) -> None:
    command = " ".join([*WHET, "chat", "-q", "x", *flags(echo), ">&-"])
    done = subprocess.run(
        command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    error, hint = done.stderr.splitlines()
    assert (done.returncode, error) == (1, "error: standard output can't be written: Bad file descriptor")
    assert run(["sessions", "show", hint.rpartition(" ")[2]], folder)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected_code", "message"),
    [
        (["--json", "--stream-json"], 2, "exclude"),
        (["--session", "x", "--continue"], 2, "exclude"),
        (["--approvals", "maybe"], 2, "approvals"),
        (["--max-steps", "0"], 2, "max-steps"),
        (["--no-such-flag"], 2, "no-such-flag"),
        (["--session", "nope"], 1, "nope"),
        (["--continue"], 1, "no session"),
        (["--image", "missing.png"], 1, "missing.png"),
        (["--workspace", "/no/such/folder"], 1, "/no/such/folder"),
    ],
)
def test_wrong_usage_and_what_is_not_there_are_named_before_the_model_is_asked(
    folder: Path, echo: PracticeServer, arguments: list[str], expected_code: int, message: str
) -> None:
    code, out, err = run(["chat", "-q", "x", *arguments, *flags(echo)], folder)
    assert (code, out, echo.count) == (expected_code, "", 0)
    assert err.startswith("error: ") and message in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_ends_the_turn_durably_and_its_processes(
    folder: Path, number: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_SANDBOX_MODE", "off")  # the test reads process ids, which a jail has of its own
    os.mkfifo(folder / "ready")
    command = "echo $$ > pid; sleep 60 & echo $! > child; echo up > ready; wait"
    script = [
        ScriptedReply("", tool_calls=(PracticeCall("terminal", json.dumps({"command": command})),)),
        ScriptedReply("went on"),
    ]
    with PracticeServer(script=script) as server:
        process = start(["chat", "-q", "x", "--json", "--yes", *flags(server)], folder)
        assert within((folder / "ready").read_text, "the command's word on its pipe") == "up\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == expected
        assert json.loads(out)["end_reason"] == "cancelled"
        assert "cancelled" in err.decode()
        assert not any(is_alive(int((folder / name).read_text())) for name in ("pid", "child"))
        again = run(["chat", "-q", "on", "--json", "--continue", "--yes", *flags(server)], folder)
    assert json.loads(again[1])["text"] == "went on"


@pytest.mark.slow
def test_after_a_kill_new_words_come_before_the_old_calls(folder: Path) -> None:
    os.mkfifo(folder / "ready")
    commands = ["echo first >> marks; echo up > ready; sleep 60", "echo drop >> marks", "echo push >> marks"]
    asked = tuple(PracticeCall("terminal", json.dumps({"command": command})) for command in commands)
    with PracticeServer(script=[ScriptedReply("", tool_calls=asked), ScriptedReply("stopped")]) as server:
        process = start(["chat", "-q", "go", "--yes", *flags(server)], folder)
        assert within((folder / "ready").read_text, "the command's word on its pipe") == "up\n"
        process.kill()
        process.communicate(timeout=60)
        again = run(["chat", "-c", "-q", "Stop! Do nothing more", "--yes", *flags(server)], folder)
        sent = server.requests[-1].body
    assert again[1] == "stopped\n"
    assert (folder / "marks").read_text() == "first\n"
    assert b"Stop! Do nothing more" in sent and b"a new message arrived first" in sent


def test_what_a_server_refuses_is_left_out_and_said_without_a_terminal(folder: Path) -> None:
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"BAD" * 9)
    refused = ScriptedReply(fault=Fault(status=400, message="Invalid image"), when="image_url")
    script = [refused, refused, ScriptedReply("seen"), ScriptedReply("more")]
    with PracticeServer(script=script) as server:
        code, out, err = run(["chat", "-q", "look", "--image", "bad.png", *flags(server)], folder)
        assert (code, out) == (0, "seen\n")
        assert "1 picture left out from now on: the model's server refused it" in err
        assert run(["chat", "-c", "-q", "more", *flags(server)], folder)[1] == "more\n"
        assert b"so it is left out" in server.requests[-1].body


@pytest.mark.slow
def test_at_a_terminal_the_answer_streams_and_a_person_is_asked(folder: Path) -> None:
    script = [ScriptedReply("Writing.", tool_calls=(write("a.txt"),)), ScriptedReply("Finished.", pieces=4)]
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", "-q", "x", "--approvals", "ask", *flags(server)], folder) as tty,
    ):
        tty.wait_for("Enter alone is no:")
        tty.type("o\n", "write_file", "Finished.", "2 steps")
        assert tty.wait_for_end() == 0
    assert (folder / "a.txt").exists()


@pytest.mark.slow
def test_a_question_loads_compiles_and_starts_only_what_it_uses(folder: Path, echo: PracticeServer) -> None:
    probe = (
        "import re._compiler as compiler, sys, threading\n"
        "from whet.cli.main import main\n"
        "compiled, inner = [], compiler.compile\n"
        "def note(text, flags=0):\n"
        "    compiled.append(sys._getframe(3).f_globals['__name__'])\n"
        "    return inner(text, flags)\n"
        "compiler.compile = note\n"
        "threads, start = [], threading.Thread.start\n"
        "threading.Thread.start = lambda thread: (threads.append(thread.name), start(thread))\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    unused = {'dataclasses', 'encodings.idna', 'secrets', 'whet.app.learning.reviews', 'rich',"
        " 'whet.approval.gate', 'whet.rewind.recordings', 'prompt_toolkit', 'uvicorn', 'starlette', 'yaml',"
        " 'whet.review.correction'}\n"
        "    own = [name for name in compiled if name.startswith('whet')]\n"
        "    print(*(unused & set(sys.modules)), len(own) <= 15 or own, 'store-read_0' in threads)"
    )
    command = [sys.executable, "-c", probe, "chat", "-q", "hi", *flags(echo)]
    program = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=folder)
    assert (program.stdout.splitlines()[-1], program.stderr) == ("True False", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "is_kept"),
    [
        ("WHET_REWIND_RECORD", "true", False),
        ("WHET_REWIND_RECORD", "false", True),
        ("WHET_REWIND_MAX_FILES", "3", True),
    ],
)
def test_a_command_deletes_unasked_only_what_a_rewind_brings_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, is_kept: bool
) -> None:
    ENGINES[2].engine()
    (folder / "src").mkdir()
    for name in "abcd":
        (folder / "src" / name).touch()
    monkeypatch.setenv(variable, value)
    rm = ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command": "rm -rf src"}'),))
    with PracticeServer(script=[rm, ScriptedReply("done")]) as server:
        code, _, err = run(["chat", "-q", "clean up", *flags(server)], folder)
    assert code == 0, err
    assert (folder / "src").exists() == is_kept
    assert ("/rewind can't bring back" in server.requests[-1].body.decode()) == is_kept


@pytest.mark.slow
def test_edits_that_a_helper_left_unmerged_are_named_on_standard_error(tmp_path: Path) -> None:
    git = "git -c user.name=n -c user.email=n@localhost"
    subprocess.run(f"git init -q && {git} commit -q --allow-empty -m a", shell=True, cwd=tmp_path, check=True)
    task = helper(steps([shell("echo new > new.txt")]), worktree=True, background=True)
    with PracticeServer(responder=mind) as server:
        code, out, err = run(["chat", *flags(server), "-q", steps([task], answer="Done.")], tmp_path)
    assert code == 0 and out, err
    assert not (tmp_path / "new.txt").exists()
    [line] = [line for line in err.splitlines() if line.startswith("helper-1's edits are not merged")]
    folder = line.split(" but in ")[1].partition(". To merge them: ")[0]
    assert (Path(folder) / "new.txt").read_text() == "new\n"
    assert line.endswith('-q "process wait helper-1"')
