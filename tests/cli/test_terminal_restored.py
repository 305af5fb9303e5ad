"""However the chat ends, the terminal gets back the modes that it had: lines, paste marks, keys."""

from __future__ import annotations

import os
import re
import signal
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Tty, flags, terminal
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

_ANSWER_OF_KITTY = "\x1b[?0u"
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
STATES = ["start", "idle", "typing", "question", "command", "picker", "editor"]


def _modes(drawn: str) -> dict[str, bool]:
    """Return which modes of the terminal are on after what was drawn."""
    modes = {"cursor": True, "7": True}
    for match in re.finditer(r"\x1b\[\?([\d;]+)([hl])", drawn):
        for number in match[1].split(";"):
            modes["cursor" if number == "25" else number] = match[2] == "h"
    pushed = len(re.findall(r"\x1b\[>\d+u", drawn)) - len(re.findall(r"\x1b\[<\d*u", drawn))
    return {**modes, "kitty": pushed > 0}


def _reach(tty: Tty, state: str) -> None:
    """Bring the chat into a state."""
    if state == "start":
        return tty.wait_drawn("─")
    tty.wait_for("Ctrl-D")
    tty.type(_ANSWER_OF_KITTY)
    tty.wait_drawn("\x1b[>1u")
    if state == "typing":
        tty.type("half a message", "half a message")
    elif state == "question":
        tty.type("write\r", "Enter alone is no:")
    elif state == "command":
        tty.type("sleep\r", "sleep 77")
    elif state == "picker":
        tty.type("/theme\r", "Esc leaves")
    elif state == "editor":
        tty.type("\x07", "in the editor")


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals, state: str) -> None:
    call: Any = PracticeCall("write_file", '{"path": "a.py", "content": "1"}')
    if state == "command":
        call = terminal("sleep 77")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho in the editor\nread line\n")
    editor.chmod(0o700)
    environ = {"EDITOR": str(editor)}
    with (
        PracticeServer(script=[ScriptedReply("", tool_calls=(call,)), ScriptedReply("Done.")]) as server,
        Tty(
            ["chat", "--yes" if state == "command" else "--private", *flags(server)],
            tmp_path,
            environ=environ,
        ) as tty,
    ):
        before = termios.tcgetattr(tty.fd)
        _reach(tty, state)
        assert termios.tcgetattr(tty.fd) != before
        os.kill(tty.pid, number)
        if state == "editor":
            tty.type("it has the terminal until it ends\r")
        assert tty.wait_for_end(20) == 128 + number
        tty.read(0.2)
        after = termios.tcgetattr(tty.fd)
    assert after == before
    assert [mode for mode, is_on in _modes(tty.drawn).items() if is_on] == ["cursor", "7"]
