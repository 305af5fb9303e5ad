"""What a page tells a reader to type works in a plain installation, in an empty home and another folder.

`$ ` lines of `console` blocks run in a shell, in the page's order; `whet` lines elsewhere by themselves. A
line that needs more than a fresh home, or an extra, says so in its comment (`# needs ...`).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.installed.program import ROOT, Installed, install
from tests.test_pages_run import COMMANDS, OF_SESSIONS, PLACEHOLDER, RUNS_ON, drop_brackets

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
PAGES = sorted({page for page, _, _ in COMMANDS} - {"rewind.md", "hooks.md"})
MODEL = {"WHET_MODEL_PROVIDER": "practice", "WHET_MODEL_MODEL": "practice"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_where_its_reader_types_it(environment: Path, tmp_path: Path, page: str) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "Makefile").write_text("test:\n\t@echo all is well\n")
    whet = Installed(environment, home, work)
    shell, alone = read_lines(page)
    if any(OF_SESSIONS.match(line) for line in [*shell, *alone]):
        assert type_line(whet, 'whet chat -q "create a file hello.txt with hello" --yes').returncode == 0
    wrong: list[tuple[str, str]] = []
    for line in [*shell, *alone]:
        done = type_line(whet, line)
        is_explained = done.stdout or (done.stderr.startswith("error: ") and "\nhint: " in done.stderr)
        is_open = line in alone and PLACEHOLDER.search(line) and done.returncode == 1 and is_explained
        if done.returncode and not is_open:
            wrong.append((line, done.stderr))
    assert not wrong


def type_line(whet: Installed, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell of the installation's user, with the practice model."""
    path = f"{whet.environment / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=whet.work,
        env={**whet.variables, **MODEL, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def read_lines(page: str) -> tuple[list[str], list[str]]:
    """Return what a reader can run of a page, without what runs on or needs more: the lines of `console`
    blocks, which belong together, and `whet` lines that stand alone.
    """
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    blocks = re.findall(r"^```console\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
    shell = re.findall(r"^\$ (.*)$", "\n".join(blocks), re.M)
    alone = [
        drop_brackets(line)
        for name, line, comment in COMMANDS
        if name == page and line.startswith("whet ") and "needs" not in comment
    ]
    shell = [line for line in shell if "# needs" not in line and not RUNS_ON.match(line)]
    return shell, [
        line for line in alone if not RUNS_ON.match(line) and not any(line in typed for typed in shell)
    ]
