"""A new record keeps files that a cache holds, too, by a link: none is copied, and all of them come back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, running, shell
from tests.rewind.trees import back, fingerprint, step
from whet.clock import SystemClock
from whet.rewind import database
from whet.rewind.pruning import forget_sessions
from whet.rewind.recorder import Workspace
from whet.rewind.rewinding import Point
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step

_FILES = 6
_BYTES = 1_000_000


def cached_tree(folder: Path) -> list[Path]:
    """Make `folder`/work with large files that `folder`/cache holds, too; return their paths in the cache."""
    files: list[Path] = []
    for number in range(_FILES):
        cached, linked = folder / "cache" / f"f{number}", folder / "work" / "lib" / f"f{number}"
        for path in (cached, linked):
            path.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(os.urandom(_BYTES + number))
        os.link(cached, linked)
        files.append(cached)
    (folder / "work" / "own").write_text("own\n")
    os.link(folder / "work" / "own", folder / "work" / "twin")
    return files


def guarded(folder: Path) -> Workspace:
    """Return the record of `folder`/work where commands can't write through a link."""
    return Workspace(folder / "work", folder / "home", RecordLimits(), SystemClock(), lambda: True)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("files.db*"))


def kept(folder: Path) -> Sequence[Path]:
    return sorted((folder / "home").rglob("linked/*"))


def test_deleted_files_of_a_cache_come_back_although_none_was_copied(tmp_path: Path) -> None:
    cache = cached_tree(tmp_path)
    workspace = guarded(tmp_path)
    before = fingerprint(tmp_path / "work")
    record = step(workspace, "rm -r lib own")
    assert size_of(tmp_path / "home") < _BYTES
    assert [os.path.samefile(path, link) for path in cache for link in kept(tmp_path)].count(True) == _FILES
    for path in cache:
        path.unlink()
    assert back(workspace, record, force=True).failed == {}
    assert fingerprint(tmp_path / "work") == before
    workspace.close()


def test_a_file_whose_kept_content_was_written_outside_is_named_and_left(tmp_path: Path) -> None:
    cache = cached_tree(tmp_path)
    workspace = guarded(tmp_path)
    record = step(workspace, "rm -r lib")
    with cache[2].open("r+b") as file:
        file.write(b"another program")
    assert back(workspace, record, force=True).failed == {"lib/f2": "its recorded content is gone"}
    assert [path.name for path in sorted((tmp_path / "work/lib").iterdir())] == ["f0", "f1", "f3", "f4", "f5"]
    workspace.close()


def test_links_end_with_the_session_that_needed_them(tmp_path: Path) -> None:
    cache = cached_tree(tmp_path)
    workspace = guarded(tmp_path)
    step(workspace, "rm -r lib")
    assert len(kept(tmp_path)) == _FILES
    with workspace.exclusive():
        assert forget_sessions(workspace.file, ["s"]) == 1
    assert list(kept(tmp_path)) == []
    assert {path.stat().st_nlink for path in cache} == {1}
    workspace.close()


def test_a_scan_that_was_cut_off_leaves_nothing_that_stops_the_next(tmp_path: Path) -> None:
    cached_tree(tmp_path)
    workspace = guarded(tmp_path)
    first = step(workspace, "true")
    workspace.close()
    next((tmp_path / "home").rglob("files.db")).unlink()
    again = guarded(tmp_path)
    record = step(again, "rm -r lib")
    assert back(again, record, force=True).failed == {}
    assert record == first and len(kept(tmp_path)) == _FILES
    again.close()


def test_without_a_sandbox_contents_are_copied(tmp_path: Path) -> None:
    cache = cached_tree(tmp_path)
    workspace = Workspace(tmp_path / "work", tmp_path / "home", RecordLimits(), SystemClock())
    record = step(workspace, f"echo more >> lib/f1; cat lib/f1 | cmp - {cache[1]}")
    assert kept(tmp_path) == []
    assert back(workspace, record, force=True).failed == {}
    assert (tmp_path / "work/lib/f1").stat().st_size == _BYTES + 1
    workspace.close()


def test_links_of_a_new_record_are_no_changes_to_look_for(tmp_path: Path) -> None:
    cached_tree(tmp_path)
    workspace = guarded(tmp_path)
    number, _ = begin_step(workspace, "s", 1, 1)
    assert len(kept(tmp_path)) == _FILES
    listed: list[object] = []
    is_counted = True

    def note(event: str, _: tuple[object, ...]) -> None:
        if event == "os.scandir" and is_counted:
            listed.append(event)

    sys.addaudithook(note)  # stays for good
    assert end_step(workspace, number) == []
    is_counted = False
    assert not listed
    with (tmp_path / "cache" / "f1").open("r+b") as file:
        file.write(b"another program")
    number, _ = begin_step(workspace, "s", 1, 2)
    changed = workspace.file.read_now(
        lambda db: database.find_changed_paths(db, 1, database.read_version(db))
    )
    assert changed == {"lib/f1"}
    workspace.close()


@pytest.mark.slow
async def test_what_a_sandboxed_command_appends_to_a_linked_file_is_taken_back(tmp_path: Path) -> None:
    cache = cached_tree(tmp_path)
    before = fingerprint(tmp_path / "work")
    async with running(tmp_path, [shell("echo more >> lib/f1; rm lib/f2"), ANSWER]) as run:
        await run.turn()
        if not run.app.services.confinement.get().status().holds:
            pytest.skip("no sandbox works here")
        assert len(kept(tmp_path)) == _FILES
        assert fingerprint(tmp_path / "work") != before
        subprocess.run(["rm", "-r", tmp_path / "cache"], check=True)
        done = await run.rewinding.rewind(Point(1), "files", force=False)
        assert not done.files.failed and not done.files.conflicts
    assert fingerprint(tmp_path / "work") == before
    assert len(cache) == _FILES
