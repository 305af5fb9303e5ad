"""Runs the real program: as a process with pipes, or at a terminal of its own."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests import forked
from whet.cli.group import whet
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

WHET = [sys.executable, "-m", "whet"]
_QUESTIONS = ("Type a number", "Type your answer", "Type yes or no")
_READING_S = 0.6


def flags(server: PracticeServer, model: str = "practice-echo") -> list[str]:
    return ["--provider", "practice", "--base-url", server.base_url, "--model", model]


def start(arguments: Sequence[str], folder: Path, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*WHET, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    )


def run(arguments: Sequence[str], folder: Path, given: bytes | None = None) -> tuple[int, str, str]:
    """Run `whet` to its end; gives exit code, standard output and standard error."""
    done = forked.run(arguments, folder, given)
    return done.code, done.out, done.err


def invoke(*words: str, width: int = 80, env: Mapping[str, str] | None = None, **more: Any) -> Result:
    """Run a command in this process, on the test's home; its error is the result's `exception`."""
    return CliRunner().invoke(whet, words, env={"COLUMNS": str(width), **(env or {})}, **more)


class Tty:
    """`whet` at a terminal: what it prints is gathered, what is typed is sent. `under` starts it; `drawn` is
    all that came, with its colours."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        columns: int = 80,
        environ: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self.seen = ""
        self.drawn = ""
        self.code: int | None = None
        self._asked_s = float("-inf")
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            settings = {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | dict(environ or {})
            command = [*under, *WHET, *arguments]
            os.execvpe(command[0], command, {**os.environ, **settings})
        self.resize(columns)

    def resize(self, columns: int, rows: int = 30) -> None:
        """Change the terminal's size."""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str, *shown: str) -> None:
        """Type `text`, where return is \\r, and wait until each of `shown` was printed, in their order. A
        question on the screen is read first, as by a person: faster keys answer nothing."""
        while (left_s := self._asked_s + _READING_S - time.monotonic()) > 0 and self.read(left_s, ends=True):
            pass
        data = text.encode()
        while data:
            self.read(0.0)
            data = data[os.write(self.fd, data[:1000]) :]
        self.wait_for(*shown)

    def wait_for(self, *texts: str, timeout_s: float = 60.0) -> str:
        """Read until each of `texts` was printed, in their order, after the last wait; gives what was printed
        up to the last of them."""
        printed = ""
        for text in texts:
            deadline = time.monotonic() + timeout_s
            while text not in bare(self.seen):
                if time.monotonic() > deadline or not self.read(0.2, ends=True):
                    raise AssertionError(f"{text!r} did not come; there is:\n{bare(self.seen)[-3000:]}")
            before, _, self.seen = bare(self.seen).partition(text)
            printed += before + text
        return printed

    def wait_drawn(self, sequence: str, times: int = 1, timeout_s: float = 60.0) -> None:
        """Read until a control sequence came so often."""
        deadline = time.monotonic() + timeout_s
        while self.drawn.count(sequence) < times:
            assert time.monotonic() < deadline and self.read(0.2, ends=True), repr(self.drawn[-500:])

    def count_later_bytes(self, wait_s: float) -> int:
        """Return how much is drawn in that time without a key."""
        before = len(self.drawn)
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > 0:
            self.read(left_s)
        return len(self.drawn) - before

    def wait_for_end(self, timeout_s: float = 60.0) -> int:
        deadline = time.monotonic() + timeout_s
        while self.code is None and time.monotonic() < deadline:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        assert self.code is not None, f"it did not end; there is:\n{bare(self.seen)[-3000:]}"
        return self.code

    def leave(self, keys: str) -> int:
        """Type what ends the program, and return its exit code."""
        self.type(keys)
        return self.wait_for_end()

    def close(self) -> None:
        """End the program whatever it does."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def __enter__(self) -> Tty:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, wait_s: float, *, ends: bool = False) -> bool:
        if not select.select([self.fd], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.fd, 65_536)
        except OSError:
            return not ends
        text = self._decode(data)
        self.seen += text
        self.drawn += text
        recent = self.drawn[-len(text) - max(map(len, _QUESTIONS)) :]
        if any(question in recent for question in _QUESTIONS):
            self._asked_s = time.monotonic()
        return True


@contextmanager
def chatting(
    folder: Path, script: list[ScriptedReply] | None, *options: str, **screen: Any
) -> Iterator[tuple[PracticeServer, Tty]]:
    """A server that answers by a script, or says what it was told, and a chat that waits for a message."""
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", *options, *flags(server)], folder, **screen) as tty,
    ):
        tty.wait_for("Ctrl-D")
        yield server, tty


def terminal(command: str) -> PracticeCall:
    return PracticeCall("terminal", json.dumps({"command": command}))


def bare(text: str) -> str:
    """Give `text` without escape sequences."""
    return re.sub(r"\x1b(?:\[[0-9;?<>]*[a-zA-Z]|\][^\x07]*\x07|[=>()][0-9A-B]?)", "", text).replace("\r", "")
