"""The chat at a real terminal: typed at, looked at, interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.cli.running import Tty, bare, chatting, flags, run, start, terminal
from tests.plugins.rig import write
from whet.contract.brought_text import drop_marks
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "term"), [(80, "xterm-256color"), (40, "xterm"), (80, "dumb")])
def test_a_day_at_the_terminal(folder: Path, columns: int, term: str) -> None:
    """First screen, a turn with an approval, a refusal, a command, and out again."""
    script = [
        ScriptedReply(
            "# Plan\n\nI *write* it.",
            tool_calls=(PracticeCall("write_file", '{"path": "a.txt", "content": "x"}'),),
        ),
        ScriptedReply("Removing.", tool_calls=(terminal("rm -rf a.txt"),)),
        ScriptedReply("Done, **mostly**.", pieces=3),
    ]
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", *flags(server)], folder, columns=columns, environ={"TERM": term}) as tty,
    ):
        first = tty.wait_for("Ctrl-D")
        first = first[first.index("whet ·") :].strip()
        assert len(first.split("\n")) <= (6 if columns > 40 else 7)
        assert "practice-echo" in first
        assert "stand-in" in first
        tty.type("do it\r", "I write it.", "a.txt", "is no:")
        tty.type("o\r", "write_file", "rm -rf a.txt", "is no:")
        tty.type("\r", "denied", "Done, mostly.", "3 steps")
        tty.type("/titel\r", "did you mean /title?")
        tty.type("/title\r", "do it")
        assert tty.leave("/quit\r") == 0
    assert (folder / "a.txt").read_text() == "x"
    if term == "dumb":  # it shows itself what is typed
        assert bare(tty.drawn).count("/titel") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"),
    [("/undo", "taken back: write it"), ("/retry", "Fresh."), ("/rewind 1", "you had said: write it")],
)
def test_a_turn_that_a_kill_cut_off_can_be_taken_back(folder: Path, command: str, shown: str) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("touch made"),)), ScriptedReply("Fresh.")]
    with PracticeServer(script=script) as server:
        with Tty(["chat", *flags(server)], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("write it\r", "is no:")
            os.kill(tty.pid, signal.SIGKILL)
            tty.wait_for_end()
        with Tty(["chat", "--continue", *flags(server)], folder) as tty:
            tty.wait_for("The last turn was cut off.")
            tty.type(f"{command}\r", shown)
    assert not (folder / "made").exists()


@pytest.mark.slow
def test_a_message_that_was_shown_as_queued_outlives_a_kill(folder: Path) -> None:
    script = [
        ScriptedReply("", tool_calls=(terminal("echo up; sleep 60"), terminal("touch made"))),
        ScriptedReply("I see."),
    ]
    with PracticeServer(script=script) as server:
        with Tty(["chat", "--yes", *flags(server)], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("go\r", "│ up")
            tty.type("left zebra\r", "queued: left zebra")
            os.kill(tty.pid, signal.SIGKILL)
            tty.wait_for_end()
        with Tty(["chat", "--yes", "--continue", *flags(server)], folder) as tty:
            tty.wait_for("1 message not read yet", "left zebra")
            tty.type("new words\r", "I see.")
            tty.leave("/quit\r")
        messages = json.loads(server.requests[-1].body)["messages"]
    texts = [str(message["content"]) for message in messages if message["role"] == "user"]
    assert [text.split("\n")[0] for text in texts[-3:]] == ["go", "left zebra", "new words"]
    assert not (folder / "made").exists()


@pytest.mark.slow
def test_a_plan_is_approved_by_its_number_where_nothing_can_be_drawn(folder: Path) -> None:
    write = PracticeCall("write_file", '{"path": "a.txt", "content": "x"}')
    script = [ScriptedReply("1. Write it."), ScriptedReply(tool_calls=(write,)), ScriptedReply("Written.")]
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", "--approvals", "plan", *flags(server)], folder, environ={"TERM": "dumb"}) as tty,
    ):
        tty.wait_for("approvals plan", "Ctrl-D")
        tty.type("plan it\r", "Enter none: ")
        tty.type("2\r", "mode auto", "Written.")
        assert tty.leave("/quit\r") == 0
    assert (folder / "a.txt").read_text() == "x"


@pytest.mark.slow
def test_ctrl_c_stops_the_turn_and_not_the_program(folder: Path) -> None:
    script = [
        ScriptedReply("", tool_calls=(terminal("echo up; sleep 60"),)),
        ScriptedReply("words " * 50, pieces=50, fault=Fault(stall_after=5)),
        ScriptedReply("Still here."),
    ]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "up")
        tty.type("\x03", "cancelled")
        tty.type("again\r", "words")
        tty.type("\x03", "cancelled")
        tty.type("and now\r", "Still here.", "1 step")
        tty.type("\x03", "quits")
        assert tty.leave("\x03") == 0


@pytest.mark.slow
def test_ctrl_z_gives_the_shell_back_until_fg(folder: Path) -> None:
    shell = ["bash", "-c", 'set -m; "$@"; echo "shell has it"; read line; fg; echo "ended with $?"', "bash"]
    with chatting(folder, [ScriptedReply("Back.")], under=shell) as (server, tty):
        tty.type("half\x1a", "shell has it")
        tty.type("on\n", "half")
        tty.type(" typed\r", "Back.", "1 step")
        tty.type("\x04", "ended with 0")
        assert tty.wait_for_end() == 0
        (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
    assert user["content"].startswith("half typed\n")


@pytest.mark.slow
def test_what_was_typed_before_is_searched_and_never_sent_by_it(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("One."), ScriptedReply("Two.")]) as (server, tty):
        tty.type("first question\r", "1 step")
        tty.type("\x12", "I-search")
        tty.type("\x03\x12quest\r again\r", "Two.", "1 step")
        assert tty.leave("\x04") == 0
        users = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
    assert [m["content"].split("\n")[0] for m in users] == ["first question", "first question again"]


@pytest.mark.slow
def test_colours_that_come_as_keys_are_no_bug(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("Seen.")]) as (_, tty):
        tty.type("a \x1b[31mred\x1b[0m word\r")
        assert "Unhandled" not in tty.wait_for("Seen.")


@pytest.mark.slow
def test_a_session_that_is_opened_shows_its_last_exchange_without_a_colour(folder: Path) -> None:
    script = [ScriptedReply("An **old** answer."), ScriptedReply("The **last** answer.")]
    with PracticeServer(script=script) as server:
        for text in ("an old question", "the last question"):
            more = ["-c"] if text.startswith("the") else []
            assert run(["chat", *more, "-q", text, *flags(server)], folder)[0] == 0
        with Tty(["chat", "-c", *flags(server)], folder, environ={"NO_COLOR": "1"}) as tty:
            tty.wait_for("Ctrl-D")
            for text in ("4 messages", "› the last question", "The last answer."):
                assert "old answer" not in tty.wait_for(text)
            tty.type("/help\r", "your editor")
            assert tty.leave("\x04") == 0
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:[34][0-8]|9[0-7]|10[0-7])(?:;\d+)*m", tty.drawn)
    assert not colours, "NO_COLOR was set"


@pytest.mark.slow
def test_what_is_typed_during_a_turn_steers_it(folder: Path) -> None:
    script = [
        ScriptedReply("", tool_calls=(terminal("echo up; read line < go"),)),
        ScriptedReply("Turned left."),
    ]
    os.mkfifo(folder / "go")
    with chatting(folder, script, "--yes") as (server, tty):
        tty.type("go\r", "up")
        tty.type("turn left\r", "queued: turn left")
        (folder / "go").write_text("now\n")
        tty.wait_for("Turned left.")
        assert tty.leave("\x04") == 0
        users = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
    assert [m["content"].split("\n")[0] for m in users] == ["go", "turn left"]


@pytest.mark.slow
def test_commands_typed_during_a_turn_run_at_its_end(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("echo up; read line < go"),)), ScriptedReply("Done.")]
    os.mkfifo(folder / "go")
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "up")
        tty.type("/undo\r", "queued: /undo")
        tty.type("/undo 7\r")  # this one fails, and the next one runs
        tty.wait_for("queued: /undo 7")
        tty.type("!echo mine\r", "queued: !echo mine")
        (folder / "go").write_text("now\n")
        tty.wait_for("Done.", "taken back: go", "mine")
        assert tty.leave("\x04") == 0


@pytest.mark.slow
def test_commands_that_wait_come_back_into_the_input_when_the_turn_is_stopped(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("echo up; read line < go"),))]
    os.mkfifo(folder / "go")
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "up")
        tty.type("/undo\r", "queued: /undo")
        tty.type("\x03", "› /undo")
        assert tty.leave("\x03\x04") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "shown", "sent"),
    [
        ("\x7f x\r", "› see  x", "see  x"),
        ("\x17x\r", "› see x", "see x"),
        ("\x1b[D\x1b[3~x\r", "› see x", "see x"),
        ("\x1b[Dx\r", "› see x[pasted 30 lines]", "see x<pasted>PASTE</pasted>"),
        (
            " [pasted 30 lines]\r",
            "[pasted 30 lines] [pasted 30 lines]",
            "see <pasted>PASTE</pasted> [pasted 30 lines]",
        ),
        ("\x17\x19\x19\r", "[pasted 30 lines][pasted", "see <pasted>PASTE</pasted><pasted>PASTE</pasted>"),
        (" now\\\rnext line\r", "[pasted 30 lines] now", "see <pasted>PASTE</pasted> now\nnext line"),
    ],
)
def test_a_placeholder_is_one_character_and_typed_text_is_none(
    folder: Path, keys: str, shown: str, sent: str
) -> None:
    """Backspace, Ctrl-W and Delete remove it whole, nothing is typed inside it, and Ctrl-Y inserts it."""
    text = "\r".join(f"line {number}" for number in range(30))
    with chatting(folder, [ScriptedReply("Got it.")]) as (server, tty):
        tty.type(f"see \x1b[200~{text}\x1b[201~", "see [pasted 30 lines]")
        tty.type(keys, shown, "Got it.")
        (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
        tty.leave("\x04")
    assert drop_marks(user["content"]).split("\n\n[")[0] == sent.replace("PASTE", text.replace("\r", "\n"))


@pytest.mark.slow
def test_a_paste_comes_back_from_the_history_and_is_edited_in_an_editor(folder: Path) -> None:
    """The editor saves other line ends and a byte that is not UTF-8."""
    editor = folder / "editor"
    change = "s/line 7$/caf\\xe9/; s/$/\\r/; $s/\\r$/ edited/"
    editor.write_text(f"#!/bin/sh\nLC_ALL=C sed -i '{change}' \"$1\"\n")
    editor.chmod(0o700)
    text = "\r".join(f"line {number}" for number in range(30))
    script = [ScriptedReply("One."), ScriptedReply("Two.")]
    with chatting(folder, script, environ={"VISUAL": str(editor)}) as (server, tty):
        tty.type(f"see \x1b[200~{text}\x1b[201~", "see [pasted 30 lines]")
        tty.type("\r", "One.")
        tty.type("\x1b[A", "see [pasted 30 lines]")
        tty.type("\x07", "edited")
        tty.type("\r", "Two.")
        users = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
        tty.leave("\x04")
    pasted = text.replace("\r", "\n").replace("line 7", "café")
    assert drop_marks(users[-1]["content"]).startswith(f"see <pasted>{pasted}</pasted> edited")


@pytest.mark.slow
def test_a_paste_that_never_ends_becomes_text_and_leaves_the_keys(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("Got it.")]) as (server, tty):
        tty.type("\x1b[200~first line\rsecond line", "second line")
        assert not server.requests
        tty.type("\r", "Got it.")
        (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
        assert tty.leave("\x04") == 0
    assert "first line\nsecond line" in user["content"]


@pytest.mark.slow
def test_a_turn_that_was_killed_is_offered_again(folder: Path) -> None:
    call = PracticeCall("read_file", '{"path": "a"}')
    script = [
        ScriptedReply("", tool_calls=(call,)),
        ScriptedReply("never", fault=Fault(stall_after=-1)),
        ScriptedReply("Back again."),
    ]
    with PracticeServer(script=script) as server:
        process = start(["chat", "-q", "begin", *flags(server)], folder)
        server.wait_for_stall()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        with Tty(["chat", "--continue", *flags(server)], folder) as tty:
            tty.wait_for("cut off")
            tty.type("/resume\r", "Back again.")
            tty.resize(40)
            tty.type("/usage\r", "prompt")
            assert tty.leave("\x04") == 0
    code, out, _ = run(["sessions", "list", "--json"], folder)
    assert code == 0
    assert len(json.loads(out)) >= 1


@pytest.mark.slow
def test_sigterm_ends_the_chat_and_its_turn(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("echo up; sleep 60"),))]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "up")
        os.kill(tty.pid, signal.SIGTERM)
        assert tty.wait_for_end() == 143


@pytest.mark.slow
def test_an_empty_session_leaves_nothing_behind(folder: Path) -> None:
    with chatting(folder, None) as (server, tty):
        assert tty.leave("\x04") == 0
        code, _, err = run(["chat", "--continue", "-q", "x", *flags(server)], folder)
    assert code == 1
    assert "no session" in err


@pytest.mark.slow
def test_words_that_a_command_does_not_take_change_nothing_and_end_nothing(folder: Path) -> None:
    huge = "9" * 5_000
    with chatting(folder, [ScriptedReply("Here I am.")], columns=100) as (_, tty):
        tty.type("hello\r", "1 step")
        for typed, text in (
            ("/undo 3", "only the last turn is taken back"),
            ("/retry 3", "only the last turn is taken back"),
            ("/diff ²", "is not a turn"),
            ("/fork 99999999999999999999", "is not a turn"),
            ("/receipt 999999999999999", "changed, ran and sent nothing"),
            ("/inbox accept 99999999999999999999", "/inbox knows no"),
            ("/goal x --steps ٣", "--steps takes a number"),
            ("/jobs 99999999999999999999", "no background process"),
            ("/sessions שלום 🎉", "there is no such session"),
        ):
            tty.type(f"{typed}\r", text)
        tty.type(f"/calls \x1b[200~{huge}\x1b[201~\r", "no call was made yet")
        tty.type("/usage\r", "output")
        assert tty.leave("/quit\r") == 0


@pytest.mark.slow
def test_a_plugin_hears_of_a_command_before_it_runs(folder: Path, home: Path) -> None:
    code = """
        def register(ctx):
            def typed(surface, command, alias_used, args_raw, session_key, platform, **facts):
                heard = f"{surface} {command} {alias_used} {args_raw} {platform} {bool(session_key)}"
                (ctx.home / "heard").write_text(heard)
            ctx.register_hook("pre_command", typed)
    """
    write(home, "watch", code)
    (home / "config.yaml").write_text("plugins:\n  enabled: [watch]\n")
    with chatting(folder, None) as (_, tty):
        tty.type("/clear my own\r", "new session")
        assert (home / "heard").read_text() == "cli new clear my own cli True"


def _answered_rows(screen: str) -> list[str]:
    """Return the rows from the first call to the summary of the turn, without empty ones."""
    screen = re.sub(r"no sandbox:[^●]*?only\s+their\s+text", "", screen.replace("\r", ""))
    rows = [row.rstrip() for row in screen.split("\n") if row.strip()]
    first = next(number for number, row in enumerate(rows) if row.startswith("● write_file"))
    last = next(number for number, row in enumerate(rows[first:], first) if "3 steps" in row)
    return [re.sub(r" · .*|\d+\.\d s", "", row) for row in rows[first : last + 1]]


@pytest.mark.slow
def test_a_turn_looks_the_same_while_it_runs_when_it_is_opened_and_when_it_is_shown(folder: Path) -> None:
    write = PracticeCall("write_file", '{"path": "a.txt", "content": "one\\ntwo\\n"}')
    script = [
        ScriptedReply("I write **it**.", tool_calls=(write,)),
        ScriptedReply("", tool_calls=(terminal("echo out; exit 3"),)),
        ScriptedReply("- Done."),
    ]
    screens: list[str] = []
    with PracticeServer(script=script) as server:
        for arguments in (["chat", "--yes"], ["chat", "-c"]):
            with Tty([*arguments, *flags(server)], folder, environ={"TERM": "dumb"}) as tty:
                tty.wait_for("Ctrl-D")
                if not screens:
                    tty.type("write it\r")
                screens.append(tty.wait_for("3 steps"))
                assert tty.leave("/quit\r") == 0
    code, shown, _ = run(["sessions", "show", "write it"], folder)
    assert code == 0
    live, opened, listed = (_answered_rows(screen) for screen in (*screens, shown))
    assert "    1 | +one" in live and any("exit 3" in row for row in live)
    assert opened == live
    assert listed == [row.replace(" • ", "- ") for row in live], "no terminal: Markdown stays as it is"


@pytest.mark.slow
def test_a_chat_whose_session_was_deleted_meanwhile_keeps_the_message_and_opens_another(folder: Path) -> None:
    script = [ScriptedReply(f"Answer {number}.") for number in range(4)]
    with chatting(folder, script) as (server, tty):
        assert run(["chat", "-q", "other", *flags(server)], folder)[0] == 0
        tty.type("first\r", "Answer 1.")
        rows = json.loads(run(["sessions", "list", "--json"], folder)[1])["sessions"]
        (session_id,) = [row["id"] for row in rows if row["title"] == "first"]
        # The answer is shown before the turn has ended, and until then the session is in use.
        deadline_s = time.monotonic() + 30
        while run(["sessions", "delete", session_id, "--yes"], folder)[0] != 0:
            assert time.monotonic() < deadline_s
        tty.type("second words\r", "there is no session", "second words")
        tty.type("\x03")
        tty.type("/resume\r", "Open a session")
        tty.type("\x1b", "/resume ID opens one")
        tty.type("/new\r", "new session")
        tty.type("third\r", "Answer 2.")
        assert tty.leave("\x04") == 0
