"""Thirty keys and screens in a real terminal (tmux): what is pressed, and what the screen shows after it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cli.running import WHET, flags
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = [
    pytest.mark.soak,
    pytest.mark.unconfined,
    pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here"),
]
EDIT = {"path": "a.txt", "content": "one\ntwo\n"}


def call(name: str, arguments: Mapping[str, object]) -> tuple[PracticeCall, ...]:
    return (PracticeCall(name, json.dumps(arguments)),)


SCRIPT = [
    ScriptedReply("Hello **there**."),
    ScriptedReply("I write it.", tool_calls=call("write_file", EDIT)),
    ScriptedReply("Written."),
    ScriptedReply(tool_calls=call("search_files", {"pattern": "tw.", "path": "."})),
    ScriptedReply(tool_calls=call("terminal", {"command": "echo out; false"})),
    ScriptedReply("It failed."),
    ScriptedReply(tool_calls=call("terminal", {"command": "echo up; sleep 99"})),
    ScriptedReply("Long " * 30, pieces=30, fault=Fault(stall_after=6)),
    ScriptedReply("After the stop."),
    ScriptedReply(tool_calls=call("terminal", {"command": "rm -rf a.txt"})),
    ScriptedReply("You said no."),
    ScriptedReply("I saw your listing."),
    ScriptedReply("In the fork."),
]
# What is pressed (tmux's names; a text in angle brackets is typed), and what then comes to the screen that
# was not there before; what begins with › is the input line.
STORY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("", ("Esc stops a turn", "ask · practice-echo")),
    ("<hi> Enter", (r"Hello there\.", "1 step")),
    ("Up", ("› hi",)),
    ("C-c", ("›",)),
    ("</hel> Tab", ("› /help ?",)),
    ("C-u", ("›",)),
    ("</cost> Enter", ("tokens",)),
    ("<write it> Enter", (r"\+two", r"1  Yes, once")),
    ("o", (r"● write_file +a\.txt +\+2 −0", r"Written\.", "2 steps")),
    ("C-o", ("content: one",)),
    ("BTab", ("mode plan",)),
    ("BTab", ("mode auto",)),
    ("<find it> Enter", (r"search_files +tw\.", "echo out; false +exit 1", r"It failed\.", "3 steps")),
    ("</calls> Enter", ("/calls N",)),
    ("<run long> Enter", ("│ up",)),
    ("Escape", ("cancelled", "sleep 99 +stopped")),
    ("</copy> Enter", ("copied 10 characters",)),  # of the last answer, before the turn that was stopped
    ("<ramble> Enter", ("Long Long",)),
    ("C-c", ("cancelled",)),
    ("<and now> Enter", (r"After the stop\.",)),
    ("BTab", ("mode ask",)),
    ("<clear up> Enter", (r"rm -rf a\.txt", r"No: it does not run")),
    ("n", ("denied", "you said no", r"You said no\.")),
    ("<!ls> Enter", (r"a\.txt",)),
    ("<what was that> Enter", (r"I saw your listing\.",)),
    ("<@a> Tab", (r"› @a\.txt ?",)),
    ("C-u", ("›",)),
    ("</title Night shift> Enter", ("^Night shift",)),
    ("</fork> Enter", ("this is a copy now",)),
    ("<go on> Enter", (r"In the fork\.",)),
    ("</copy> Enter", ("copied 12 characters",)),
    ("</sessions> Enter", (r"Night shift \(from turn",)),
    ("</tree> Enter", ("Go on in which one", r"└ Night shift \(from turn", "Esc leaves")),
    ("Down", ("of its own after turn",)),
    ("Up", (r"^ +8 turns ·",)),
    ("Enter", (r"I saw your listing\.",)),
    ("</undo> Enter", ("taken back: what was that",)),
    ("</quit> Enter", ("ended with 0",)),
)


class Screen:
    """A tmux of its own with one window."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._tmux = ("tmux", "-L", f"whet-{os.getpid()}", "-f", "/dev/null")
        shell = 'cd "$0"; "$@"; echo "ended with $?"; read line'
        environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        words = ["new-session", "-d", "-x", "100", "-y", "300", "bash", "-c", shell, str(folder), *command]
        subprocess.run([*self._tmux, *words], env=environ, check=True, timeout=30)

    def tell(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout

    def press(self, keys: str, shown: Sequence[str]) -> None:
        typed, _, key = keys.partition("> ") if keys.startswith("<") else ("", "", keys)
        before = self.look()
        if typed:
            self.tell("send-keys", "-l", typed[1:])
            self.wait(lambda now: _input(now).endswith(typed[1:]), typed)
            before = self.look()
        if key:
            self.tell("send-keys", key)
        for one in shown:
            self.wait(lambda now, one=one: _has_come(one, before if key else "", now), one)  # type: ignore[misc]

    def look(self) -> str:
        return "\n".join(line.rstrip() for line in self.tell("capture-pane", "-p").split("\n")).rstrip()

    def wait(self, is_there: Callable[[str], bool], what: str) -> None:
        until = time.monotonic() + 60
        while not is_there(now := self.look()):
            assert time.monotonic() < until, f"never {what!r}:\n{now}"
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=30)


def _has_come(pattern: str, before: str, now: str) -> bool:
    if pattern.startswith("›"):
        return re.fullmatch(pattern, _input(now)) is not None
    count = [len(re.findall(pattern, screen, re.MULTILINE)) for screen in (before, now)]
    return count[1] > count[0]


def _input(screen: str) -> str:
    """Give the input line: the last one with the prompt's sign."""
    return next((line for line in reversed(screen.split("\n")) if line.startswith("›")), "").rstrip()


def test_thirty_keys_and_what_the_screen_shows_after_each(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    with PracticeServer(script=SCRIPT) as server:
        screen = Screen(folder, [*WHET, "chat", *flags(server)])
        try:
            for keys, shown in STORY:
                screen.press(keys, shown)
        finally:
            screen.close()
    assert (folder / "a.txt").read_text() == "one\ntwo\n"
    assert len(STORY) > 30
