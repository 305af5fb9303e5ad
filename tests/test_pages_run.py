"""What the pages tell a reader to type is typed, in a fresh home, with the practice model (a stand-in).

Run are the `console` blocks and the indented lines of every page. A line that needs more than
a fresh home says so in its comment (`# needs ...`). A line with a placeholder (ID, NAME, a number) may end in
one error line with its hint; every other line ends well. Servers and what runs long have tests of their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.program import Program
from whet.practice.server import PracticeServer

ROOT = Path(__file__).parents[1]
PAGES = [
    path for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]) if path.name != "commands.md"
]
# What goes on until it is stopped, runs for long, or only works at a terminal.
RUNS_ON = re.compile(
    r"whet(?: chat(?! .*-q)|$| (?:serve|gateway|worker|acp|demo|practice|eval|confirm|mcp|memory edit)\b"
    r"| config edit| config set [A-Z]| plugins install)"
)
PLACEHOLDER = re.compile(
    r"\b(?:ID|NAME|DIR|PATH\w*|FOLDER\w*|WORDS|01JD\S*|\d+m?\w*|work|notes|\w+-ten)\b|\.\.\.|[~$<\[]"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as server:
        yield server


def typed(page: Path) -> Iterator[tuple[str, str]]:
    """Each line of a page that a reader types, without its comment, and the comment."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"^(?: {4}.*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    lines = "\n".join(blocks + indented)
    for line in re.findall(r"^(?: {4}|\$ )(whet\b.*)$", lines, re.M):
        command, _, comment = re.sub(r" {2,}(?!#)", "  # ", line, count=1).partition("#")
        for one in command.split(";"):
            if one.strip().startswith("whet"):
                yield one.strip(), comment.strip()


ALL = [(page.name, *one) for page in PAGES for one in typed(page)]
# A line that several pages have is run for the first of them; a first hour goes in one piece.
FIRST = {line: (name, line, said) for name, line, said in reversed(ALL)}
COMMANDS = [one for one in ALL if one[0] == "first-hour.md" or FIRST[one[1]] == one]
OF_SESSIONS = re.compile(r"whet (?:rewind|diff|sessions|review|forget|rate|warm|context|cost|goal)\b")


def test_the_pages_have_lines_to_type() -> None:
    assert len(COMMANDS) > 130
    assert {"first-hour.md", "rewind.md", "sandbox.md", "memory.md"} <= {page for page, _, _ in COMMANDS}


@pytest.mark.parametrize("page", sorted({page for page, _, _ in COMMANDS}))
def test_what_a_page_tells_to_type_works_in_a_fresh_home(
    page: str, tmp_path: Path, server: PracticeServer
) -> None:
    settings = {"PROVIDER": "practice", "BASE_URL": server.base_url, "MODEL": "practice"}
    environ = {"HOME": str(tmp_path), **{f"WHET_MODEL_{key}": value for key, value in settings.items()}}
    program = Program(tmp_path, environ=environ)
    (program.work / "Makefile").write_text("test:\n\t@echo all is well\n")
    if page == "hooks.md":  # the repository's hooks of this page
        hooks = re.search(r"^    (\{\"tests\": .*)$", (ROOT / "docs" / page).read_text("utf-8"), re.M)
        assert hooks is not None
        (program.work / ".whet").mkdir(exist_ok=True)
        (program.work / ".whet" / "hooks.json").write_text(hooks[1])
        (program.work / "check.sh").write_text("true\n")
    wrong: list[tuple[str, str]] = []
    if page != "first-hour.md" and any(one[0] == page and OF_SESSIONS.match(one[1]) for one in COMMANDS):
        program.run("chat", "-q", "create a file hello.txt with hello", "--yes")
    for name, line, comment in COMMANDS:
        if name != page or RUNS_ON.match(line) or "needs" in comment:
            continue
        done = program.run(*shlex.split(line.replace("[", "").replace("]", ""))[1:])
        told = done.code == 1 and (done.out or (done.err.startswith("error: ") and "\nhint: " in done.err))
        if done.code and not (told and PLACEHOLDER.search(line)):
            wrong.append((line, done.err))
    assert not wrong
