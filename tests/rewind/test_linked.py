"""Files with several names, as package managers make them: scanned only when they change, by any name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whet.contract.errors import NotFound
from whet.rewind.recorder import Workspace
from whet.rewind.steps import begin_step, end_step

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's interface is Linux's")


def link_tree(folder: Path) -> Path:
    """Make `folder`/work with 12 files, each linked from `folder`/cache; return the cache."""
    for number in range(12):
        cached = folder / "cache" / f"f{number}"
        linked = folder / "work" / f"lib{number % 4}" / f"f{number}"
        cached.parent.mkdir(parents=True, exist_ok=True)
        linked.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text(str(number))
        os.link(cached, linked)
    return folder / "cache"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The folders that were listed so far."""
    folders: list[object] = []
    scandir = os.scandir

    def note(path: Any = ".") -> Iterator[os.DirEntry[str]]:
        folders.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    return folders


def size_of(workspace: Workspace, path: str) -> int:
    known_state = workspace.find_known(path)
    if known_state is None:
        raise NotFound(path)
    return known_state.state.size


def test_a_step_that_changes_nothing_lists_no_folder_of_linked_files(
    workspace: Workspace, tmp_path: Path, listed: list[object]
) -> None:
    link_tree(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1)[0])
    listed.clear()
    assert end_step(workspace, begin_step(workspace, "s", 1, 2)[0]) == []
    assert listed == []


def test_a_step_that_writes_through_a_name_outside_is_recorded(workspace: Workspace, tmp_path: Path) -> None:
    cache = link_tree(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1)[0])
    for number in (2, 3):
        record, _ = begin_step(workspace, "s", 1, number)
        with (cache / "f5").open("a") as file:
            file.write("more")
        assert [(file.path, file.added, file.removed) for file in end_step(workspace, record)] == [
            ("lib1/f5", 1, 1)
        ]


def test_a_step_that_removes_the_name_through_which_it_wrote_is_recorded(
    workspace: Workspace, tmp_path: Path
) -> None:
    link_tree(tmp_path)
    (tmp_path / "cache" / "f5").unlink()
    os.link(tmp_path / "work/lib1/f5", tmp_path / "work/lib2/second")
    end_step(workspace, begin_step(workspace, "s", 1, 1)[0])
    record, _ = begin_step(workspace, "s", 1, 2)
    (tmp_path / "work/lib2/second").write_text("more")
    (tmp_path / "work/lib2/second").unlink()
    assert {file.path for file in end_step(workspace, record)} == {"lib1/f5", "lib2/second"}


def test_a_file_that_loses_its_other_name_is_still_followed(workspace: Workspace, tmp_path: Path) -> None:
    cache = link_tree(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1)[0])
    (cache / "f5").unlink()
    (cache / "f6").replace(cache / "renamed")
    end_step(workspace, begin_step(workspace, "s", 1, 2)[0])
    record, _ = begin_step(workspace, "s", 1, 3)
    (tmp_path / "work/lib1/f5").write_text("more")
    (cache / "renamed").write_text("more")
    assert {file.path for file in end_step(workspace, record)} == {"lib1/f5", "lib2/f6"}


LIMITED = """
import os, pathlib, sys
from tests.rewind.test_linked import link_tree, size_of
from tests.rewind.trees import open_workspace

folder = pathlib.Path(sys.argv[1])
cache = link_tree(folder)
workspace = open_workspace(folder)
with workspace.exclusive():
    workspace.scan()
    for number in range(12):
        (cache / f"f{number}").write_text("more")
    workspace.scan(short=True)
assert all(size_of(workspace, f"lib{number % 4}/f{number}") == 4 for number in range(12))
"""


@pytest.mark.slow
@pytest.mark.parametrize("watches", [3, 16, 100])
def test_files_that_can_not_be_watched_are_scanned(tmp_path: Path, watches: int) -> None:
    """With a limit for no more than the folders, for some of the files, and for all."""
    limit = f"echo {watches} > /proc/sys/user/max_inotify_watches"
    program = ["unshare", "--user", "--map-root-user", "sh", "-c", f'{limit} && exec "$@"', "sh"]
    try:
        subprocess.run([*program, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the system lets no user namespace set a limit of its own")
    subprocess.run([*program, sys.executable, "-c", LIMITED, str(tmp_path)], check=True)
