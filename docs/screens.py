"""Take the captures of docs/screens.md: the program at a terminal of 80 columns.

    .venv/bin/python docs/screens.py

It needs tmux. A shell in tmux runs `whet` of this checkout in the demo's small project, with a home of its
own and the practice model, a scripted stand-in. The script types, and captures the screen when it shows what
the scene is about. Only three things are changed: the home's path becomes /home/ada, the lines with which a
chat begins are shown in the first scene alone, and a scene may show only the end of its screen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "screens.md"
ROWS = 110
sys.path.insert(0, str(ROOT / "src"))

from record import Terminal  # noqa: E402 - beside this file

from whet_lab.practice.project import make_project  # noqa: E402 - from the checkout

HEAD = """\
# Screens

Captures of a real terminal, 80 columns wide, without colours, taken by `docs/screens.py`. Project and answers
are those of the [practice model](practice.md): a scripted stand-in, not a language model. [Chat](chat.md)
explains the signs and keys, [questions](questions.md) the cards.
"""
REST = r"\d s\n+─+\n›"  # the line that ends a turn, and the prompt below it


class Scene(NamedTuple):
    """A part of the page. Each of `steps` is the text to type, or keys in angle brackets, and a pattern that
    the screen then matches; the screen after a step that begins with = is not captured. What is above the
    line that begins with `first_words` is left out."""

    title: str
    about: str
    steps: tuple[tuple[str, str], ...]
    first_words: str = ""


CHAT = ("=whet chat --model practice", r"Ctrl-D quits|Esc stops")
AWAY = ("=<C-d>", r"\$$")
SCENES = (
    Scene(
        "First run",
        "No model is set: Whet lists what it found and asks.",
        (("whet", r"Use it\?"), ("<Enter>", r"Ctrl-D quits"), AWAY),
    ),
    Scene(
        "A turn",
        "A command fails; the agent reads the page that the error names and tries again.",
        (CHAT, ("run the tests", "FAILED(.*\n)*.*" + REST), AWAY),
    ),
    Scene(
        "While a command runs",
        "Its running time and last lines, and a message that was typed meanwhile. "
        "Esc stops the command and puts the message back into the input.",
        (
            CHAT,
            ("run `echo one; echo two; sleep 60`", r"│ two"),
            ("read docs/testing.md", "queued"),
            ("=<Escape>", "cancelled"),
            ("=<C-u>", "›"),
            AWAY,
        ),
    ),
    Scene(
        "Plan mode",
        "Shift-Tab cycles through ask, plan and auto. In plan mode you approve a plan first.",
        (
            CHAT,
            ("=<BTab>", "plan"),
            ("run `rm -rf build`", r"Carry this plan out\?"),
            ("=<Escape>", "still planning"),
            AWAY,
        ),
        first_words="Carry this plan out?",
    ),
    Scene(
        "Back to an earlier message",
        "Press Esc twice; Enter takes back files and conversation.",
        (
            CHAT,
            ("=read docs/testing.md", REST),
            ("=run `echo more >> README.md`", REST),
            ("<Escape Escape>", "Go back to"),
            ("=<Escape>", "›"),
            AWAY,
        ),
    ),
)


class Stage:
    """A shell of some columns in a home of its own, with the project beside it."""

    def __init__(self, folder: Path, columns: int) -> None:
        self._home = folder / "ada"
        orders = self._home / "orders"
        orders.mkdir(parents=True)
        make_project(orders)
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=orders, check=True, timeout=30)
        environ = {
            "HOME": str(self._home),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PS1": "$ ",
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(folder),
        }
        self._terminal = Terminal(orders, environ, columns, ROWS)
        self.wait(r"\$$", "")

    def take(self, scene: Scene) -> str:
        """Play a scene and return the screen after its last captured step."""
        shown = ""
        for what, pattern in scene.steps:
            step = what.removeprefix("=")
            before = self.look()
            if step.startswith("<"):
                for key in step[1:-1].split():
                    self._terminal.press(key)
                    self._terminal.rest(0.15)  # two at once would be one key with Alt
            else:
                self._terminal.type(step)
            self.wait(pattern, before)
            if step == what:
                self._terminal.rest(0.3)
                shown = self.look()
        return shown

    def look(self) -> str:
        """Give the screen as text."""
        return self._terminal.look().rstrip().replace(str(self._home), "/home/ada") + "\n"

    def wait(self, pattern: str, before: str) -> None:
        """Wait until the screen has changed and shows something that fits."""
        until = time.monotonic() + 90
        while True:
            now = self.look()
            lines = now.rstrip("\n").split("\n")
            known = before.rstrip("\n").split("\n")
            while known and lines and known[0] == lines[0]:
                del known[0], lines[0]
            if (
                re.search(pattern, "\n".join(lines) + ("" if pattern.endswith("$") else "\n"))
                and now != before
            ):
                return
            if time.monotonic() > until:
                raise SystemExit(f"the screen never showed {pattern!r}:\n{now}")
            time.sleep(0.05)

    def clear(self) -> None:
        """Begin with an empty screen."""
        self._terminal.type("clear")
        while self.look().strip() != "$":
            self._terminal.rest(0.1)

    def close(self) -> None:
        """End the shell."""
        self._terminal.close()


def main() -> None:
    """Play the scenes and write the page."""
    if shutil.which("tmux") is None:
        raise SystemExit("error: tmux is not installed\nhint: the captures are of a terminal in tmux")
    texts = play_scenes(SCENES, 80)
    parts = [HEAD]
    for scene in SCENES:
        parts.append(f"## {scene.title}\n\n{scene.about}\n\n```text\n{texts[scene.title]}```\n")
    PAGE.write_text("\n".join(parts))
    sys.stdout.write(f"{PAGE}: {len(SCENES)} screens\n")


def play_scenes(scenes: Sequence[Scene], columns: int) -> dict[str, str]:
    """Play scenes in one terminal; return the captured text of each by its title."""
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="w", ignore_cleanup_errors=True) as folder:
        stage = Stage(Path(folder), columns)
        try:
            for scene in scenes:
                if not scene.steps[0][0].startswith("<"):  # a key continues the scene before
                    stage.clear()
                text = without_greeting(stage.take(scene))
                texts[scene.title] = (
                    text[text.index(f"\n{scene.first_words}") + 1 :] if scene.first_words else text
                )
        finally:
            stage.close()
    return texts


def without_greeting(text: str) -> str:
    """Leave out the lines with which a chat begins; they end before the first message."""
    command, _, rest = text.partition("\n")
    return rest[rest.index("\n› ") + 1 :] if command.startswith("$ whet chat --model") else text


if __name__ == "__main__":
    main()
