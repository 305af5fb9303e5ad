"""Record a day with Whet: a fix, a review by phone, a goal over night, and the way back.

    make recording                     writes docs/images/day.svg, too
    .venv/bin/python docs/day.py

It needs tmux, git and Chromium. The model is a script of answers (a stand-in, no language model); the
program, the terminal, the page on the phone, the files and the commands are real. Waiting is shortened,
never a screen: the goal's schedule comes after seconds and not at night.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from film import write_film
from record import COLUMNS, PROJECT, ROWS, Terminal

ROOT = Path(__file__).parents[1]
FILM = ROOT / "docs" / "images" / "day.svg"
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import Browser, Page  # noqa: E402 - from the checkout

from whet_lab.practice.ask import PracticeCall  # noqa: E402 - from the checkout
from whet_lab.practice.script import ScriptedReply, terminal_reply  # noqa: E402
from whet_lab.practice.server import PracticeServer  # noqa: E402

PORT = 6099
TESTS = "python3 -m unittest -q"
READY, REST = r"quits\n(.*\n){0,2}›", r"· [\d.]+ s\n+─*\n?›"
BEFORE, AFTER = "int(cents * (100 - percent) / 100)", "(cents * (100 - percent) + 50) // 100"
NOTE = "# Orders\n\nPrices are in cents. Halves are rounded up.\n"
MORE = (
    "\n    def test_nothing_is_left_of_a_price_without_its_whole(self) -> None:\n"
    "        self.assertEqual(discounted(995, 100), 0)\n"
)


def call(name: str, text: str = "", **arguments: object) -> ScriptedReply:
    """Return an answer that asks for one call."""
    return ScriptedReply(text, tool_calls=(PracticeCall(name, json.dumps(arguments)),))


SCRIPT = (
    terminal_reply(TESTS),
    call("patch", "`int()` cuts the half off.", path="price.py", old_string=BEFORE, new_string=AFTER),
    terminal_reply(TESTS),
    ScriptedReply("Halves go up now, and the test passes."),
    call("write_file", path="README.md", content=NOTE),
    ScriptedReply("`README.md` says how prices are rounded."),
    call("patch", path="test_price.py", old_string="896)\n", new_string="896)\n" + MORE),
    terminal_reply(TESTS),
    ScriptedReply("A discount of 100 percent has a test, and both tests pass."),
)


class Phone:
    """A browser of a phone's size; what it shows becomes the picture beside the terminal."""

    def __init__(self, page: Page, terminal: Terminal) -> None:
        self._terminal = terminal
        self.page = page
        page.shape(390, 844, is_phone=True, is_dark=True)

    def show(self, seconds: float) -> None:
        """Show the phone beside the terminal for some time."""
        self.page.eval("new Promise(done => setTimeout(done, 300))")
        clip = {"x": 0, "y": self.page.eval("scrollY"), "width": 390, "height": 844, "scale": 0.6}
        shot = self.page.call("Page.captureScreenshot", format="webp", quality=60, clip=clip)
        self._terminal.phone = f"data:image/webp;base64,{shot['data']}"
        self._terminal.rest(seconds)

    def log_in(self, token: str) -> None:
        """Open the page and log in."""
        self.page.open(f"http://127.0.0.1:{PORT}/")
        self.page.click("#token")
        self.page.type(token)
        with self.page.loading():
            self.page.key("Enter")

    def say(self, text: str) -> None:
        """Write a message in the newest session, and send it."""
        with self.page.loading():
            self.page.eval("document.querySelector('a[href^=\"/sessions/\"]').click()")
        self.page.eval("document.querySelector('#say textarea').focus()")
        self.page.type(text)
        self.show(2.0)
        self.page.click("#say .send")


def begin_scene(terminal: Terminal, line: str) -> None:
    """Clear the screen and type a line. Keys before the prompt would be echoed twice."""
    terminal.type("clear")
    terminal.wait(r"\A\S+ \$")
    terminal.type(line)


def fix(terminal: Terminal) -> None:
    """In the morning: a fix, asked for at the terminal."""
    terminal.type("# morning: a test fails")
    terminal.type("whet")
    terminal.wait(READY)
    terminal.type("the test of price.py fails; mend it")
    terminal.wait(r"Enter alone is no")
    terminal.rest(3.5)
    terminal.type("1")
    terminal.wait(REST)
    terminal.rest(2.5)
    terminal.press("C-d")
    terminal.wait(r"\$")


def review_by_phone(terminal: Terminal, browser: Browser, home: Path) -> None:
    """At noon: a change that is asked for, read and allowed on a phone."""
    begin_scene(terminal, "# noon: on the way, by phone")
    terminal.type(f"whet serve --web --port {PORT}")
    terminal.wait(r"owner\.token")
    terminal.rest(1.5)
    token = next(home.glob(".whet/**/*token*"))
    with browser.page() as page:
        phone = Phone(page, terminal)
        phone.log_in(re.findall(r"\S+", token.read_text())[-1])
        phone.say("say in a README how prices are rounded")
        page.until("document.querySelector('#asked .added')")
        page.eval("scrollTo(0, document.documentElement.scrollHeight)")
        phone.show(4.0)
        page.click("#asked button[value=once]")
        page.until("document.body.innerText.includes('says how prices')")
        page.until("!document.querySelector('#state').dataset.running")
        page.eval("scrollTo(0, document.documentElement.scrollHeight)")
        phone.show(3.0)
    terminal.phone = ""
    terminal.press("C-c")
    terminal.wait(r"\$")


def pursue_goal(terminal: Terminal) -> None:
    """Over night: a goal that a command must prove."""
    begin_scene(terminal, "# evening: a goal for the night; what stays in the sandbox is allowed")
    terminal.type("whet config set approval.mode auto")
    terminal.wait(r"auto(.*\n)+[^\n]*\$")
    terminal.type(
        'whet cron add --at +2s --goal --prompt "a discount of 100 percent has a test" '
        f'--verify "{TESTS}" --name night'
    )
    terminal.wait(r"whet worker[^\n]*\n[^\n]*\$")
    terminal.rest(1.5)
    terminal.type("whet worker --drain --patience 5; whet goal show")
    terminal.wait(r"achieved(.*\n)+[^\n]*\$")
    terminal.rest(4.0)


def go_back(terminal: Terminal) -> None:
    """The next morning: what was allowed on the phone is taken back."""
    begin_scene(terminal, "# next morning: the README was not meant so")
    terminal.type("whet -c")
    terminal.wait(r"›")
    terminal.rest(2.0)
    terminal.press("Escape")
    terminal.press("Escape")
    terminal.wait(r"Esc leaves(.*\n)+[^\n]*›")
    terminal.rest(2.5)
    terminal.press("Enter")
    terminal.wait(r"restored(.*\n)+[^\n]*›")
    terminal.rest(3.0)
    terminal.press("C-u")
    terminal.press("C-d")
    terminal.wait(r"\$")


def main() -> None:
    """Play the day and write the film."""
    with (
        tempfile.TemporaryDirectory(prefix="whet-day-", ignore_cleanup_errors=True) as folder,
        PracticeServer(script=list(SCRIPT)) as server,
    ):
        home = Path(folder) / "ada"
        orders = home / "orders"
        orders.mkdir(parents=True)
        for name, text in PROJECT.items():
            (orders / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=orders, check=True, timeout=30)
        model = {"PROVIDER": "practice", "BASE_URL": server.base_url, "MODEL": "practice"}
        programs = home / ".local" / "bin"
        programs.mkdir(parents=True)
        (programs / "whet").symlink_to(ROOT / ".venv" / "bin" / "whet")
        environ = {
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PS1": r"\[\e[32m\]\W\[\e[0m\] $ ",
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **{f"WHET_MODEL_{key}": value for key, value in model.items()},
        }
        terminal, browser = Terminal(orders, environ), Browser(Path(folder))
        try:
            terminal.wait(r"\$")
            fix(terminal)
            review_by_phone(terminal, browser, home)
            pursue_goal(terminal)
            go_back(terminal)
        finally:
            terminal.close()
            browser.close()
    frames = [
        frame._replace(lines=tuple(line.replace(str(home), "/home/ada") for line in frame.lines))
        for frame in terminal.frames
    ]
    write_film(FILM, frames, (COLUMNS, ROWS), title="Whet: a day, from a fix to the way back")
    sys.stdout.write(f"{FILM}: {len(frames)} screens, {FILM.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
