"""Take a gallery of screens to compare by eye: 40 of the terminal and 30 of the page.

    .venv/bin/python docs/gallery.py FOLDER

It needs tmux and Chromium. Ten scenes are played in four shapes of a terminal (80, 120 and 40 columns; the
themes dark, light, high contrast and 16 colours), and ten pages in three shapes (a desk in light, a tablet
and a phone in dark). FOLDER then holds a picture of each, and one sheet for each shape. The model is a
script of answers, a stand-in; program, terminal and browser are real.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from film import HEIGHT, PAD, WIDTH, write_film
from pictures import AFTER, BEFORE, DESK, PHONE, PROGRAM, start_board
from record import Terminal

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import Browser, Page  # noqa: E402 - from the checkout

from whet_lab.practice.ask import PracticeCall  # noqa: E402 - from the checkout
from whet_lab.practice.script import ScriptedReply, terminal_reply  # noqa: E402
from whet_lab.practice.server import PracticeServer  # noqa: E402

ANSWER = """## Done

**Halves go up** now; 日本語 and é stay whole, and so does `discounted(995, 10)`.

- one item that is long enough to be broken at the end of a narrow terminal
- two

| case | before | after |
|---|---|---|
| 995, 10 % | 895 | 896 |

```python
return (cents * (100 - percent) + 50) // 100  # half up
```
"""
NEW_FILE = "".join(f"line {number} of a longer file, with 日本 in it\n" for number in range(1, 31))
READY, REST = r"(quits|Ctrl-D)[^\n]*\n(.*\n){0,4}›", r"\d s\n+─+\n›"


class Shape(NamedTuple):
    """A terminal: its size, its theme, its `TERM`, and the ground and letters that it has."""

    name: str
    columns: int
    rows: int
    theme: str
    term: str
    colours: tuple[str, str]


SHAPES = (
    Shape("80-dark", 80, 24, "dark", "xterm-256color", ("#0d1117", "#c9d1d9")),
    Shape("120-light", 120, 40, "light", "xterm-256color", ("#ffffff", "#1f2328")),
    Shape("40-contrast", 40, 20, "high-contrast", "xterm-256color", ("#000000", "#ffffff")),
    Shape("80-16", 80, 24, "16-colours", "xterm", ("#0d1117", "#c9d1d9")),
)
# The eight colours of a light terminal in place of those that `film.py` draws.
LIGHT = {
    "#ff7b72": "#cf222e",
    "#7ee787": "#116329",
    "#e3b341": "#7d4e00",
    "#79c0ff": "#0969da",
    "#d2a8ff": "#8250df",
    "#76e3ea": "#1b7c83",
    "#484f58": "#59636e",
}
TABLET = (820, 1180, False)
# A scene: its name, what is typed (or keys in angle brackets), and what the screen then shows.
SCENES: tuple[tuple[str, str, str], ...] = (
    ("begin", "whet", READY),
    ("answer", "mend the price", r"Enter alone\s+is no[^\n]*"),
    ("edited", "1", REST),
    ("new-file", "write a longer file", r"Enter alone\s+is no[^\n]*"),
    ("refused", "n", REST),
    ("running", "run a long command", r"│ two(.*\n)+[^\n]*›"),
    ("stopped", "<Escape>", r"cancelled(.*\n)+[^\n]*›"),
    ("rewind", "<Escape Escape>", r"which message(.*\n)+[^\n]*›"),
    ("error", "/nonesuch", r"help lists(.*\n)+[^\n]*›"),
    ("opened", "whet -c", REST),
)
PAGES = (
    ("now", "/"),
    ("sessions", "/sessions"),
    ("session", "SESSION"),
    ("changes", "SESSION/changes"),
    ("files", "SESSION/files"),
    ("time", "SESSION/time"),
    ("activity", "/activity"),
    ("learning", "/learning"),
    ("inbox", "/inbox"),
    ("costs", "/costs"),
)

PAGE_SHAPES = {"desk-light": (DESK, False), "tablet-dark": (TABLET, True), "phone-dark": (PHONE, True)}


def script() -> list[ScriptedReply]:
    """Return the model's answers in the scenes."""

    def call(name: str, **arguments: object) -> ScriptedReply:
        return ScriptedReply("I look, then mend it.", tool_calls=(PracticeCall(name, json.dumps(arguments)),))

    return [
        terminal_reply("python3 -m unittest -q nothing"),
        call("patch", path="price.py", old_string=BEFORE, new_string=AFTER),
        ScriptedReply(ANSWER),
        call("write_file", path="docs/long.md", content=NEW_FILE),
        ScriptedReply("I leave it."),
        terminal_reply("echo one; echo two; sleep 60"),
    ]


def draw(page: Page, terminal: Terminal, shape: Shape, path: Path) -> None:
    """Save the screen of a terminal as a picture."""
    svg = path.with_suffix(".svg")
    frame = terminal.frames[-1]
    write_film(svg, [frame], (shape.columns, shape.rows), title=path.stem)
    ground, letters = shape.colours
    text = svg.read_text("utf-8").replace("#0d1117", ground).replace("#c9d1d9", letters)
    for dark, light in LIGHT.items() if shape.theme == "light" else ():
        text = text.replace(dark, light)
    svg.write_text(text, "utf-8")
    page.shape(int(shape.columns * WIDTH + 2 * PAD), int(shape.rows * HEIGHT + 2 * PAD))
    page.open(svg.resolve().as_uri())
    page.shot(path)
    svg.unlink()


def play(shape: Shape, save: Callable[[Terminal, str], object], **more: str) -> None:
    """Play the scenes in one shape, with `more` variables, and save the screen after each under its name."""
    with (
        tempfile.TemporaryDirectory(prefix="w", ignore_cleanup_errors=True) as place,
        PracticeServer(script=script()) as server,
    ):
        home, orders = Path(place) / "ada", Path(place) / "ada" / "orders"
        (orders / ".git").mkdir(parents=True)
        (orders / "price.py").write_text(PROGRAM)
        environ = {
            "HOME": str(home),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PS1": "$ ",
            "TERM": shape.term,
            "LC_ALL": "C.UTF-8",
            "WHET_UI_THEME": shape.theme,
            "WHET_LSP_ENABLED": "false",
            "WHET_MODEL_PROVIDER": "practice",
            "WHET_MODEL_BASE_URL": server.base_url,
            "WHET_MODEL_MODEL": "practice",
            **more,
        }
        terminal = Terminal(orders, environ, shape.columns, shape.rows)
        try:
            terminal.wait(r"\$")
            for name, typed, shown in SCENES:
                if name == "opened":
                    for key in ("C-u", "C-d"):
                        terminal.press(key)
                    terminal.wait(r"\$")
                if typed.startswith("<"):
                    for key in typed.strip("<>").split():
                        terminal.press(key)
                else:
                    terminal.type(typed)
                again = r"answer again(.*\n)+[^\n]*Enter alone\s+is no"
                terminal.wait(rf"({shown}|q leaves|{again})")
                if "q leaves" in terminal.look():
                    terminal.press("q")
                    terminal.wait(again)
                if "answer again" in terminal.look():  # a small screen shows all of it after the first answer
                    terminal.rest(2.0)
                    terminal.type(typed)
                terminal.wait(shown)
                terminal.rest(0.5)
                save(terminal, name)
                if name == "rewind":
                    terminal.press("Escape")
                    terminal.rest(0.7)
        finally:
            terminal.close()


def take_pictures(page: Page, shape: Shape, folder: Path) -> list[Path]:
    """Play the scenes in one shape, and return the pictures."""
    pictures: list[Path] = []

    def save(terminal: Terminal, name: str) -> None:
        pictures.append(folder / f"terminal-{shape.name}-{name}.png")
        draw(page, terminal, shape, pictures[-1])

    play(shape, save)
    return pictures


def visit(page: Page, save: Callable[[str, str], object]) -> None:
    """Open each page in each shape, and save it under the names of both."""
    with PracticeServer() as model, tempfile.TemporaryDirectory() as place:
        board, session = start_board(page, Path(place), model)
        for name, path in PAGES:
            page.open(board.url + path.replace("SESSION", session))
            for shape, ((width, height, is_phone), is_dark) in PAGE_SHAPES.items():
                page.shape(width, height, is_phone=is_phone, is_dark=is_dark)
                page.eval("new Promise(done => { scrollTo(0, 0); setTimeout(done, 300); })")
                save(shape, name)
        board.close()


def visit_pictures(page: Page, folder: Path) -> dict[str, list[Path]]:
    """Take the pictures of the pages, and return them by shape."""
    pictures: dict[str, list[Path]] = {shape: [] for shape in PAGE_SHAPES}

    def save(shape: str, name: str) -> None:
        pictures[shape].append(folder / f"page-{shape}-{name}.png")
        page.shot(pictures[shape][-1])

    visit(page, save)
    return pictures


def write_sheet(page: Page, pictures: list[Path], path: Path, columns: int, width: int) -> None:
    """Put pictures on one sheet, a row of `columns` of them, each `width` points wide."""
    cells = "".join(
        f'<figure><img src="{one.resolve().as_uri()}"><figcaption>{one.stem}</figcaption></figure>'
        for one in pictures
    )
    html = path.with_suffix(".html")
    html.write_text(
        "<style>body{margin:0;background:#777;font:11px sans-serif;display:grid;gap:6px;"
        f"grid-template-columns:repeat({columns},{width}px)}}figure{{margin:0}}img{{width:100%}}</style>{cells}"
    )
    page.shape(columns * (width + 6), 800)
    page.open(html.resolve().as_uri())
    page.shape(columns * (width + 6), int(page.eval("document.documentElement.scrollHeight")))
    page.shot(path)
    html.unlink()


def main() -> None:
    """Take all pictures and write the sheets."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: docs/gallery.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        browser = Browser(Path(place))
        with browser.page() as page:
            sheets = {f"terminal-{shape.name}": take_pictures(page, shape, folder) for shape in SHAPES}
            sheets |= {f"page-{name}": found for name, found in visit_pictures(page, folder).items()}
            for name, pictures in sheets.items():
                columns, width = (4, 300) if "phone" in name or "-40-" in name else (2, 700)
                write_sheet(page, pictures, folder / f"sheet-{name}.png", columns, width)
        browser.close()
    sys.stdout.write(f"{folder}: {sum(map(len, sheets.values()))} pictures, {len(sheets)} sheets\n")


if __name__ == "__main__":
    main()
