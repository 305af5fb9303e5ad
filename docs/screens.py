"""Take the captures of docs/screens.md: the program at a terminal of 80 and of 40 columns.

    .venv/bin/python docs/screens.py

It needs tmux. A shell in tmux runs `whet` of this checkout in the demo's small project, with a home of its
own and the practice model, a scripted stand-in. Somebody types; the screen is captured when it shows what it
is to show. Written otherwise than shown is only the home's path, as /home/ada.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "screens.md"
ROWS = 110
sys.path.insert(0, str(ROOT / "src"))

from record import Terminal  # noqa: E402 - beside this file

from whet.practice.project import make_project  # noqa: E402 - from the checkout

HEAD = """\
# Screens

Captures of a real terminal (tmux) of 80 and of 40 columns, taken by `docs/screens.py`; colours are not in
them. The project and the answers are those of the [practice model](practice.md): a scripted stand-in, not a
language model. What the signs and keys mean is in [chat](chat.md); [the web page](dashboard.md) has pictures.
"""
REST = r"\d s\n+›"  # the line that ends a turn, and the prompt below it


class Scene(NamedTuple):
    """A part of the page. `steps`: what is typed, or pressed where it is in angle brackets, and what the
    screen shows after it; a step that begins with = is not shown: it only leads there."""

    title: str
    about: str
    steps: tuple[tuple[str, str], ...]


CHAT = ("=whet chat --model practice", r"Ctrl-D quits|Esc stops")
AWAY = ("=<C-d>", r"\$$")
SCENES = (
    Scene(
        "First run",
        "No model is set: what was found, the question, the choice.",
        (("whet", r"Use it\?"), ("<Enter>", r"Ctrl-D quits"), AWAY),
    ),
    Scene(
        "A turn",
        "A failure with the line that tells why, the page that helps, the second try, what was done.",
        (CHAT, ("run the tests", "FAILED(.*\n)*.*" + REST), AWAY),
    ),
    Scene(
        "An edit before it happens",
        "What would change, and the keys that answer.",
        (
            CHAT,
            (
                "replace int(cents * (100 - percent) / 100) with (cents * (100 - percent) + 50) // 100 in "
                "orders/price.py",
                r"\[o\]nce",
            ),
        ),
    ),
    Scene("After a yes", "The edit with its diff, and what was done.", (("<o>", REST), AWAY)),
    Scene(
        "While a command runs",
        "Its seconds and its last lines, what was typed meanwhile, the status line.",
        (CHAT, ("run `echo one; echo two; sleep 60`", r"│ two"), ("read docs/testing.md", "queued")),
    ),
    Scene(
        "Esc",
        "The command is stopped and named; what was queued is in the input again.",
        (("<Escape>", "cancelled"), ("=<C-u>", "›"), AWAY),
    ),
    Scene(
        "Something dangerous",
        "Why it is dangerous; no lasting yes; after the no, the model is told so.",
        (CHAT, ("clean up the build output", r"\[N\]o"), ("<n>", REST), AWAY),
    ),
    Scene(
        "A call whole",
        "Ctrl-O shows the last call with all that it gave.",
        (CHAT, ("=read docs/testing.md", REST), ("<C-o>", r"of 1\)(.*\n)*.*ORDERS_DB"), AWAY),
    ),
    Scene(
        "Your own command",
        "`!` runs here; the model hears of it with the next message.",
        (CHAT, ("!ls docs", r"testing\.md"), AWAY),
    ),
    Scene(
        "Plan mode",
        "Shift-Tab cycles ask, plan and auto; a plan is shown before anything is changed.",
        (
            CHAT,
            ("=<BTab>", "plan"),
            ("run `rm -rf build`", r"Carry this plan out\?"),
            ("=<Escape>", "still planning"),
            AWAY,
        ),
    ),
    Scene(
        "Back to an earlier message",
        "Esc Esc; Enter takes back files and conversation.",
        (
            CHAT,
            ("=read docs/testing.md", REST),
            ("=run `echo more >> README.md`", REST),
            ("<Escape Escape>", "Go back to"),
            ("=<Escape>", "›"),
            AWAY,
        ),
    ),
    Scene(
        "Forks",
        "A session of its own from here, and the tree that it belongs to.",
        (
            CHAT,
            ("=read docs/testing.md", REST),
            ("/fork", "this is a copy now"),
            ("/tree", "to narrow"),
            ("=<Escape>", "›"),
            AWAY,
        ),
    ),
    Scene(
        "What was spent, and how full the window is",
        "`#` is used, `|` is where the engine compacts.",
        (CHAT, ("=read docs/testing.md", REST), ("/cost", "cost"), ("/context", "cache hit"), AWAY),
    ),
    Scene(
        "`/help`",
        "Narrow terminals leave out what may follow a name.",
        (CHAT, ("/help", "your editor|step"), AWAY),
    ),
    Scene(
        "A one-shot",
        "The question and the sum are on standard error, the answer on standard output.",
        (("whet chat -q 'run the tests'", r"\d s\n(.*\n)*\$$"),),
    ),
    Scene(
        "`sessions list`",
        "Columns leave from the right as the terminal narrows; a fork stands below its origin.",
        (("whet sessions list -n 6", r"\$$"),),
    ),
    Scene(
        "`sessions search`",
        "Session, day, who said it, title; below it the place.",
        (("whet sessions search -n 2 discount", r"\$$"),),
    ),
    Scene(
        "`doctor`",
        "One line each; what is wrong has a line that mends it.",
        (("whet doctor", r"fine|\d problem"),),
    ),
    Scene(
        "Errors",
        "One line that says what, one that says what to do.",
        (("whet config set approval.mode sometimes", "hint"), ("whet chat --session nonesuch", "shows them")),
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
        """Play a scene and give what the screen showed after its last shown step."""
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
    """Play every scene at both widths and write the page."""
    if shutil.which("tmux") is None:
        raise SystemExit("error: tmux is not installed\nhint: the captures are of a terminal in tmux")
    taken: dict[int, list[str]] = {}
    for columns in (80, 40):
        with tempfile.TemporaryDirectory(prefix="w", ignore_cleanup_errors=True) as folder:
            stage = Stage(Path(folder), columns)
            taken[columns] = []
            try:
                for scene in SCENES:
                    if not scene.steps[0][0].startswith("<"):  # a key goes on where the last scene ended
                        stage.clear()
                    taken[columns].append(stage.take(scene))
            finally:
                stage.close()
    parts = [HEAD]
    for number, scene in enumerate(SCENES):
        both = "\n\n".join(f"{columns} columns:\n\n```text\n{taken[columns][number]}```" for columns in taken)
        parts.append(f"## {scene.title}\n\n{scene.about}\n\n{both}\n")
    PAGE.write_text("\n".join(parts))
    sys.stdout.write(f"{PAGE}: {len(SCENES)} screens\n")


if __name__ == "__main__":
    main()
