"""Modes, the person's own commands, background jobs, unfolding: at a real terminal."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from tests.cli.running import Tty, bare, chatting, flags, run, terminal
from whet.app.git_branch import read_branch
from whet.cli.interactive.status import StatusFacts, status_line
from whet.config.schema import UiSettings
from whet.contract.brought_text import drop_marks
from whet.terminal.blocks import MarkdownBlock
from whet.terminal.pasted_text import dropped_images
from whet.terminal.plan import plan_rows
from whet.terminal.prompt import FileFinder, InputCompleter, PasteParser, rank
from whet.terminal.render import Painter
from whet.terminal.wording import count_columns
from whet.tools.todo import TodoItem
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

WRITE = PracticeCall("write_file", '{"path": "a.txt", "content": "x"}')


def said(server: PracticeServer, at: int = -1) -> list[str]:
    messages = json.loads(server.requests[at].body)["messages"]
    return [str(message["content"]) for message in messages if message["role"] == "user"]


@pytest.mark.slow
def test_a_plan_is_made_by_reading_only_and_carried_out_after_a_yes(folder: Path) -> None:
    script = [
        ScriptedReply("", tool_calls=(WRITE,)),
        ScriptedReply("1. Write a.txt."),
        ScriptedReply("", tool_calls=(WRITE,)),
        ScriptedReply("Written."),
    ]
    with chatting(folder, script, "--yes") as (server, tty):
        tty.type("\x1b[Z", "mode ask")
        tty.type("\x1b[Z", "mode plan")
        tty.type("write a.txt\r", "denied", "Carry this plan out?")
        assert not (folder / "a.txt").exists()
        tty.wait_for("Esc the last")
        assert "2. Go ahead in mode auto" in bare(tty.drawn)
        tty.type("2\r", "mode auto", "Written.")
        assert tty.leave("\x04") == 0
    assert (folder / "a.txt").read_text() == "x"
    assert "[Plan mode: only read" in said(server, 0)[-1]
    assert "The plan is approved" in said(server)[-1]
    assert "[Plan mode" not in said(server)[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("term", "shown"), [("xterm", "Esc the last"), ("dumb", "Enter none: ")])
def test_words_at_a_plan_go_to_the_model_and_carry_nothing_out(folder: Path, term: str, shown: str) -> None:
    """ "change" is a word of the choice that would carry the plan out."""
    script = [ScriptedReply("1. Write a.txt."), ScriptedReply("1. Write b.txt.")]
    with chatting(folder, script, "--approvals", "plan", environ={"TERM": term}) as (server, tty):
        tty.type("plan it\r", "Carry this plan out?", shown)
        tty.type("change\r", "Write b.txt.", "Carry this plan out?", shown)
        tty.type("\r" if term == "xterm" else "stop\r", "still planning")
        assert tty.leave("/quit\r") == 0
    assert len(server.requests) == 2 and said(server)[-1].startswith("change")
    assert "The plan is approved" not in said(server)[-1]


@pytest.mark.slow
def test_an_own_command_runs_unasked_and_the_model_hears_of_it(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("I see.")]) as (server, tty):
        tty.type("!echo one; echo two\r", "│ two")
        tty.type("what was that\r", "I see.")
        assert tty.leave("\x04") == 0
    assert len(server.requests) == 1
    assert drop_marks(said(server)[-1]).startswith(
        "what was that\n\nI ran this here myself:\n<pasted>$ echo one; echo two\none\ntwo</pasted>"
    )


@pytest.mark.slow
def test_a_command_goes_into_the_background_and_leaving_asks(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("echo up; sleep 60"),)), ScriptedReply("Going on.")]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "│ up")
        tty.type("\x02", "Going on.", "2 steps")
        tty.type("\x0f", "runs on as p1")
        tty.type("/quit\r", "still running in the background", "sleep 60")
        tty.type("/jobs stop 1\r", "stopped p1")
        assert tty.leave("/quit\r") == 0


@pytest.mark.slow
def test_going_back_says_of_each_message_whether_files_go_back_with_it(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(WRITE,)), ScriptedReply("Written."), ScriptedReply("Nothing.")]
    with chatting(folder, script, "--yes", columns=100) as (_, tty):
        for text in ("write it\r", "now rest\r"):
            tty.type(text, "step")
        tty.type("\x1b\x1b", "before this message. No recorded file has changed since.")
        tty.type("\x1b[B", "before this message. Files go back, too.")
        tty.type("\r", "restored 1 path")
        assert tty.leave("\x03\x04") == 0
    assert not (folder / "a.txt").exists()


@pytest.mark.slow
def test_esc_stops_a_turn_and_says_what_was_stopped_and_done(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(WRITE, terminal("echo up; sleep 60"))), ScriptedReply("Again.")]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("go\r", "│ up")
        tty.type("\x1b")
        stopped = tty.wait_for("a.txt +1 −0")
        assert "✗ terminal  echo up; sleep 60  stopped" in stopped
        assert "1 call done" in stopped
        tty.type("\x1b")
        tty.type("\x1b", "Go back to before which message?", "Esc leaves")
        tty.type("\r", "restored 1 path")
        assert tty.leave("\x03\x04") == 0
    assert not (folder / "a.txt").exists()


@pytest.mark.slow
def test_rewind_without_a_turn_lets_the_person_pick_the_message(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(WRITE,)), ScriptedReply("Done.")]
    with chatting(folder, script, "--yes") as (_, tty):
        tty.type("write it\r", "2 steps")
        tty.type("/rewind\r", "Go back to before which message?", "1  write it", "Esc leaves")
        tty.type("\x1b", "1 path changed", "/rewind TURN[.STEP]")
        tty.type("/rewind\r", "Go back to before which message?", "Esc leaves")
        tty.type("1\r", "restored 1 path")
        assert tty.leave("\x03\x04") == 0
    assert not (folder / "a.txt").exists()


@pytest.mark.slow
def test_esc_at_a_question_is_a_no(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(WRITE,)), ScriptedReply("Then not.")]
    with chatting(folder, script) as (_, tty):
        tty.type("write it\r", "nce")
        tty.type("\x1b", "you said no", "Then not.")
        assert tty.leave("\x04") == 0
    assert not (folder / "a.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        "\x1b[200~!touch begun\rfoo\x1b[201~",
        "\x1b[200~!touch begun\x1b[201~",
        "\x1b[200~# an old note\x1b[201~",
        "\x1b[200~#!/bin/bash\x1b[201~ why?",
        "\x1b[200~/title begun\rfoo\x1b[201~",
        "#42 why is this broken",
        "!touch begun\x1b\rfoo",
    ],
)
def test_only_a_typed_line_begins_a_command_or_a_note(folder: Path, keys: str) -> None:
    with chatting(folder, [ScriptedReply("I see.")]) as (server, tty):
        tty.type(f"{keys}\r", "I see.")
        assert tty.leave("\x04") == 0
    sent = re.sub("\x1b\\[20[01]~|\x1b", "", keys).replace("\r", "\n")
    assert re.sub("</?pasted>", "", drop_marks(said(server)[0])).startswith(sent)
    assert not (folder / "begun").exists()


@pytest.mark.slow
def test_a_command_gets_the_text_that_was_pasted_and_not_what_stands_for_it(folder: Path) -> None:
    with chatting(folder, [ScriptedReply("I see.")], columns=100) as (server, tty):
        tty.type("/title \x1b[200~" + "x" * 1_200 + "\x1b[201~", "pasted 1,200 characters")
        tty.type("\r", "x" * 90)
        tty.type("!cat <<E\x1b[200~" + "\nrow" * 12 + "\nE\n\x1b[201~\r", "pasted 14 lines", "● !")
        for _ in range(12):  # the person's own command is shown whole, not its last three lines
            tty.wait_for("│ row")
        tty.type("so?\r", "I see.")
        assert tty.leave("\x04") == 0
    assert "cat <<E\nrow\nrow" in said(server)[-1]


@pytest.mark.slow
def test_the_clipboards_image_goes_along(folder: Path, tmp_path: Path) -> None:
    pixels = b"\x89PNG\r\n\x1a\n" + bytes(40)
    (folder / "clip.png").write_bytes(pixels)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "xclip").write_text(f"#!/bin/sh\nexec cat {folder}/clip.png\n")
    (programs / "xclip").chmod(0o755)
    environ = {"DISPLAY": ":7", "WAYLAND_DISPLAY": "", "PATH": f"{programs}:{os.environ['PATH']}"}
    script = [ScriptedReply("A dot."), ScriptedReply("No.")]
    with chatting(folder, script, columns=120, environ=environ) as (server, tty):
        tty.type("what is this ")
        tty.type("\x16", "clipboard-1.png")
        tty.type("\r", "sent with it: clipboard-1.png, 48 B", "A dot.")
        (folder / "clip.png").write_text("no image")
        tty.type("\x16", "no image on the clipboard")
        tty.type("and @none.png?\r", "there is no image none.png", "No.")
        assert tty.leave("\x04") == 0
    first = json.loads(server.requests[0].body)["messages"][-1]["content"]
    kept = next(part["image_url"]["url"] for part in first if part["type"] == "image_url")
    assert base64.b64decode(kept.partition(",")[2]) == pixels
    assert not Path(first[0]["text"].partition("@")[2].split()[0]).exists()


@pytest.mark.slow
def test_in_vi_keys_one_esc_stops_a_turn_while_nothing_is_typed(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(terminal("echo up; sleep 60"),))]
    with chatting(folder, script, "--yes", environ={"WHET_UI_KEYS": "vi"}) as (_, tty):
        tty.type("go\r", "│ up")
        tty.type("\x1b", "sleep 60  stopped")
        assert tty.leave("\x04") == 0


async def test_the_first_at_waits_for_the_list_of_files(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "reply.py").touch()
    completer = InputCompleter(lambda: [], lambda: folder)
    asked = completer.get_completions_async(Document("see @rpl"), CompleteEvent())
    assert [completion.text async for completion in asked] == ["src/reply.py"]


FACTS = StatusFacts(
    "large-model-4", "feature/x", "~/orders", 0.42, 90_000, 0.31, "plan", "sandbox", 2, (1, 3)
)


def test_the_status_line_keeps_what_matters_where_it_is_narrow() -> None:
    parts = UiSettings().status_line
    for width in (120, 80, 40, 20):
        assert count_columns(status_line(FACTS, parts, width)) <= width
    assert status_line(FACTS, parts, 120).startswith(
        "plan · large-model-4 · feature/x · ~/orders · ▰▰▱▱▱ 42%"
    )
    assert status_line(FACTS, parts, 40) == "plan · ▰▰▱▱▱ 42% · 2 in background"
    assert status_line(FACTS, ("model",), 40) == "large-model-4"
    assert status_line(FACTS, (), 40) == ""
    assert status_line(FACTS, parts, 120, plain=True).isascii()


def test_the_branch_is_read_without_git(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "src").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/feature/a\n")
    assert read_branch(folder / "src") == "feature/a"
    (folder / ".git" / "HEAD").write_text("0123456789abcdef\n")
    assert read_branch(folder) == "01234567"


def test_a_long_plan_is_shown_around_what_is_being_done() -> None:
    items = [TodoItem(str(at), f"step {at}", "completed" if at < 7 else "pending") for at in range(12)]
    assert plan_rows(items, 40, 4) == ["☑ step 6", "☐ step 7", "☐ step 8", "… 9 more, 7 of 12 done"]
    assert len(plan_rows(items, 40, 20)) == 12


def test_a_paste_without_marks_is_one_key_and_a_typed_line_is_not() -> None:
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    text = "0123456789abcde\r" * 64
    for _ in range(56):
        parser.feed(text)
    parser.feed("end\r")
    assert keys == []
    parser.flush()
    assert [(key.key, len(key.data)) for key in keys] == [(Keys.BracketedPaste, 56 * 1024 + 4)]
    parser.feed("go\r")
    assert len(keys) == 4


def test_dropped_images_become_mentions(folder: Path) -> None:
    plain, spaced = folder / "a.png", folder / "b c.JPG"
    plain.touch()
    spaced.touch()
    assert dropped_images(f"{plain}") == f"@{plain} "
    assert dropped_images(str(spaced).replace(" ", "\\ ")) == f'@"{spaced}" '
    assert dropped_images(f"{spaced}\n") == f'@"{spaced}" '
    assert dropped_images(f"'{spaced}' {plain}") == f'@"{spaced}" @{plain} '
    assert dropped_images(f"file://{str(spaced).replace(' ', '%20')}") == f'@"{spaced}" '
    for text in (f"see {plain}", str(folder / "none.png"), "a.png", "it's a.png"):
        assert dropped_images(text) == text


def test_files_are_found_by_letters_in_order(folder: Path) -> None:
    for name in ("src/pkg/repl.py", "src/replay.txt", "docs/read.md"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    finder = FileFinder()
    finder.update(folder)
    finder.wait()
    assert finder.find("repl.py", 5) == ["src/pkg/repl.py"]
    assert finder.find("spr", 5) == ["src/pkg/repl.py"]
    assert finder.find("repl", 1) == ["src/replay.txt"]
    assert rank("docs/read.md", "xyz") is None


def test_table_cells_wrap_and_lose_nothing() -> None:
    cell = "abcdefghij" * 9
    text = f"| name | what |\n|---|---|\n| {cell} | yes |\n"
    shown = Painter({"TERM": "xterm", "NO_COLOR": "1"}).block(MarkdownBlock(text), 40)
    assert "".join(char for char in shown if char in "abcdefghij").count("abcdefghij") >= 8
    assert "…" not in shown


@pytest.mark.slow
def test_a_session_is_picked_from_a_list_and_shows_what_was_said_last(folder: Path) -> None:
    script = [ScriptedReply("Blue, I think."), ScriptedReply("Seven.")]
    with PracticeServer(script=script) as server:
        for question in ("which colour", "which number"):
            assert run(["chat", "-q", question, *flags(server)], folder)[0] == 0
        with Tty(["chat", "--resume", *flags(server)], folder, columns=60) as tty:
            tty.wait_for("of 2")
            tty.type("2", "1 of 2")
            tty.type("\x7f", "2 of 2")
            tty.type("colour", "1 of 2")
            tty.type("\r", "› which colour", "Blue, I think.")
            tty.type("# the sky is blue\r", "remembered")
            tty.type("/export a.html\r", "written to")
            tty.type("/export a.html\r", "is there already")
            tty.type("/export --format html\r", "--format is no option here")
            tty.type("/export --force a.html\r", "written to")
            (folder / "b.html").symlink_to(folder.parent / "outside.html")  # as a command may leave it
            tty.type("/export b.html\r", "links are not followed")
            assert tty.leave("\x04") == 0
    assert not (folder.parent / "outside.html").exists()
    assert (folder / "a.html").stat().st_mode & 0o777 == 0o600
    page = (folder / "a.html").read_text()
    assert "Blue, I think." in page
    assert "http" not in page
    assert "the sky is blue" in run(["memory", "show"], folder)[1]


@pytest.mark.slow
def test_ctrl_c_at_a_question_says_that_the_call_was_not_run(folder: Path) -> None:
    script = [ScriptedReply("", tool_calls=(WRITE,)), ScriptedReply("Never.")]
    with chatting(folder, script, columns=100) as (_, tty):
        tty.type("write it\r", "Enter alone is no:")
        tty.type("\x03", "✗ write_file  a.txt  not run", "cancelled after")
        tty.leave("/quit\r")
    assert not (folder / "a.txt").exists()


@pytest.mark.slow
def test_in_vi_keys_two_esc_list_the_messages_to_go_back_to(folder: Path) -> None:
    assert run(["config", "set", "ui.keys", "vi"], folder)[0] == 0
    with chatting(folder, [ScriptedReply("Here.")], columns=100) as (_, tty):
        tty.type("hello\r", "1 step")
        tty.type("\x1b\x1b", "Go back to before which message?")
        tty.type("\r", "the conversation goes on from there")
        tty.type("\x03")
        tty.leave("\x04")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "keys"),
    [("", "\x07"), ("", "\x18\x05"), ("vi", "\x1bv")],
    ids=["Ctrl-G", "Ctrl-X Ctrl-E", "v"],
)
def test_the_text_that_an_editor_saves_is_the_input(folder: Path, settings: str, keys: str) -> None:
    environ = {"EDITOR": "sed -i s/half/whole/"} | ({"WHET_UI_KEYS": settings} if settings else {})
    with chatting(folder, [ScriptedReply("Read.")], environ=environ) as (server, tty):
        tty.type("the half text", "half text")
        tty.type(keys, "whole text")
        assert not server.requests, "it was sent"
        tty.type("a, and more\r" if settings else ", and more\r", "Read.")
        assert tty.leave("\x04") == 0
        assert "the whole text" in said(server)[-1]
