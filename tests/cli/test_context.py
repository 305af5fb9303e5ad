"""The window's state and compacting by hand, from the chat and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import chatting, flags, run
from whet.cli.interactive.context_report import draw_bar, report_lines
from whet.contract.messages import Usage
from whet.contract.protocols import ContextStatus
from whet.store.compactions import CompactionSums
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer


def status(used: int = 40_000, threshold: int = 75_000, stopped: str = "") -> ContextStatus:
    return ContextStatus("compressor", "built-in", 100_000, threshold, used, True, 12, stopped)


def test_the_bar_shows_what_is_used_and_the_threshold() -> None:
    assert draw_bar(status()) == "#" * 16 + "." * 14 + "|" + "." * 9
    assert draw_bar(status(used=10**9)) == "#" * 30 + "|" + "#" * 9
    assert draw_bar(status(threshold=0)) == "#" * 16 + "." * 24
    narrow = report_lines(status(), CompactionSums(0, 0, ""), Usage(prompt_tokens=123_456), 40)
    assert narrow[0] == "[########......|....] 40% of 100k tokens" and max(map(len, narrow)) <= 40


def test_the_report_names_the_numbers_and_why_compaction_stopped() -> None:
    usage = Usage(prompt_tokens=1000, cache_read_tokens=950)
    lines = report_lines(status(stopped="nothing helped"), CompactionSums(3, 90_000, "compressor"), usage)
    text = "\n".join(lines)
    for part in ("40% of 100k", "75,000", "3 times, 90,000 tokens saved", "95.0%", "off: nothing helped"):
        assert part in text


@pytest.mark.slow
def test_engines_status_and_compact_on_the_command_line(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("Hello.")]) as server:
        for key, value in (
            ("provider", "practice"),
            ("base_url", server.base_url),
            ("model", "practice-echo"),
        ):
            assert run(["config", "set", f"model.{key}", value], tmp_path)[0] == 0
        assert run(["context", "status"], tmp_path)[2].startswith("error: there is no session yet")
        assert run(["chat", "-q", "hello"], tmp_path)[0] == 0
        code, out, _ = run(["context", "engines", "--json"], tmp_path)
        engines = json.loads(out)["engines"]
        assert code == 0 and sum(row["active"] for row in engines) == 1
        assert "none" in {row["name"] for row in engines}
        code, out, _ = run(["context", "status", "--json"], tmp_path)
        seen = json.loads(out)
        assert (code, seen["messages"], seen["compactions"]) == (0, 2, 0)
        assert 0 < seen["used_tokens"] < seen["window_tokens"]
        code, out, _ = run(["context", "status", "--session", seen["session_id"]], tmp_path)
        assert code == 0 and out.startswith(f"session {seen['session_id']} in {tmp_path}\n[")
        code, out, _ = run(["context", "compact", "the", "plan"], tmp_path)
        assert code == 0 and out.endswith(f" in {tmp_path}\nnothing to compress yet\n")
        assert server.count == 1
        assert run(["config", "set", "context.engine", "lcm"], tmp_path)[0] == 0
        _, _, err = run(["context", "engines"], tmp_path)
        assert "'lcm' is not there" in err


def test_the_status_is_told_where_no_model_is_set_any_more(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("Hello.")]) as server:
        assert run(["chat", "-q", "hello", *flags(server)], tmp_path)[0] == 0
    code, out, err = run(["context", "status", "--json"], tmp_path)
    assert (code, json.loads(out)["messages"]) == (0, 2), err


@pytest.mark.slow
def test_context_compress_new_and_resume_in_the_chat(tmp_path: Path) -> None:
    script = [ScriptedReply("One."), ScriptedReply("Two.")]
    with chatting(tmp_path, script) as (_, tty):
        tty.type("hello\r", "1 step")
        tty.type("/context\r", "cache hit")
        tty.type("/compress the plan\r", "nothing to compress yet")
        tty.type("/new\r", "new session")
        tty.type("second\r", "Two.", "1 step")
        tty.type("/resume hello\r", "2 messages")
        tty.type("/resume hello\r", "is open already")
        assert tty.leave("\x04") == 0


SUMMARY = "## 2. Goal\nTalk.\n## 4. Completed actions\n1. Talked about many things [#2]."


@pytest.mark.slow
@pytest.mark.parametrize("cancelled", [False, True])
def test_compress_leaves_the_input_free_and_ctrl_c_ends_the_wait(tmp_path: Path, cancelled: bool) -> None:
    """What is typed meanwhile waits; after Ctrl-C it is back in the input, and the work is not lost."""
    story = "a long story about the orders service and its many parts " * 40
    talk = [ScriptedReply(f"Answer {number}. " + story) for number in range(4)]
    script = [*talk, ScriptedReply(SUMMARY, fault=Fault(stall_after=0)), ScriptedReply("Heard.")]
    with chatting(tmp_path, script) as (server, tty):
        for number in range(4):
            tty.type(f"question {number}\r", "1 step")
        tty.type("/compress\r")
        server.wait_for_stall(1)
        tty.wait_for("compacting")
        tty.type("are you there\r", "queued: are you there")
        assert server.count == 5
        if cancelled:
            tty.type("\x03", "cancelled")
            tty.type("\r", "waiting for it")
        server.release()
        tty.wait_for("compressor", "Heard.", "1 step")
        assert tty.leave("\x04") == 0
