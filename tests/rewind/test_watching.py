"""A short look, by what the kernel told, finds what a whole one finds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewind.trees import fill, script, unlock, workspace
from whet.clock import SystemClock
from whet.rewind.recorder import Workspace
from whet.rewind.states import PathState, RecordLimits
from whet.rewind.watching import FolderWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's interface is Linux's")


def states(made: Workspace) -> dict[str, PathState]:
    found: dict[str, PathState] = {}
    stack = [""]
    while stack:
        folder = stack.pop()
        for path in made.paths_in(folder):
            known = made.known(path)
            assert known is not None
            found[path] = known.state
            if known.state.kind == "folder":
                stack.append(path)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_short_look_finds_what_a_whole_one_finds(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = workspace(tmp_path)
    root = tmp_path / "work"
    fill(root, rng)
    with made.alone():
        made.look()
        for number in range(4):
            small = f"echo {number} > src/x{number}; echo y >> hard; chmod 640 .h*; rm -f link; true"
            command = small if rng.random() < 0.6 else script(rng)
            subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, check=False)
            made.look(short=True)
            fresh = Workspace(root, tmp_path / f"fresh{number}", RecordLimits(), SystemClock())
            with fresh.alone():
                fresh.look()
            assert states(made) == states(fresh), (seed, number, command)
    unlock(tmp_path)


def test_nothing_is_heard_of_a_quiet_workspace_and_the_folder_of_a_change_is(tmp_path: Path) -> None:
    made = workspace(tmp_path)
    (tmp_path / "work" / "d").mkdir()
    watch = FolderWatch(made.root)
    watch.begin()
    for folder in ("", "d"):
        handle = os.open(tmp_path / "work" / folder, os.O_RDONLY)
        watch.add(folder, handle)
        os.close(handle)
    assert watch.changed() == set()
    (tmp_path / "work" / "d" / "f").write_text("x")
    assert watch.changed() == {"d"}
    (tmp_path / "work" / "new").mkdir()
    assert watch.changed() is None
    assert watch.changed() is None


def test_a_look_that_failed_is_followed_by_a_whole_one(tmp_path: Path) -> None:
    made = workspace(tmp_path)
    path = tmp_path / "work" / "f"
    path.write_text("1")
    with made.alone():
        made.look()
        path.write_text("22")
        database = made.file
        database.close()
        with pytest.raises(Exception, match="closed"):
            made.look(short=True)
        made.close()
        made.look(short=True)
        known = made.known("f")
        assert known is not None and known.state.size == 2
