"""The protocol for keys is switched on where the terminal answers, and off wherever another program reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.running import WHET, chatting, flags
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow
KITTY = ("\x1b[?0u", "\x1b[>1u", "\x1b[<u")
SCRIPT = [ScriptedReply("Back.")]
XTERM = ("\x1bP>|XTerm(388)\x1b\\", "\x1b[>4;1m", "\x1b[>4m")


@pytest.mark.parametrize(("reply", "on", "off"), [KITTY, XTERM])
def test_a_terminal_that_answers_gets_it_until_the_end(reply: str, on: str, off: str, tmp_path: Path) -> None:
    with chatting(tmp_path, [ScriptedReply("Back.")]) as (server, tty):
        assert "\x1b[?u" in tty.drawn and on not in tty.drawn
        tty.type(reply)
        tty.type("first\x1b[13;2usecond\r", "Back.", "1 step")
        tty.leave("\x04")
        assert tty.drawn.count(on) == tty.drawn.count(off) == 1
        assert tty.drawn.index(on) < tty.drawn.index(off)
        (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
        assert "first\nsecond" in str(user["content"])


def test_a_terminal_that_does_not_answer_is_left_alone(tmp_path: Path) -> None:
    with chatting(tmp_path, [ScriptedReply("Back.")]) as (_, tty):
        tty.type("hello\r", "1 step")
        tty.leave("\x04")
        assert not any(switch in tty.drawn for switch in (*KITTY[1:], *XTERM[1:]))


def test_it_is_off_while_the_chat_is_suspended_and_after_a_signal(tmp_path: Path) -> None:
    on, off = KITTY[1:]
    with chatting(tmp_path, [ScriptedReply("Back.")]) as (_, tty):
        tty.type(KITTY[0])
        tty.wait_drawn(on)
        tty.type("\x1b[122;5u")  # Ctrl-Z
        tty.wait_drawn(off)
        os.kill(tty.pid, signal.SIGCONT)
        tty.wait_drawn(on, 2)
        os.kill(tty.pid, signal.SIGTERM)
        tty.wait_for_end()
        assert tty.drawn.count(off) == 2


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_tmux_passes_shift_enter_on(tmp_path: Path) -> None:
    def tmux(*arguments: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def wait_for(text: str) -> None:
        until_s = time.monotonic() + 60
        while text not in (screen := tmux("capture-pane", "-p")):
            assert time.monotonic() < until_s, screen
            time.sleep(0.05)

    with PracticeServer(script=SCRIPT) as server:
        tmux("new-session", "-d", "-x", "100", "-y", "30", "-c", str(tmp_path), "sh")
        try:
            tmux("set", "-s", "extended-keys", "on")
            tmux("send-keys", " ".join([*WHET, "chat", *flags(server)]), "Enter")
            wait_for("Ctrl-D")
            tmux("send-keys", "one", "S-Enter", "two")
            wait_for("  two")
            tmux("send-keys", "Enter")
            wait_for("Back.")
            (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
            assert "one\ntwo" in str(user["content"])
        finally:
            tmux("kill-server")
