"""Folders of linked packages are recorded only before something may change them, as they have always been."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, call, running, shell
from tests.rewind.test_kept_links import guarded
from tests.rewind.trees import back, fingerprint
from whet.contract.errors import NotFound, StoreBusy, ToolError
from whet.rewind import database, recorder
from whet.rewind.pruning import forget_sessions
from whet.rewind.record_path import record_path
from whet.rewind.recorder import Workspace, hold_lock
from whet.rewind.rewinding import Point
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step

_FILES, _LARGE = 240, 24
_HELD = frozenset({"env/lib/site", "modules"})


class Holding:
    """A sandbox that holds folders until `write` says that a command is about to change one."""

    def __init__(self, held: frozenset[str] = _HELD) -> None:
        self.held: frozenset[str] = held
        self.records: list[Callable[[frozenset[str]], None]] = []

    def hold(self, record: Callable[[frozenset[str]], None]) -> frozenset[str]:
        self.records.append(record)
        return self.held

    def write(self, folder: str) -> None:
        self.held -= {folder}
        self.records[-1](self.held)


def linked_tree(folder: Path) -> None:
    """Make `folder`/work with two folders of packages, which `folder`/cache holds, too, and files beside."""
    for number in range(_LARGE):
        cached = folder / "cache" / f"{number}.py"
        where = "env/lib/site" if number % 2 else "modules"
        linked = folder / "work" / where / f"p{number % 12}" / f"{number}.py"
        for path in (cached, linked):
            path.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(os.urandom(500_000))
        os.link(cached, linked)
    (folder / "work/env/own").write_text("own\n")
    os.link(folder / "work/modules/p0/0.py", folder / "work/twin.py")


def recorded(workspace: Workspace) -> list[str]:
    """Return the paths that the record holds now, without packages' own."""
    _, tree = workspace.file.read_now(database.load_tree)
    return sorted(
        f"{folder}/{name}" for folder, names in tree.items() for name in names if "/p" not in folder
    )


def test_a_held_folder_is_recorded_before_it_is_changed_and_comes_back(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    before = fingerprint(tmp_path / "work")
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    assert recorded(workspace) == ["/env", "/twin.py", "env/lib", "env/own"]
    sandbox.write("modules")
    assert "/modules" in recorded(workspace) and "env/lib/site" not in recorded(workspace)
    subprocess.run(["sh", "-c", "rm -r modules; echo new > made"], cwd=workspace.root, check=True)
    changed = [lines.path for lines in end_step(workspace, record) if lines.path.endswith(".py")]
    assert len(changed) == _LARGE // 2
    assert back(workspace, record, force=True).failed == {}
    assert fingerprint(tmp_path / "work") == before
    workspace.close()


def test_recording_a_held_folder_later_is_no_change_of_a_step(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    sandbox.write("modules")
    assert end_step(workspace, record) == []
    with workspace.exclusive():
        version = workspace.scan()
    changed = workspace.file.read_now(lambda db: database.find_changed_paths(db, 0, version))
    assert {path.split("/")[0] for path in changed} == {"env", "twin.py"}
    workspace.close()


def test_a_held_file_that_was_written_by_a_name_outside_its_folder_comes_back(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    sandbox.write("modules")
    before = fingerprint(tmp_path / "work")
    subprocess.run(["sh", "-c", "echo more >> twin.py"], cwd=workspace.root, check=True)
    end_step(workspace, record)
    assert back(workspace, record, force=True).failed == {}
    assert fingerprint(tmp_path / "work") == before
    workspace.close()


@pytest.mark.fast_rows("True")
@pytest.mark.parametrize("holds", [True, False])
def test_another_process_goes_on_with_what_was_left_out(tmp_path: Path, *, holds: bool) -> None:
    linked_tree(tmp_path)
    workspace = guarded(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1, Holding().hold)[0])
    workspace.close()
    again, sandbox = guarded(tmp_path), Holding()
    before = fingerprint(tmp_path / "work")
    record, _ = begin_step(again, "s", 2, 1, sandbox.hold if holds else None)
    assert ("env/lib/site" in recorded(again)) is not holds
    if holds:
        sandbox.write("env/lib/site")
    shutil.rmtree(tmp_path / "work/env")
    end_step(again, record)
    assert back(again, record, force=True).failed == {}
    assert fingerprint(tmp_path / "work") == before
    again.close()


def test_two_processes_record_a_held_folder_once(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, other = guarded(tmp_path), guarded(tmp_path)
    sandboxes = Holding(), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandboxes[0].hold)
    begin_step(other, "o", 1, 1, sandboxes[1].hold)
    for sandbox in sandboxes:
        sandbox.write("modules")
    assert end_step(workspace, record) == []
    assert recorded(workspace) == recorded(other)
    workspace.close()
    other.close()


def test_a_folder_that_could_not_be_recorded_is_an_error_of_the_step(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    workspace.limits = RecordLimits(paths=10)
    sandbox.write("modules")
    workspace.limits = RecordLimits()
    with pytest.raises(Exception, match="more than 10 files and folders"):
        end_step(workspace, record)
    assert originals(workspace) == ["env", "twin.py"], "it may be changed by now"
    with workspace.exclusive():
        workspace.scan()
    assert "/modules" in recorded(workspace) and originals(workspace) == ["env", "twin.py"]
    workspace.close()


def originals(workspace: Workspace) -> list[str]:
    """Return what the workspace held before its first step, as the record says."""
    rows = workspace.file.read_now(lambda db: list(db.execute("SELECT path FROM entries WHERE since <= 1")))
    return sorted({os.fsdecode(path).split("/")[0] for (path,) in rows} - {""})


def test_a_held_folder_is_not_written_while_another_process_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    monkeypatch.setattr(recorder, "PATIENCE_S", 0.0)
    lock = hold_lock(record_path(tmp_path / "home", workspace.root).parent)
    with lock, pytest.raises(ToolError, match="another session is recording this workspace"):
        sandbox.write("modules")
    assert end_step(workspace, record) == [], "nothing was changed, so that the step is whole"
    sandbox.write("modules")
    assert "modules" in originals(workspace)
    workspace.close()


@pytest.mark.fast_rows("False")
@pytest.mark.parametrize("holds", [True, False])
def test_a_step_that_is_not_recorded_leaves_no_original_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, holds: bool
) -> None:
    linked_tree(tmp_path)
    workspace = guarded(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1, Holding().hold)[0])
    workspace.close()
    again, sandbox = guarded(tmp_path), Holding()
    monkeypatch.setattr(recorder, "PATIENCE_S", 0.0)
    with hold_lock(record_path(tmp_path / "home", again.root).parent), pytest.raises(StoreBusy):
        begin_step(again, "s", 2, 1, sandbox.hold if holds else None)
    shutil.rmtree(tmp_path / "work/modules/p0")
    record, _ = begin_step(again, "s", 2, 2, sandbox.hold if holds else None)
    assert "/modules" in recorded(again) and originals(again) == ["env", "twin.py"]
    assert end_step(again, record) == []
    again.close()


def test_a_held_folder_without_a_workspace_is_an_error_of_the_step(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    with pytest.raises(ToolError):
        sandbox.write("modules")
    with pytest.raises(NotFound):
        end_step(workspace, record)
    workspace.close()


def test_a_held_folder_that_is_gone_is_nothing_to_record(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    record, _ = begin_step(workspace, "s", 1, 1, sandbox.hold)
    shutil.rmtree(tmp_path / "work/modules")
    sandbox.write("modules")
    assert end_step(workspace, record) == []
    assert workspace.deferred == {"env/lib/site"}
    workspace.close()


def test_a_forgotten_record_leaves_nothing_out(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace = guarded(tmp_path)
    end_step(workspace, begin_step(workspace, "s", 1, 1, Holding().hold)[0])
    with workspace.exclusive():
        forget_sessions(workspace.file, ["s"])
        workspace.scan()
    assert "env/lib/site" in recorded(workspace)
    workspace.close()


_WAYS = {
    "write": [shell("echo more >> env/lib/site/p1/1.py")],
    "remove": [shell("rm env/lib/site/p1/1.py")],
    "rename": [shell("mv env moved")],
    "delete the folder": [shell("rm -r env")],
    "write_file": [call("write_file", path="env/lib/site/p1/1.py", content="new\n")],
}


@pytest.mark.slow
@pytest.mark.parametrize("way", _WAYS)
async def test_packages_come_back_whichever_way_a_step_changes_them(tmp_path: Path, way: str) -> None:
    for number in range(_FILES):
        cached, linked = (
            tmp_path / f"cache/{number}.py",
            tmp_path / f"work/env/lib/site/p{number % 12}/{number}.py",
        )
        for path in (cached, linked):
            path.parent.mkdir(parents=True, exist_ok=True)
        cached.write_text("safe\n")
        os.link(cached, linked)
    before = fingerprint(tmp_path / "work")
    async with running(tmp_path, [shell("echo new > own"), ANSWER, *_WAYS[way], ANSWER]) as run:
        await run.turn()
        if not run.app.services.confinement.get().status().holds:
            pytest.skip("no sandbox works here")
        workspace = run.app.services.recordings.get().workspace_of(tmp_path / "work")
        assert workspace.deferred == {"env/lib/site"}
        assert recorded(workspace) == ["/env", "/own", "env/lib"]
        await run.turn()
        assert workspace.deferred == frozenset()
        done = await run.rewinding.rewind(Point(2), "files", force=False)
        assert not done.files.failed and not done.files.conflicts
        (tmp_path / "work/own").unlink()
    assert fingerprint(tmp_path / "work") == before
    assert {path.read_text() for path in (tmp_path / "cache").iterdir()} == {"safe\n"}


def test_the_sandbox_is_asked_once_for_the_folders_that_it_holds(tmp_path: Path) -> None:
    linked_tree(tmp_path)
    workspace, sandbox = guarded(tmp_path), Holding()
    for number in (1, 2, 3):
        end_step(workspace, begin_step(workspace, "s", 1, number, sandbox.hold)[0])
    assert len(sandbox.records) == 1 and workspace.deferred == _HELD
    workspace.close()
