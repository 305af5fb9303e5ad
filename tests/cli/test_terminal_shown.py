"""What the terminal shows of messages and calls, what it drops of its own input, and when it rings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Tty, chatting, flags, terminal
from whet.contract.brought_text import drop_marks
from whet.terminal.bell import bell_sequence
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_a_sent_paste_is_shown_as_it_was(folder: Path) -> None:
    paste = "\n".join(f"row {number} of the log" for number in range(40))
    with PracticeServer(script=[ScriptedReply("One.")]) as server:
        with Tty(["chat", *flags(server)], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type(f"read \x1b[200~{paste}\x1b[201~\r", "1 step")
            tty.leave("/quit\r")
        with Tty(["chat", "--continue", *flags(server)], folder) as tty:
            tty.wait_for("› read [pasted 40 lines]")
            tty.type("/undo\r", "taken back: read [pasted 40 lines]")
            assert tty.leave("/quit\r") == 0
            assert "<pasted" not in tty.drawn


@pytest.mark.slow
def test_a_paste_that_goes_back_into_the_input_is_sent_as_a_paste(folder: Path) -> None:
    paste = "\n".join(f"row {number} of the log" for number in range(40))
    with chatting(folder, [ScriptedReply("One."), ScriptedReply("Two.")]) as (server, tty):
        tty.type(f"read \x1b[200~{paste}\x1b[201~\r", "1 step")
        tty.type("\x1b\x1b", "Esc leaves")
        tty.type("1\r", "you had said: read [pasted 40 lines]", "› read [pasted 40 lines]")
        tty.type("\r", "Two.")
        assert "<pasted" not in tty.drawn
        messages = json.loads(server.requests[-1].body)["messages"]
    users = [str(message["content"]) for message in messages if message["role"] == "user"]
    assert drop_marks(users[-1]).startswith(f"read <pasted>{paste}</pasted>")


@pytest.mark.slow
def test_ctrl_o_shows_every_line_of_a_call(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("seq 1 900"),)), ScriptedReply("Done.")]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "2 steps")
        tty.type("\x0f", "(1 of 1)", "q leaves")
        tty.type("/890\r")
        assert "\n600\n" not in tty.wait_for("\n899\n")
        assert tty.leave("q/quit\r") == 0


@pytest.mark.slow
def test_a_call_is_printed_whole_without_a_pager(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("seq 1 900"),)), ScriptedReply("Done.")]
    with chatting(folder, script, "--yes", environ={"PAGER": "cat"}) as (_, tty):
        tty.type("go\r", "2 steps")
        tty.type("\x0f", "(1 of 1)")
        assert "\n600\n" in tty.wait_for("\n899\n")


@pytest.mark.slow
def test_what_the_terminal_answers_late_is_not_sent(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("Seen.")]) as (server, tty):
        tty.type("al\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\pha\x1b[I\x1b[O\x1b]10;rgb:ff/ff/ff\x07\x1b[?62;4c")
        tty.type("\x1b[13;2ubeta\r", "Seen.")
        [message] = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
    assert message["content"].startswith("alpha\nbeta")


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "rings"), [("true", True), ("false", False)])
def test_the_terminal_rings_at_a_question_and_after_a_long_turn(
    folder: Path, home: Path, setting: str, rings: bool
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(f"notify:\n  questions: {setting}\n  turns_over_s: 0.001\n")
    script = [ScriptedReply("", tool_calls=(terminal("rm -rf a.txt"),)), ScriptedReply("Done.")]
    with chatting(folder, script) as (_, tty):
        tty.type("go\r", "Enter alone is no:")
        assert ("\x1b]9;Whet asks for approval: terminal: rm -rf a.txt\a\a" in tty.drawn) is rings
        tty.type("\r", "Done.", "2 steps")
        tty.leave("\x04")
        assert "\x1b]9;Whet: the turn ended (answered): Done.\a\a" in tty.drawn


def test_a_terminal_is_notified_in_its_own_way() -> None:
    assert bell_sequence("done", {"TERM": "xterm"}) == "\x1b]9;done\a\a"
    assert (
        bell_sequence("done", {"TERM": "xterm", "VTE_VERSION": "7600"}) == "\x1b]777;notify;Whet;done\x1b\\\a"
    )
    assert bell_sequence("done", {"TERM": "foot"}).startswith("\x1b]777;notify;Whet;done")
    assert bell_sequence("done", {"TERM": "linux"}) == "\a"


@pytest.mark.slow
def test_a_message_to_a_session_in_use_elsewhere_comes_back_into_the_input(folder: Path) -> None:
    never = ScriptedReply("never", fault=Fault(stall_after=-1))
    with PracticeServer(script=[never]) as server, Tty(["chat", *flags(server)], folder) as first:
        first.wait_for("Ctrl-D")
        first.type("begin\r")
        server.wait_for_stall()
        with Tty(["chat", "--continue", *flags(server)], folder) as second:
            second.wait_for("Ctrl-D")
            second.type("do not lose this\r", "is in use by process", "› do not lose this")
        server.release()


@pytest.mark.slow
def test_a_reopened_session_shows_the_calls_of_a_turn_that_was_killed(folder: Path) -> None:
    script = [
        ScriptedReply("Before."),
        ScriptedReply("", tool_calls=(terminal("echo one-of-two"),)),
        ScriptedReply("never", fault=Fault(stall_after=-1)),
    ]
    with PracticeServer(script=script) as server:
        with Tty(["chat", "--yes", *flags(server)], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("first\r", "1 step")
            tty.type("second\r")
            server.wait_for_stall()
        with Tty(["chat", "--continue", *flags(server)], folder) as tty:
            shown = tty.wait_for("cut off")
            assert "› second" in shown and "● terminal  echo one-of-two" in shown and "Before." not in shown


@pytest.mark.slow
def test_nothing_is_drawn_while_a_question_waits(folder: Path) -> None:
    script = [ScriptedReply(tool_calls=(PracticeCall("write_file", '{"path": "a", "content": "b"}'),))]
    with chatting(folder, script) as (_, tty):
        tty.type("go\r", "Enter alone is no:")
        assert any(tty.count_later_bytes(1.0) == 0 for _ in range(15))
