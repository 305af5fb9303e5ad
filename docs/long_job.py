"""Picture a job of sixty steps on a copy of this repository: one tall screen that reads as a story.

    .venv/bin/python docs/long_job.py      writes docs/images/long-job.svg

It needs tmux and git. The model is a script of sixty answers (a stand-in, no language model); the program,
the terminal, the files and the commands are real.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "long-job.svg"
COLUMNS, ROWS = 100, 240
sys.path.insert(0, str(ROOT / "src"))

from film import Frame, write_film  # noqa: E402 - beside this file
from record import Terminal  # noqa: E402 - beside this file

from whet_lab.practice.ask import PracticeCall  # noqa: E402 - from the checkout
from whet_lab.practice.script import ScriptedReply, terminal_reply  # noqa: E402
from whet_lab.practice.server import PracticeServer  # noqa: E402

MODULES = sorted(path.stem for path in (ROOT / "src" / "whet" / "tools").glob("[a-z]*.py"))[:9]
PLAN = ("see how the modules begin", "give each of them a note", "compile what the notes tell of")


def call(name: str, text: str = "", **arguments: object) -> ScriptedReply:
    """Give an answer that asks for one call."""
    return ScriptedReply(text, tool_calls=(PracticeCall(name, json.dumps(arguments)),))


def listed(done: int, text: str = "") -> ScriptedReply:
    """Give the task list with so many of its tasks done."""
    states = ["completed"] * done + ["in_progress", "pending", "pending"]
    items = [{"id": str(n), "content": one, "status": states[n]} for n, one in enumerate(PLAN)]
    return call("todo", text, items=items)


def script() -> list[ScriptedReply]:
    """Give the sixty answers."""
    path = "src/whet/tools/{}.py".format
    searches = [call("search_files", pattern="^def ", path=path(name)) for name in MODULES]
    reads = [call("read_file", path=path(name), limit=9) for name in MODULES]
    notes = [
        call("write_file", path=f"notes/{name}.md", content=f"# {name}\n\nSee {path(name)}.\n")
        for name in MODULES
    ]
    edits = [
        call("patch", path=f"notes/{name}.md", old_string="See ", new_string="Read first: ")
        for name in MODULES
    ]
    compiles = [
        terminal_reply(f"python3 -m py_compile {path(name)} && echo {name} is fine") for name in MODULES
    ]
    counts = [terminal_reply(f"wc -l < notes/{name}.md") for name in MODULES]
    return [
        listed(0, "I look at the modules first, then write the notes, then compile."),
        *(searches + reads),
        listed(1, "Now the notes."),
        *(notes + edits),
        listed(2, "Now I see whether what they tell of holds."),
        *(compiles + counts),
        terminal_reply("grep -c . notes/none.md"),
        listed(3),
        ScriptedReply("Nine notes are written, and all nine modules compile."),
    ]


def main() -> None:
    """Have the job done in a terminal and draw its last screen."""
    answers = script()
    with (
        tempfile.TemporaryDirectory(prefix="w", ignore_cleanup_errors=True) as folder,
        PracticeServer(script=answers) as server,
    ):
        home = Path(folder) / "ada"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(home / "whet")], check=True, timeout=300)
        model = {"PROVIDER": "practice", "BASE_URL": server.base_url, "MODEL": "practice"}
        environ = {
            "HOME": str(home),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PS1": "$ ",
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            **{f"WHET_MODEL_{key}": value for key, value in model.items()},
        }
        terminal = Terminal(home / "whet", environ, COLUMNS, ROWS)
        try:
            terminal.wait(r"\$")
            terminal.type("clear; whet chat --yes")
            terminal.wait(r"quits\n(.*\n){0,2}›")
            terminal.type("write a note on each module, and see that they compile")
            terminal.wait(rf"{len(answers)} steps ·.*\n+─*\n?›", 300)
            lines = terminal.frames[-1].lines
        finally:
            terminal.close()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]
    height = max(number for number, line in enumerate(plain, 1) if line)
    title = f"Whet: a job of {len(answers)} steps on a copy of its own repository"
    write_film(PICTURE, [Frame(0.0, lines[:height], None)], (COLUMNS, height), title=title)
    sys.stdout.write(f"{PICTURE}: {height} lines, {PICTURE.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
