"""What the pages tell a reader to type is typed, in a fresh home, with the practice model (a stand-in).

Run are the `console` blocks and the indented lines of every page. A line that needs more than a fresh home
says so in its comment (`# needs ...`). A line with a placeholder (ID, NAME, a number) may end in one error
line with its hint, except on the pages in `WHOLE`, where `01JD` is a session; every other line ends well.
Servers and what runs long have tests of their own.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.cli.running import Tty, flags
from tests.stories.program import Program
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ROOT = Path(__file__).parents[1]
PAGES = [
    path for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]) if path.name != "commands.md"
]
WHOLE = {"approval.md", "rewind.md", "sandbox.md"}
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
        for part in command.split(" > ")[0].split(";"):
            if part.strip().startswith("whet"):
                yield part.strip(), comment.strip()


def drop_brackets(line: str) -> str:
    """Return a line of a page with its optional words: without the square brackets outside of quotes."""
    return re.sub(r"""('[^']*'|"[^"]*")|[\[\]]""", r"\1", line)


ALL = [(page.name, *one) for page in PAGES for one in typed(page)]
# A line that several pages have is run for the first of them; a first hour goes in one piece.
FIRST = {line: (name, line, text) for name, line, text in reversed(ALL)}
COMMANDS = [one for one in ALL if one[0] in ("first-hour.md", *WHOLE) or FIRST[one[1]] == one]
OF_SESSIONS = re.compile(r"whet (?:rewind|diff|sessions|review|forget|rate|warm|context|cost|goal)\b")


def test_the_pages_have_lines_to_type() -> None:
    assert len(COMMANDS) > 130
    assert {"first-hour.md", "rewind.md", "sandbox.md", "memory.md"} <= {page for page, _, _ in COMMANDS}


@pytest.mark.slow
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
    session = three_turns(program) if page == "rewind.md" else "01JD"
    if page not in ("first-hour.md", "rewind.md") and any(
        command[0] == page and OF_SESSIONS.match(command[1]) for command in COMMANDS
    ):
        program.run("chat", "-q", "create a file hello.txt with hello", "--yes")
    for name, line, comment in COMMANDS:
        if name != page or RUNS_ON.match(line) or "needs" in comment:
            continue
        line = line.replace("01JD", session)
        done = program.run(*shlex.split(drop_brackets(line))[1:])
        is_told = done.out or (done.err.startswith("error: ") and "\nhint: " in done.err)
        told = page not in WHOLE and done.code == 1 and is_told
        if done.code and not (told and PLACEHOLDER.search(line)):
            wrong.append((line, done.err))
    assert not wrong


@pytest.mark.slow
def test_lines_of_goals_and_helpers_that_need_more_work_with_it(
    tmp_path: Path, server: PracticeServer
) -> None:
    settings = {"PROVIDER": "practice", "BASE_URL": server.base_url, "MODEL": "practice"}
    environ = {"HOME": str(tmp_path), **{f"WHET_MODEL_{key}": value for key, value in settings.items()}}
    program = Program(tmp_path, environ=environ)
    (program.work / "tests").mkdir()
    (program.work / "tests" / "test_parser.py").write_text(
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    )
    shown = re.search(r"^    tasks:\n(?:    .*\n)+", (ROOT / "docs" / "helpers.md").read_text("utf-8"), re.M)
    assert shown is not None
    (program.work / "tasks.yaml").write_text(textwrap.dedent(shown[0]))
    subprocess.run("git init -q", shell=True, cwd=program.work, check=True)
    lines = [one for one in ALL if one[0] in ("goals.md", "helpers.md") and "needs" in one[2]]
    lines = [one for one in lines if "real model" not in one[2]]
    assert len(lines) == 6
    for _, line, _ in lines:
        if line.split()[2] in ("resume", "stop"):
            with contextlib.closing(apsw.Connection(str(program.home / "state.db"))) as database:
                database.execute("UPDATE goals SET state = 'paused', ended = ''")
        done = program.run(*shlex.split(line)[1:])
        # The stand-in gives no list of strings, as the second task wants it.
        assert done.code == ("--parallel" in line), (line, done.out, done.err)
        assert "parser" in done.out or not done.code


def three_turns(program: Program) -> str:
    """Make a session of three turns, the third of two steps; gives its id."""
    calls = [
        ScriptedReply(tool_calls=(PracticeCall("terminal", json.dumps({"command": f"echo {word} >> f"})),))
        for word in ("one", "two", "three", "four")
    ]
    end = ScriptedReply("Done.")
    with PracticeServer(script=[calls[0], end, calls[1], end, calls[2], calls[3], end]) as server:
        program.server = server
        for number, more in enumerate(((), ("--continue",), ("--continue",)), 1):
            assert program.ask(f"Go on, {number}.", *more).code == 0
    return str(program.sessions()[0]["id"])


@pytest.mark.slow
def test_what_the_sandbox_page_shows_is_what_is_printed(tmp_path: Path) -> None:
    program = Program(tmp_path, environ={"HOME": str(tmp_path)})
    if " holds" not in program.run("sandbox", "status").out:
        pytest.skip("no engine holds here")
    text = (ROOT / "docs" / "sandbox.md").read_text("utf-8")
    shown = re.findall(r"^ {4}\$ (whet .*)\n((?: {4}.*\n)+)", text, re.M)
    assert shown
    for line, printed in shown:
        done = program.run(*shlex.split(line)[1:])
        # How a program words the system's error is its own, and each engine's wall gives another one.
        ours = [row.strip() for row in printed.splitlines() if row.strip().startswith("[")]
        assert [row for row in (done.out + done.err).splitlines() if row.startswith("[")] == ours


# What each command of the page says when it has worked, typed in this order.
IN_A_CHAT = {
    "/diff": "+four",
    "/diff 3": "+four",
    "/rewind": "Go back to before which message?",
    "/rewind 3 dry-run": "would restore",
    "/rewind 3": "restored 1 path",
    "/rewind 3.2 files": "restored 1 path",
    "/rewind undo": "restored 1 path",
    "/rewind 3 keep": "takes this back",
    "/rewind 3 force": "takes this back",
    "/undo": "its files were not restored; /rewind 2 files does that",
}


@pytest.mark.slow
def test_what_the_rewind_page_tells_to_type_in_a_chat_works(tmp_path: Path) -> None:
    matches = set(re.findall(r"`(/\w[^`]*)`", (ROOT / "docs" / "rewind.md").read_text("utf-8")))
    assert matches == set(IN_A_CHAT)
    program = Program(tmp_path, environ={"HOME": str(tmp_path)})
    three_turns(program)
    environ = {**program.environ, "WHET_HOME": str(program.home)}
    with (
        PracticeServer() as server,
        Tty(["chat", "--continue", *flags(server)], program.work, environ=environ) as tty,
    ):
        tty.wait_for("Ctrl-D")
        for command, text in IN_A_CHAT.items():
            tty.type(f"{command}\r", text)
            if command == "/rewind":
                tty.type("\x1b", "3.2", "/rewind TURN[.STEP]")
