"""A window that becomes narrower and wider: one frame stays, and no finished text is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import WHET, Tty, flags, terminal
from tests.stories.test_screen import Screen
from tests.support import each
from whet.terminal.reflow import has_reflow
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


def make_editor(folder: Path) -> Path:
    """Write an editor that keeps the terminal until Enter."""
    editor = folder / "editor"
    editor.write_text("#!/bin/sh\necho in the editor\nread line\n")
    editor.chmod(0o700)
    return editor


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
def test_a_window_of_another_width_has_one_frame_and_all_the_text(tmp_path):
    with PracticeServer() as server:
        screen = Screen(tmp_path, [*WHET, "chat", *flags(server)])
        try:
            screen.wait(lambda text: "Ctrl-D" in text, "the chat")
            screen.tell("send-keys", "-l", "hello there")
            screen.tell("send-keys", "Enter")
            screen.wait(lambda text: "1 step" in text, "the answer")
            screen.tell("send-keys", "-l", f"half a message {'that is long ' * 4}")
            for columns in (80, 60, 40, 120, 50, 140, 30):
                screen.tell("resize-window", "-x", str(columns), "-y", "300")
                rule = "─" * (columns - 1)
                screen.wait(lambda text, rule=rule: text.split("\n").count(rule) == 2, rule)  # type: ignore[misc]
                assert [row for row in screen.look().split("\n") if set(row) == {"─"}] == [rule] * 2
                text = screen.tell("capture-pane", "-p", "-S", "-")
                assert "hello there" in text and "1 step" in text
        finally:
            screen.close()


@pytest.mark.slow
def test_nothing_is_drawn_over_an_editor_whose_window_changes(tmp_path):
    editor = make_editor(tmp_path)
    environ = {"EDITOR": str(editor)}
    with PracticeServer() as server, Tty(["chat", *flags(server)], tmp_path, environ=environ) as tty:
        tty.wait_for("Ctrl-D")
        tty.type("\x07", "in the editor")
        tty.count_later_bytes(0.2)
        tty.resize(50)
        assert tty.count_later_bytes(0.7) == 0
        tty.type("\r", "─" * 49)


@each(
    ("environ", "version", "expected"),
    [
        ({"TERM": "xterm-256color"}, "", True),
        ({"TERM": "xterm-kitty"}, "kitty(0.36)", True),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/t", "STY": "1.a"}, "tmux 3.5", True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t"}, "", True),
        ({"TERM": "xterm-256color"}, "XTerm(390)", False),
        ({"TERM": "screen", "STY": "1.a"}, "", False),
        ({"TERM": "linux"}, "", False),
        ({"TERM": "putty-256color"}, "", False),
    ],
)
def test_terminals_that_cut_rows_gain_none(environ, version, expected):
    assert has_reflow(environ, version) is expected


@pytest.mark.slow
def test_an_answer_waits_until_the_editor_of_the_input_has_ended(tmp_path):
    editor = make_editor(tmp_path)
    script = [ScriptedReply(tool_calls=(terminal("sleep 1.5"),)), ScriptedReply("Here it is, at last.")]
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", "--yes", *flags(server)], tmp_path, environ={"EDITOR": str(editor)}) as tty,
    ):
        tty.wait_for("Ctrl-D")
        tty.type("go\r", "sleep 1.5")
        tty.type("\x07", "in the editor")
        assert tty.count_later_bytes(2.5) == 0
        tty.type("\r", "at last", "2 steps")
