"""What a person does on the first day, through the command line, with the practice model as the model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.stories.program import (
    Program,
    assert_calls_answered_once,
    assert_requests_are_sound,
    does,
    said,
    use,
)
from tests.support import wait_until
from whet_lab.practice.script import Fault, ScriptedReply, rate_limit_reply, server_error
from whet_lab.practice.server import PracticeServer
from whet_lab.practice.strict import Options

USAGE = [
    *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost_usd"),
    *("estimated_tokens", "cache_hit_ratio"),
]
KEYS = [
    *("session_id", "conversation_id", "text", "end_reason", "steps", "tool_calls"),
    *("usage", "notices", "review", "duration_s", "receipt"),
]


@pytest.fixture
def server():
    with PracticeServer() as server:
        yield server
        assert_requests_are_sound(server)


@pytest.fixture
def program(tmp_path, server):
    return Program(tmp_path, server)


def test_a_first_run_without_a_key_and_without_a_terminal_says_in_one_line_what_to_set(tmp_path):
    program = Program(tmp_path)
    as_json, as_text = program.ask("hi"), program.run("chat", "-q", "hi")
    for done in (as_json, as_text):
        done.assert_error("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "model.provider")
    assert as_text.out == "" and as_json.row["end_reason"] == "failed"
    done = program.ask("hi", OPENAI_API_KEY="sk-first-day-0123456789")
    done.assert_error("OPENAI_API_KEY is set", "whet config set model.provider openai")
    assert "sk-first-day-0123456789" not in done.err


def test_what_the_error_says_to_set_is_enough(program, server):
    server.install([ScriptedReply("hello")])
    for key, value in (("provider", "practice"), ("base_url", server.base_url), ("model", "practice")):
        assert program.run("config", "set", f"model.{key}", value).code == 0
    done = program.run("chat", "-q", "hi")
    assert (done.code, done.out, done.err) == (0, "hello\n", "")


def test_the_installed_program_does_real_work_in_a_folder(program, server):
    (program.work / "notes.txt").write_text("apples 3\npears 4\n")
    server.install(
        [
            does(use("read_file", path="notes.txt"), text="Reading."),
            does(use("patch", path="notes.txt", old_string="pears 4", new_string="pears 5")),
            does(use("terminal", command="awk '{n += $2} END {print n}' notes.txt")),
            ScriptedReply("There are 8."),
        ]
    )
    command = [sys.executable, "-m", "whet", "chat", "-q", "Add a pear and count.", "--yes", *program.flags]
    done = subprocess.run(command, cwd=program.work, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "There are 8.\n", "")
    assert (program.work / "notes.txt").read_text() == "apples 3\npears 5\n"
    assert [text for role, text in said(server.requests[-1]) if role == "tool"][2].startswith("8")
    assert_calls_answered_once(server.requests[-1])


def test_json_is_one_object_with_exactly_the_promised_keys(program, server):
    server.install([does(use("read_file", path="x"), use("todo")), ScriptedReply("done")])
    done = program.ask("go")
    row = done.row
    assert list(row) == KEYS
    assert list(row["usage"]) == USAGE
    assert row["usage"]["total_tokens"] == row["usage"]["prompt_tokens"] + row["usage"]["completion_tokens"]
    assert [list(call) for call in row["tool_calls"]] == [["name", "ok", "duration_s"]] * 2
    assert list(row["review"]) == ["queued", "news"]
    assert (row["text"], row["end_reason"], row["steps"], done.err) == ("done", "answered", 2, "")


def test_stream_json_is_a_line_per_event_and_ends_with_the_same_object(program, server):
    server.install([does(use("read_file", path="x"), text="hm"), ScriptedReply("all done", pieces=3)])
    done = program.ask("go", "--stream-json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows[-1]["type"] == "result" and list(rows[-1])[1:] == KEYS
    kinds = [row["type"] for row in rows]
    assert kinds.index("tool_started") < kinds.index("tool_finished") < kinds.index("turn_end")
    assert "".join(row["text"] for row in rows if row["type"] == "text_delta") == "hmall done"


def test_what_is_piped_in_is_context_for_the_question(program, server):
    server.install([ScriptedReply("a disk")])
    done = program.ask("What is full?", given="ERROR: disk sda1 full — 100 %\n".encode())
    asked = said(server.requests[-1])[0][1]
    assert done.row["text"] == "a disk"
    assert "What is full?" in asked and "ERROR: disk sda1 full — 100 %" in asked
    done = program.ask("What is it?", given=b"\x89PNG\r\n\x1a\n\0\0\0\0binary")
    done.assert_error("binary")


def test_a_conversation_goes_on_over_many_runs_with_one_growing_prefix(program, server):
    server.install([ScriptedReply(f"answer {n}") for n in range(4)])
    rows = [program.ask("question 0").row]
    rows += [program.ask(f"question {n}", "--continue").row for n in range(1, 4)]
    assert len({row["session_id"] for row in rows}) == 1
    spoken = [text.split("\n")[0] for _, text in said(server.requests[-1])]
    assert spoken == [f"{who} {n}" for n in range(4) for who in ("question", "answer")][:-1]
    assert rows[-1]["usage"]["cache_read_tokens"] > 0.9 * rows[-2]["usage"]["prompt_tokens"]


def test_an_earlier_session_is_found_by_what_was_said_in_it_and_a_private_one_is_not(program, server):
    server.install([ScriptedReply("The heron is grey.")] * 2 + [ScriptedReply("ok")])
    open_ = program.ask("What colour is a heron?").row["session_id"]
    hidden = program.ask("Keep the heron secret", "--private").row["session_id"]
    found = program.run("sessions", "search", "heron", "--json")
    assert found.code == 0
    assert open_ in found.out and hidden not in found.out
    server.install([does(use("session_search", query="heron")), ScriptedReply("It was grey.")])
    program.ask("What did we say of the bird?")
    told = next(text for role, text in said(server.requests[-1]) if role == "tool")
    assert "grey" in told and "secret" not in told


def test_a_dangerous_action_that_nobody_can_allow_is_denied_and_the_model_is_told_the_truth(program, server):
    (program.work / "keep.txt").write_text("kept")
    server.install(
        [
            does(use("terminal", command="rm -rf ~ ./*"), use("write_file", path="new.txt", content="x")),
            ScriptedReply("I was not allowed to."),
        ]
    )
    done = program.ask("clean up", "--approvals", "ask")
    assert [call["ok"] for call in done.row["tool_calls"]] == [False, False]
    texts = [text for role, text in said(server.requests[-1]) if role == "tool"]
    assert all("nobody" in text.lower() for text in texts), texts
    assert (program.work / "keep.txt").read_text() == "kept"
    assert not (program.work / "new.txt").exists()


def test_even_yes_does_not_allow_what_can_not_be_undone(program, server):
    (program.work / "keep.txt").write_text("kept")
    server.install([does(use("terminal", command="rm -rf ~")), ScriptedReply("no")])
    assert [call["ok"] for call in program.ask("clean up").row["tool_calls"]] == [False]
    assert (program.work / "keep.txt").exists()


def test_two_delegated_tasks_run_at_the_same_time_in_sessions_of_their_own(program, server):
    first, second = "look at the left half", "look at the right half"
    # Each helper waits for a file that the other one makes, so that only two at once can end.
    wait = "touch {0}; for i in $(seq 200); do [ -e {1} ] && break; sleep 0.05; done; ls {1}"
    both = does(use("delegate_task", task=first), use("delegate_task", task=second), text="Both.")
    # Helpers ask with their own task as the first message; the parent's reply comes first of all.
    left, right = server_replies(first, second, wait)
    server.install(
        [
            ScriptedReply("Left and right are fine.", when="helper session"),
            ScriptedReply("the left is fine", when="did left"),
            ScriptedReply("the right is fine", when="did right"),
            both_when(both, "split the work"),
            left,
            right,
        ]
    )
    done = program.ask("split the work", "--yes")
    assert (done.code, done.row["text"]) == (0, "Left and right are fine."), done
    texts = [text for role, text in said(server.requests[-1]) if role == "tool"]
    assert ["the left is fine" in texts[0], "the right is fine" in texts[1]] == [True, True]
    assert_calls_answered_once(server.requests[-1])
    tools = [{tool["function"]["name"] for tool in request.json_body["tools"]} for request in server.requests]
    assert "delegate_task" in tools[0] and "delegate_task" not in tools[1]
    assert len(program.sessions()) == 1, "helpers are not among a person's sessions"


def server_replies(first: str, second: str, wait: str) -> tuple[ScriptedReply, ScriptedReply]:
    left = does(use("terminal", "l1", command=wait.format("l", "r") + "; echo did le''ft"))
    right = does(use("terminal", "r1", command=wait.format("r", "l") + "; echo did ri''ght"))
    return both_when(left, first), both_when(right, second)


def both_when(reply: ScriptedReply, when: str) -> ScriptedReply:
    return ScriptedReply(reply.text, tool_calls=reply.tool_calls, when=when)


def test_a_delegated_task_that_fails_says_so_and_the_parent_goes_on(program, server):
    server.install(
        [
            ScriptedReply("The helper failed.", when="helper session"),
            both_when(does(use("delegate_task", task="walk the dog")), "have it walked"),
            ScriptedReply("", fault=Fault(status=400, message="no dogs"), when="walk the dog"),
        ]
    )
    done = program.ask("have it walked")
    assert (done.code, done.row["text"]) == (0, "The helper failed.")
    told = next(text for role, text in said(server.requests[-1]) if role == "tool")
    assert "no dogs" in told and "failed" in told


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["chat_completions", "anthropic_messages", "responses"])
def test_every_wire_format_does_the_same_work_and_goes_on_after_a_crash(tmp_path, server, wire, monkeypatch):
    monkeypatch.setenv("WHET_SANDBOX_MODE", "off")  # its command kills the program, which a confined can't
    program = Program(tmp_path, server, wire=wire)
    server.install(
        [
            does(
                use("write_file", path="a.txt", content="ein\n"),
                use("read_file", path="missing"),
                text="Zuerst.",
            ),
            ScriptedReply("", reasoning="Hm, let me see.", tool_calls=(use("read_file", path="a.txt"),)),
            ScriptedReply("Fertig: ein — 日本語 🙂", pieces=6, fault=Fault(split_utf8=True)),
        ]
    )
    done = program.ask("Schreib ein")
    assert (done.code, done.row["text"], done.row["steps"], done.err) == (0, "Fertig: ein — 日本語 🙂", 3, "")
    assert [call["ok"] for call in done.row["tool_calls"]] == [True, False, True]
    command = "touch began; sleep 60"
    server.install([does(use("terminal", command=command)), ScriptedReply("Da bin ich wieder.")])
    running = program.start_asking("weiter", "--continue")
    wait_until((program.work / "began").exists)
    os.kill(running.pid, signal.SIGKILL)
    running.done()
    done = program.ask("und?", "--continue")
    assert (done.code, done.row["text"]) == (0, "Da bin ich wieder."), done
    assert b"unknown" in server.requests[-1].body
    assert (program.work / "a.txt").read_text() == "ein\n"


def test_a_fallback_model_takes_over_and_the_person_is_told(program, server):
    server.install([ScriptedReply("from the second")])
    near = {"PROVIDER": "near", "BASE_URL": server.base_url, "MODEL": "practice"}
    with PracticeServer(script=[server_error(503, "down for repair")] * 3) as broken:
        done = program.start(
            *["chat", "-q", "hi", "--stream-json", "--provider", "far", "--base-url", broken.base_url],
            *["--model", "practice"],
            environ={f"WHET_FALLBACK_{name}": value for name, value in near.items()},
        ).done()
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, rows[-1]["text"]) == (0, "from the second"), done
    assert any("practice" in row.get("text", "") for row in rows if row["type"] == "notice")


def test_a_key_that_fails_is_rotated_out_and_no_key_is_ever_shown(tmp_path):
    good = "sk-good-0123456789abcdef"
    script = [ScriptedReply("hello"), rate_limit_reply()]
    with PracticeServer(script=script, options=Options(api_key=good)) as server:
        program = Program(tmp_path)
        flags = ["--provider", "far", "--base-url", server.base_url, "--model", "practice"]
        keys = {"BAD_KEY": "sk-bad-0123456789abcdef", "GOOD_KEY": good}
        done = program.start(
            *["chat", "-q", "hi", "--stream-json", *flags, "--api-key-env", "BAD_KEY,GOOD_KEY"], environ=keys
        ).done()
        assert done.code == 0, done
        assert json.loads(done.out.splitlines()[-1])["text"] == "hello"
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == [f"Bearer {keys['BAD_KEY']}", f"Bearer {good}"]
        assert "notice" in done.out
        assert_requests_are_sound(server, refused=True)
    for secret in keys.values():
        assert secret not in done.out + done.err
        files = [path for path in program.home.rglob("*") if path.is_file()]
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_the_default_tools_fit_the_promised_budget(program, server):
    for toolsets, limit in (((), 4_000), (("--toolsets", "file,terminal"), 1_500)):
        server.install([ScriptedReply("hello")])
        program.ask("hi", *toolsets)
        body = server.requests[-1].json_body
        rows = [row for row in body["messages"] if row["role"] == "system"]
        size = len(json.dumps([rows, body["tools"]], ensure_ascii=False, separators=(",", ":")))
        assert size / 4 <= limit, f"{size / 4:.0f} tokens"
