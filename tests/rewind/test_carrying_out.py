"""What a plan meets that was made a while ago: work half done, files that others changed, folders."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

from tests.rewind.trees import back, open_workspace, step
from whet.rewind.contents import Contents
from whet.rewind.folders import open_root
from whet.rewind.planning import Change
from whet.rewind.recorder import Workspace
from whet.rewind.restoring import Restorer, RestoreResult
from whet.rewind.states import why_left_out
from whet.rewind.taking_back import Scope, find_changed_files, plan_rewind


def carried_out(workspace: Workspace, changes: list[Change]) -> RestoreResult:
    """Carry a plan out as whoever comes after a kill does."""
    with workspace.exclusive():
        workspace.scan()
        return Restorer(workspace, 1, {}).restore(changes)


def test_what_somebody_changed_after_the_plan_is_left_and_named(workspace: Workspace, root: Path) -> None:
    for name in ("theirs", "ours", "done"):
        (root / name).write_text("old")
    first = step(workspace, "echo new > theirs; echo new > ours; echo new > done")
    changes = list(plan_rewind(workspace, first, "s", Scope({"s"}, force=False, files=(), edited={})).changes)
    (root / "theirs").write_text("a later edit")
    (root / "done").write_text("old")
    done = carried_out(workspace, changes)
    assert done.failed == {"theirs": "changed while the rewind was under way"}
    assert [(root / name).read_text() for name in ("theirs", "ours", "done")] == [
        "a later edit",
        "old",
        "old",
    ]
    assert done.paths == 1


def test_a_file_that_gives_way_to_a_folder_may_be_gone_already(workspace: Workspace, root: Path) -> None:
    (root / "was-file").write_text("text")
    (root / "was-folder").mkdir()
    (root / "was-folder" / "inside").write_text("inside")
    first = step(workspace, "rm was-file; mkdir was-file; rm -r was-folder; echo now > was-folder")
    changes = list(plan_rewind(workspace, first, "s", Scope({"s"}, force=False, files=(), edited={})).changes)
    (root / "was-file").rmdir()
    (root / "was-folder").unlink()
    assert not carried_out(workspace, changes).failed
    assert (root / "was-file").read_text() == "text"
    assert (root / "was-folder" / "inside").read_text() == "inside"


def test_a_file_that_somebody_removed_after_the_plan_is_not_made_again(
    workspace: Workspace, root: Path
) -> None:
    (root / "f").write_text("old")
    first = step(workspace, "echo new > f")
    changes = list(plan_rewind(workspace, first, "s", Scope({"s"}, force=False, files=(), edited={})).changes)
    (root / "f").unlink()
    assert carried_out(workspace, changes).failed == {"f": "changed while the rewind was under way"}
    assert not (root / "f").exists()


def test_only_what_keeps_a_later_edit_is_called_merged(workspace: Workspace, root: Path) -> None:
    lines = "".join(f"line {n}\n" for n in range(30))
    (root / "both").write_text(lines)
    (root / "alone").write_text("old")
    first = step(workspace, "sed -i 's/line 3$/LINE 3/' both; echo new > alone")
    (root / "both").write_text((root / "both").read_text().replace("line 25", "a later edit"))
    done = back(workspace, first)
    assert {change.path: change.merged for change in done.changes} == {"both": True, "alone": False}
    assert (root / "both").read_text() == lines.replace("line 25", "a later edit")


def test_what_changed_since_a_step_names_files_and_no_folders(workspace: Workspace, root: Path) -> None:
    step(workspace, "mkdir d; echo 1 > f; echo 1 > same")
    (root / "f").write_text("2")
    (root / "d" / "new").write_text("1")
    (root / "d").chmod(0o700)
    (root / "e").mkdir()
    assert find_changed_files(workspace, "s", {(1, 1), (1, 2)}) == {(1, 1): ["d/new", "f"]}


def test_a_file_that_became_a_link_before_it_was_read_is_left_out(workspace: Workspace, root: Path) -> None:
    (root / "f").write_text("1")
    seen = (root / "f").stat()
    (root / "f").unlink()
    (root / "f").symlink_to("/etc/hostname")
    root_fd = open_root(workspace.root)
    try:
        known_state = Contents(workspace.file, root_fd, time.time_ns(), 1_000).read("f", seen, 1_000, None)
    finally:
        os.close(root_fd)
    assert known_state is not None and known_state.state.kind == "left_out"
    assert why_left_out(known_state.state).startswith("can't be read")


def test_no_mode_is_set_through_a_link_that_takes_a_files_place(tmp_path: Path) -> None:
    """The link is put there at the last moment: as the mode of the name is about to be set."""
    workspace, root, outside = open_workspace(tmp_path), tmp_path / "work", tmp_path / "theirs"
    file = root / "run.sh"
    file.write_text("text")
    outside.write_text("")
    for path in (file, outside):
        path.chmod(0o600)
    first = step(workspace, "chmod 755 run.sh")
    changes = list(plan_rewind(workspace, first, "s", Scope({"s"}, force=False, files=(), edited={})).changes)
    swapped: list[str] = []

    def swap(event: str, given: tuple[object, ...]) -> None:
        if event not in ("os.chmod", "open") or given[0] != "run.sh" or swapped:
            return
        if event == "os.chmod" or (isinstance(given[2], int) and given[2] & os.O_PATH):
            swapped.append(event)
            file.unlink()
            file.symlink_to(outside)

    outside.chmod(0o640)
    sys.addaudithook(swap)
    done = carried_out(workspace, changes)
    assert swapped and done.paths == 0 and set(done.failed) == {"run.sh"}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o640
