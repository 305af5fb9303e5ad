"""Folders of skills with links to folders above them, and folders that can't be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory.test_library import put
from whet.memory.library import Library


@pytest.mark.parametrize("count", [1, 40], ids=["few skills", "an index of many"])
def test_a_link_to_a_folder_above_is_one_problem_and_lists_nothing_of_it(tmp_path: Path, count: int) -> None:
    workspace = tmp_path / "repo"
    (workspace / ".git").mkdir(parents=True)
    library = Library(tmp_path / "home" / "skills")
    library.look_in(workspace)
    for folder in (library.folder, workspace / ".agents" / "skills"):
        for number in range(count):
            put(folder, f"{folder.parent.name.strip('.')}-{number}")
        (folder.parent / "state.db").touch()
        (folder / "group").mkdir()
        (folder / "group" / "notes.txt").touch()
        put(folder / "group", f"grouped-{len(folder.parts)}")
    put(library.folder.parent, "aside")
    (library.folder / "up").symlink_to("..")
    (library.folder / "self").symlink_to(library.folder)
    (workspace / ".agents" / "skills" / "top").symlink_to(workspace)
    infos = library.all()
    assert sum(not info.problem for info in infos) == 2 * (count + 1)
    problems = {info.name: info.problem for info in infos if info.problem}
    assert problems == dict.fromkeys(("up", "self", "top"), "its link leads to a folder that holds it")
    assert library.find("aside") is None and library.find("grouped-0") is None


UNREADABLE = """
import os, shutil, tempfile
from pathlib import Path
from whet.contract.errors import WhetError
from whet.memory import intake, skill_format
if os.getuid() == 0:  # who may read every folder
    os.setuid(65534)
top = Path(tempfile.mkdtemp())
(top / "holder" / "inner").mkdir(parents=True)
(top / "skill" / "more").mkdir(parents=True)
(top / "listed").mkdir()
(top / "listed" / "SKILL.md").touch()
for name, mode in ("holder", 0o600), ("listed", 0o600), ("skill/more", 0o300):
    (top / name).chmod(mode)
for name in ("holder", "holder/inner", "listed", "skill"):
    try:
        intake.read_folder(top / name)
    except WhetError as error:
        print(error.message.replace(f"{top}/", ""))
for name in ("holder", "listed", "skill/more"):
    (top / name).chmod(0o700)
shutil.rmtree(top)
"""


def test_a_folder_that_cannot_be_read_is_refused_with_its_name() -> None:
    done = subprocess.run([sys.executable, "-c", UNREADABLE], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{path} can't be read: Permission denied"
        for path in ("holder/inner", "holder/inner", "listed/SKILL.md", "skill/more")
    ]
