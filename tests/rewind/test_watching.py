"""A short scan, by what the kernel told, finds what a whole one finds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewind.trees import fill, script, unlock
from tests.support import FixedClock
from whet.clock import SystemClock
from whet.rewind.recorder import Workspace
from whet.rewind.states import PathState, RecordLimits
from whet.rewind.steps import begin_step, end_step
from whet.rewind.watching import FolderChanges, FolderWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's interface is Linux's")


def states(workspace: Workspace) -> dict[str, PathState]:
    path_states: dict[str, PathState] = {}
    stack = [""]
    while stack:
        folder = stack.pop()
        for path in workspace.paths_in(folder):
            known_state = workspace.find_known(path)
            assert known_state is not None
            path_states[path] = known_state.state
            if known_state.state.kind == "folder":
                stack.append(path)
    return path_states


@pytest.mark.fast_rows("0", "1")
@pytest.mark.parametrize("seed", range(6))
def test_a_short_scan_finds_what_a_whole_one_finds(
    workspace: Workspace, root: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    fill(root, rng)
    with workspace.exclusive():
        workspace.scan()
        for number in range(4):
            small = f"echo {number} > src/x{number}; echo y >> hard; chmod 640 .h*; rm -f link; true"
            command = small if rng.random() < 0.6 else script(rng)
            subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, check=False)
            workspace.scan(short=True)
            fresh = Workspace(root, tmp_path / f"fresh{number}", RecordLimits(), SystemClock())
            with fresh.exclusive():
                fresh.scan()
            assert states(workspace) == states(fresh), (seed, number, command)
    unlock(tmp_path)


def test_a_file_that_is_gone_by_then_is_not_watched(root: Path) -> None:
    watch = FolderWatch(str(root))
    watch.begin()
    (root / "here").touch()
    handle = os.open(root, os.O_RDONLY)
    try:
        assert [watch.add_file("", handle, name) for name in ("here", "gone")] == [True, False]
    finally:
        os.close(handle)
        watch.close()


def test_nothing_is_heard_of_a_quiet_workspace_and_the_folder_of_a_change_is(
    workspace: Workspace, root: Path
) -> None:
    (root / "d" / "e").mkdir(parents=True)
    watch = FolderWatch(workspace.root)
    watch.begin()
    for folder in ("", "d", "d/e"):
        handle = os.open(root / folder, os.O_RDONLY)
        watch.add(folder, handle)
        os.close(handle)
    assert watch.read_changes() == FolderChanges(set(), set())
    (root / "d" / "f").write_text("x")
    assert watch.read_changes() == FolderChanges({"d"}, set())
    (root / "d" / "new").mkdir()
    assert watch.read_changes() == FolderChanges({"d"}, {"d/new"})
    (root / "d" / "e").rmdir()
    (root / "d" / "e").mkdir()
    assert watch.read_changes() == FolderChanges({"d"}, {"d/e"})
    (root / "d").rename(root / "c")
    assert watch.read_changes() is None
    assert watch.read_changes() is None


ACTS = (
    "mkdir -p {a}/{b}/{c} && echo {n} > {a}/{b}/{c}/f{n}",
    "rm -rf {a}; mkdir -p {a}/{b}; echo {n} > {a}/{b}/f",
    "rm -rf {a}/{b}",
    "rm -rf {a}; ln -s ../elsewhere {a}",
    "rm -rf {a}; echo {n} > {a}",
    "test -d {a} && cd {a} && rm -rf ../{a} && mkdir -p ../{a}/{b} && echo {n} > ../{a}/{b}/g",
    "test -f {a} && rm {a}; mkdir -p {a}; chmod 7{c}0 {a}",
    "mv {a} {b}",
    "echo {n} >> {a}/{b}/f",
    "ln -f {a}/{b}/f {b}-hard; echo {n} >> {b}-hard",
    "echo {n} >> ../elsewhere/{b}/f; mkdir -p ../elsewhere/{b}/new{n}",
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_folders_that_come_and_go_are_followed(
    workspace: Workspace, root: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for name in "567":
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
    with workspace.exclusive():
        workspace.scan()
        for number in range(12):
            acts = [
                rng.choice(ACTS).format(
                    a=rng.choice("567"), b=rng.choice("567"), c=rng.choice("567"), n=number
                )
                for _ in range(rng.randrange(1, 4))
            ]
            command = "; ".join(f"({act})" for act in acts)
            subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, check=False)
            workspace.scan(short=True)
            fresh = Workspace(root, tmp_path / f"fresh{number}", RecordLimits(), SystemClock())
            with fresh.exclusive():
                fresh.scan()
            fresh.close()
            assert states(workspace) == states(fresh), (seed, number, command)
    workspace.close()
    unlock(tmp_path)


def test_the_first_step_of_a_turn_scans_only_where_something_changed(tmp_path: Path) -> None:
    """Seen by what such a scan can't see: a write by a name that the file got elsewhere in the meantime."""
    (tmp_path / "work" / "d").mkdir(parents=True)
    (tmp_path / "work" / "d" / "f").write_text("1")
    clock = FixedClock()
    workspace = Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(), clock)
    end_step(workspace, begin_step(workspace, "s", 1, 1)[0])
    os.link(tmp_path / "work" / "d" / "f", tmp_path / "outside")
    (tmp_path / "outside").write_text("22")
    (tmp_path / "work" / "new" / "below").mkdir(parents=True)
    (tmp_path / "work" / "new" / "below" / "f").write_text("1")
    end_step(workspace, begin_step(workspace, "s", 2, 1)[0])
    assert states(workspace)["new/below/f"].size == 1
    assert states(workspace)["d/f"].size == 1
    clock.advance(601)
    end_step(workspace, begin_step(workspace, "s", 3, 1)[0])
    assert states(workspace)["d/f"].size == 2
    workspace.close()


def test_a_write_by_a_name_outside_is_seen(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_text("1")
    os.link(root / "d" / "f", tmp_path / "outside")
    with workspace.exclusive():
        workspace.scan()
        (tmp_path / "outside").write_text("22")
        workspace.scan(short=True)
    known_state = workspace.find_known("d/f")
    assert known_state is not None and known_state.state.size == 2


def test_a_scan_that_failed_is_followed_by_a_whole_one(workspace: Workspace, root: Path) -> None:
    path = root / "f"
    path.write_text("1")
    with workspace.exclusive():
        workspace.scan()
        path.write_text("22")
        database = workspace.file
        database.close()
        with pytest.raises(Exception, match="closed"):
            workspace.scan(short=True)
        workspace.close()
        workspace.scan(short=True)
        known_state = workspace.find_known("f")
        assert known_state is not None and known_state.state.size == 2
