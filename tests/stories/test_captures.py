"""Forty screens of the terminal (ten scenes, three sizes, four themes) and thirty of the page (ten pages,
three widths, two themes) as text, beside those that are stored.

    make captures                      plays the scenes of docs/gallery.py and stores the screens anew
    make soak ARGS=tests/stories/test_captures.py

A file holds the screen and, in its last line, the colours and styles that it uses. Times, counts of tokens
and the names of temporary folders are not compared.
"""

from __future__ import annotations

import difflib
import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import PROGRAM, Browser
from tests.stories.page_text import read_page

CAPTURES = Path(__file__).parent / "captures"
sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

GALLERY: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "gallery.py"))
pytestmark = pytest.mark.soak
# Machines differ in their sandboxes.
PROGRAMS = ("python3", "echo", "sleep")
SETTINGS = {
    "WHET_SANDBOX_MODE": "off",
    "WHET_APPROVAL_ALLOW": ",".join(f"terminal({name} *)" for name in PROGRAMS),
}
CHANGING = (
    (r"/tmp/w[a-z0-9_]{8}/", "/tmp/wXXXXXXXX/"),
    (r"\d+(\.\d+)?k? tokens", "N tokens"),
    (r"\d+% cached", "N% cached"),
    (r"[▰▱]+ \d+%", "▱▱▱▱▱ N%"),
    (r"\d+(\.\d+)? (ms|s)\b", "N s"),
    (r"whet \d+\.\S+", "whet VERSION"),
    (r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋"),
)
# In the syntax of JavaScript.
CHANGING_PAGE = (
    (r"/tmp/\S+/work", "/tmp/XXXX/work"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d\d:\d\d(:\d\d)?", "TIME"),
    (r"^\s*(\d\d-\d\d|\d+%|[\d.]+k?)\s*$", "N"),
    (r"\d+(\.\d+)?k? (tokens|in|out)\b", "N $2"),
    (r"\d+% (cached|of the prompts|from)", "N% $1"),
    (r"\d+(\.\d+)? (ms|s)\b", "N s"),
    (r"^\s*(now|\d+ (s|min) ago)\s*$", "WHEN"),
)


def describe(terminal: Any) -> str:
    """Return a screen as it is stored."""
    lines = terminal.frames[-1].lines
    text = "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines).rstrip()
    for pattern, constant in CHANGING:
        text = re.sub(pattern, constant, text)
    styles = {code for line in lines for code in re.findall(r"\x1b\[([0-9;]*)m", line)}
    return f"{text}\n\nstyles: {' '.join(sorted(styles - {'', '0'}))}\n"


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
@pytest.mark.parametrize("shape", GALLERY["SHAPES"], ids=lambda shape: shape.name)
def test_the_screens_are_those_that_are_stored(shape):
    screens: dict[str, str] = {}
    GALLERY["play"](shape, lambda terminal, name: screens.update({name: describe(terminal)}), **SETTINGS)
    assert list(screens) == [name for name, _, _ in GALLERY["SCENES"]]
    compare(shape.name, screens)


@pytest.mark.skipif(not PROGRAM, reason="there is no Chromium here")
def test_the_pages_are_those_that_are_stored(tmp_path):
    screens: dict[str, dict[str, str]] = {shape: {} for shape in GALLERY["PAGE_SHAPES"]}
    browser = Browser(tmp_path)
    with browser.page() as page:
        GALLERY["visit"](
            page, lambda shape, name: screens[shape].update({name: read_page(page, CHANGING_PAGE)})
        )
    browser.close()
    assert [len(pages) for pages in screens.values()] == [10, 10, 10]
    for shape, pages in screens.items():
        compare(f"page-{shape}", pages)


def compare(shape: str, screens: dict[str, str]) -> None:
    """Fail with the differences to what is stored; with RENEW store the screens anew."""
    folder = CAPTURES / shape
    if os.environ.get("RENEW"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in screens.items():
            (folder / f"{name}.txt").write_text(text, "utf-8")
    stored = {path.stem: path.read_text("utf-8") for path in folder.glob("*.txt")}
    changes = [
        line
        for name in sorted({*screens, *stored})
        for line in difflib.unified_diff(
            stored.get(name, "").split("\n"),
            screens.get(name, "").split("\n"),
            f"{name} stored",
            f"{name} now",
        )
    ]
    assert not changes, "\n".join(["the screens changed; make captures stores them anew", *changes])
