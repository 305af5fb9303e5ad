"""Record the README's film: from a clone to the first edited file, in a real terminal.

    make recording                     writes docs/images/first-edit.svg
    .venv/bin/python docs/record.py FILE.svg

It needs tmux, git and uv. A shell in tmux clones this checkout, installs it with `uv tool install`, and
starts the installed `whet` in a small project. Somebody types and answers; the model is the practice model,
a scripted stand-in. The screen is captured as it is shown; `docs/film.py` makes the SVG. Waiting is
shortened, never a screen. It knows nothing of how `whet` works.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from film import Frame, write_film

ROOT = Path(__file__).parents[1]
FILM = ROOT / "docs" / "images" / "first-edit.svg"
COLUMNS, ROWS = 88, 27
SPINNER_S = 0.5
_SPINNER = re.compile(r"[\u2801-\u28ff]|\b\d+(\.\d)? s\b")
PROJECT = {
    "price.py": '"""Prices, in cents."""\n\n\ndef discounted(cents: int, percent: int) -> int:\n'
    '    """Give the price after a discount, rounded."""\n    return int(cents * (100 - percent) / 100)\n',
    "test_price.py": "import unittest\n\nfrom price import discounted\n\n\nclass Price(unittest.TestCase):\n"
    "    def test_halves_go_up(self) -> None:\n        self.assertEqual(discounted(995, 10), 896)\n",
}
# What is typed, what the screen must show before the next line, and how long to leave it for reading.
INSTALL = "git clone -q whet.git whet && uv tool install -q ./whet && whet --version"
STORY: tuple[tuple[str, str, float], ...] = (
    (INSTALL, r"whet \d.*\n~ \$", 1.2),
    ("cd orders && whet", r"Use it\?", 1.6),
    ("", r"quits\n(.*\n){0,2}›", 1.2),
    ("run `python3 -m unittest -q`", r"·.* s\n+─+\n›", 2.0),
    (
        "replace int(cents * (100 - percent) / 100) with (cents * (100 - percent) + 50) // 100 in price.py",
        r"Enter alone is no",
        3.0,
    ),
    ("1", r"·.* s\n+─+\n›", 2.5),
    ("run `python3 -m unittest -q`", r"OK(.*\n)*.*·.* s\n+─*\n?›", 2.0),
    ("run `cat ~/.ssh/id_rsa`", r"Enter alone is no", 3.5),
    ("n", r"·.* s\n+─+\n›", 3.0),
)


class Terminal:
    """A shell in a tmux server of its own; keeps every screen that was shown, with its time."""

    def __init__(
        self, folder: Path, environ: dict[str, str], columns: int = COLUMNS, rows: int = ROWS
    ) -> None:
        self._tmux = ("tmux", "-L", f"whet-film-{os.getpid()}-{id(self)}", "-f", "/dev/null")
        self._rows = rows
        self.frames: list[Frame] = []
        self.phone = ""
        self._begun_s = time.monotonic()
        shell = ["bash", "--norc", "--noprofile"]
        size = ["-x", str(columns), "-y", str(rows)]
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, *shell], cwd=folder, env=environ, check=True, timeout=30
        )
        self._tell("set", "-g", "status", "off")

    def _tell(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout

    def look(self) -> str:
        """Capture the screen; gives its text without colours."""
        screen = self._tell("capture-pane", "-e", "-p", "-N")
        column, row, shown = self._tell("display", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}").split()
        cursor = (int(column), int(row)) if shown == "1" else None
        lines = tuple(carry_codes(screen.split("\n")[: self._rows]))
        frame = Frame(time.monotonic() - self._begun_s, lines, cursor, self.phone)
        if not self.frames or not _is_same(self.frames[-1], frame):
            self.frames.append(frame)
        return "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines).rstrip() + "\n"

    def type(self, text: str) -> None:
        """Type a line as a person would; a single letter answers a question and needs no Enter."""
        step = max(3, len(text) // 12)
        for start in range(0, len(text), step):
            # A semicolon at the end of an argument would end tmux's command.
            self._tell("send-keys", "-l", "--", re.sub(";$", r"\;", text[start : start + step]))
            self.look()
        if len(text) != 1:
            self.rest(0.25)
            self.press("Enter")

    def press(self, key: str) -> None:
        """Press a key, by tmux's name for it."""
        self._tell("send-keys", key)

    def wait(self, pattern: str, limit_s: float = 40) -> None:
        """Look until the screen ends with something that fits, but for a rule and a status line."""
        until = time.monotonic() + limit_s
        while not re.search(pattern + r"[^\n]*(\n[^\n]+){0,2}\s*\Z", screen := self.look()):
            if time.monotonic() > until:
                raise SystemExit(f"the screen never showed {pattern!r}:\n{screen}")
            time.sleep(0.05)

    def rest(self, seconds: float) -> None:
        """Leave the screen as it is, and look now and then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.05)

    def close(self) -> None:
        """End the shell and its tmux server."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=30)


def _is_same(last: Frame, frame: Frame) -> bool:
    """Return whether two frames differ in nothing, or for a moment in the spinner and its seconds only. A
    slow machine would fill the film with them."""
    if last[1:] == frame[1:] or frame.at_s - last.at_s >= SPINNER_S:
        return last[1:] == frame[1:]
    still = [[_SPINNER.sub("", line) for line in lines] for lines in (last.lines, frame.lines)]
    return still[0] == still[1] and last[2:] == frame[2:]


def carry_codes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a capture, each with the codes that hold at its start: tmux writes only changes."""
    held = ""
    for line in lines:
        yield held + line if line else ""
        for code in re.findall(r"\x1b\[[0-9;]*m", line):
            held = "" if code in ("\x1b[m", "\x1b[0m") else held + code


def record(folder: Path) -> list[Frame]:
    """Play the story in `folder` and give what the terminal showed."""
    home, orders = folder / "ada", folder / "ada" / "orders"
    orders.mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("not a key\n")
    for name, text in PROJECT.items():
        (orders / name).write_text(text)
    keep = ("LANG", "SSL_CERT_FILE", "HTTPS_PROXY", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
    environ = {
        **{key: os.environ[key] for key in keep if key in os.environ},
        "HOME": str(home),
        "PATH": f"{home}/.local/bin:{Path(_program('uv')).parent}:{os.environ['PATH']}",
        "PS1": r"\[\e[32m\]\W\[\e[0m\] $ ",
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "UV_CACHE_DIR": subprocess.check_output(["uv", "cache", "dir"], text=True, timeout=30).strip(),
    }
    (home / "whet.git").symlink_to(ROOT)
    terminal = Terminal(home, environ)
    try:
        terminal.wait(r"\$")
        for typed, shown, pause_s in STORY:
            terminal.type(typed)
            terminal.wait(shown)
            terminal.rest(pause_s)
    finally:
        terminal.close()
    return terminal.frames


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"error: {name} is not installed\nhint: the recording needs git, tmux and uv")
    return found


def main(arguments: Sequence[str]) -> None:
    """Record and write."""
    for name in ("git", "tmux", "uv"):
        _program(name)
    with tempfile.TemporaryDirectory(prefix="whet-film-", ignore_cleanup_errors=True) as folder:
        frames = record(Path(folder))
    path = Path(arguments[0]) if arguments else FILM
    write_film(path, frames, (COLUMNS, ROWS), title="Whet: from a clone to the first edited file")
    sys.stdout.write(f"{path}: {len(frames)} screens, {path.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
