"""What is awkward to record: limits, special files, files that change meanwhile, several sessions."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.rewind.trees import back, fingerprint, open_workspace, step
from whet.clock import SystemClock
from whet.contract.errors import StoreError
from whet.rewind import database
from whet.rewind.planning import AT_ONCE, UNRECORDED_NOW, UNRECORDED_THEN
from whet.rewind.pruning import forget_sessions, prune
from whet.rewind.recorder import Workspace, describe_left_out
from whet.rewind.scan import WorkspaceTooLarge
from whet.rewind.states import RecordLimits
from whet.rewind.steps import begin_step, end_step


def test_a_step_that_changes_nothing_writes_few_bytes(workspace: Workspace, tmp_path: Path) -> None:
    step(workspace, "true")
    log = next((tmp_path / "home" / "rewind").glob("*/files.db-wal"))
    before = log.stat().st_size
    step(workspace, "true", number=2)
    assert 0 < log.stat().st_size - before < 8_000


def test_the_first_scan_of_a_large_workspace_writes_its_contents_once(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    for number in range(12):
        (root / f"f{number}").write_bytes(os.urandom(1_000_000))
    first, _ = begin_step(workspace, "s", 1, 1)
    folder = next((tmp_path / "home" / "rewind").iterdir())
    assert (folder / "files.db").stat().st_size > 12_000_000
    assert (folder / "files.db-wal").stat().st_size < 100_000
    (root / "f3").unlink()
    end_step(workspace, first)
    assert not back(workspace, first).failed
    assert (root / "f3").stat().st_size == 1_000_000


def test_what_is_too_large_is_named_and_left_alone(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, RecordLimits(file_bytes=1_000))
    root = tmp_path / "work"
    (root / "large").write_bytes(b"x" * 2_000)
    (root / "small").write_bytes(b"x")
    first = step(workspace, "echo y >> large; echo y > small; head -c 3000 /dev/zero > new")
    assert "large (too large)" in describe_left_out(workspace.left_out())
    done = back(workspace, first)
    assert {conflict.path: conflict.why for conflict in done.conflicts} == {
        "large": UNRECORDED_THEN,
        "new": UNRECORDED_NOW,
    }
    assert (root / "small").read_bytes() == b"x" and (root / "new").exists()
    again = back(workspace, first, force=True)
    assert not (root / "new").exists() and [conflict.path for conflict in again.conflicts] == ["large"]


def test_with_little_room_the_largest_files_are_left_out(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, RecordLimits(total_bytes=400_000))
    root = tmp_path / "work"
    for name, size in (("a-large", 900_000), ("b-small", 90_000), ("c", 1_000)):
        (root / name).write_bytes(os.urandom(size))
    (root / "d").write_bytes(os.urandom(250_000))
    (root / "same-as-d").write_bytes((root / "d").read_bytes())  # takes no room
    begin_step(workspace, "s", 1, 1)
    assert [unrecorded.path for unrecorded in workspace.left_out()] == ["a-large"]


@pytest.mark.slow
@pytest.mark.parametrize("total_bytes", [2_000_000_000, 1_500_000])
def test_many_contents_are_packed_side_by_side_and_come_back(tmp_path: Path, total_bytes: int) -> None:
    """Packed, six megabytes take less than one: they fit where they would not as they are."""
    workspace = open_workspace(tmp_path, RecordLimits(total_bytes=total_bytes))
    root = tmp_path / "work"
    for number in range(300):
        (root / f"d{number % 7}").mkdir(exist_ok=True)
        (root / f"d{number % 7}" / f"f{number}").write_text(f"{number} of 300\n" * (number * 10))
    before = fingerprint(root)
    record = step(workspace, "rm -r d*")
    assert describe_left_out(workspace.left_out()) == ""
    back(workspace, record)
    assert fingerprint(root) == before
    workspace.close()


def test_a_workspace_with_too_many_files_is_refused(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, RecordLimits(paths=5))
    for index in range(6):
        (tmp_path / "work" / str(index)).touch()
    with pytest.raises(WorkspaceTooLarge, match="more than 5"):
        begin_step(workspace, "s", 1, 1)


def test_pipes_and_sockets_are_named_and_left_alone(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "f").write_text("1")
    with socket.socket(socket.AF_UNIX) as connection:
        here = Path.cwd()
        os.chdir(root)
        try:
            connection.bind("sock")
        finally:
            os.chdir(here)
        first = step(workspace, "echo 2 > f; mkfifo other")
        assert sorted(item.path for item in workspace.left_out()) == ["other", "pipe", "sock"]
        done = back(workspace, first)
    assert (root / "f").read_text() == "1" and (root / "pipe").exists()
    assert [conflict.path for conflict in done.conflicts] == ["other"]


def test_whets_home_is_no_part_of_a_workspace_around_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "secret").write_text("x")
    (tmp_path / "f").write_text("1")
    workspace = Workspace(tmp_path, tmp_path / "own", RecordLimits(), SystemClock())
    first = step(workspace, "echo 2 > f; echo y > own/secret")
    assert workspace.file.read_now(
        lambda db: database.find_changed_paths(db, 0, database.read_version(db))
    ) == {"f"}
    back(workspace, first)
    assert (tmp_path / "f").read_text() == "1" and (tmp_path / "own" / "secret").read_text() == "y\n"


def test_a_change_that_keeps_size_and_time_is_seen(workspace: Workspace, root: Path) -> None:
    path = root / "f"
    path.write_text("aaaa")
    os.utime(path, ns=(1, 1))
    first = step(workspace, "printf bbbb > f; touch -d @0 f")
    step(workspace, "printf cccc > f; touch -d @0 f", number=2)
    back(workspace, first)
    assert path.read_text() == "aaaa"


def test_changes_within_one_tick_of_the_clock_are_all_seen(workspace: Workspace, root: Path) -> None:
    path = root / "f"
    for number in range(1, 40):
        record, _ = begin_step(workspace, "s", 1, number)
        path.write_text(f"{number:04}")
        end_step(workspace, record)
    records = workspace.file.read_now(lambda db: database.list_records(db, "s"))
    assert all(one.after == one.before + 1 for one in records)
    back(workspace, records[20].id)
    assert path.read_text() == "0020"


def test_a_file_that_changes_while_it_is_read_is_read_again_later(workspace: Workspace, root: Path) -> None:
    path = root / "log"
    path.write_bytes(b"x" * 9_000_000)
    stop = threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"y")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        begin_step(workspace, "s", 1, 1)
    finally:
        stop.set()
        writer.join()
    known_state = workspace.find_known("log")
    assert known_state is not None and known_state.stamp is None
    with workspace.exclusive():
        workspace.scan()
    known_state = workspace.find_known("log")
    assert known_state is not None and known_state.state.size == path.stat().st_size


def test_large_files_are_stored_in_parts_and_told_apart_by_one(workspace: Workspace, root: Path) -> None:
    data = os.urandom(4_000_000)
    for name in ("one", "two"):
        (root / name).write_bytes(data + name.encode())
    back(workspace, step(workspace, "truncate -s 9 one two"))
    assert all((root / name).read_bytes() == data + name.encode() for name in ("one", "two"))


def test_a_file_that_rests_is_not_read_again(workspace: Workspace, root: Path) -> None:
    (root / "f").write_text("1")
    begin_step(workspace, "s", 1, 1)
    until_s = time.monotonic() + 60
    while (
        known_state := workspace.find_known("f")
    ) is None or known_state.stamp is None:  # it is too new to be sure of
        assert time.monotonic() < until_s
        with workspace.exclusive():
            workspace.scan()


def test_while_one_records_nobody_else_can(workspace: Workspace, tmp_path: Path) -> None:
    begin_step(workspace, "s", 1, 1)
    with next((tmp_path / "home").glob("rewind/*/lock")).open() as other:
        with workspace.exclusive(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_another_session_at_the_same_time_is_a_conflict(workspace: Workspace, root: Path) -> None:
    mine, _ = begin_step(workspace, "s", 1, 1)
    step(workspace, "echo theirs > both; echo theirs > theirs", session="other")
    (root / "mine").write_text("mine")
    end_step(workspace, mine)
    done = back(workspace, mine)
    assert {conflict.path: conflict.why for conflict in done.conflicts} == {
        "both": AT_ONCE,
        "theirs": AT_ONCE,
    }
    assert not (root / "mine").exists() and (root / "theirs").exists()


def test_lines_are_counted_in_the_first_hundred_files_of_a_step(workspace: Workspace, root: Path) -> None:
    record, _ = begin_step(workspace, "s", 1, 1)
    for number in range(101):
        (root / f"f{number:03}").write_text("1\n2\n")
    files = end_step(workspace, record)
    assert [(file.added, file.removed) for file in files] == [(2, 0)] * 100 + [(0, 0)]
    assert files[100].path == "f100" and files[100].before == "" != files[100].after


def test_steps_that_only_touch_in_time_are_merged(workspace: Workspace, root: Path) -> None:
    (root / "f").write_text("1\n2\n3\n4\n5\n6\n7\n")
    first = step(workspace, "touch g")
    step(workspace, "sed -i s/4/four/ f", session="other")
    step(workspace, "sed -i s/1/one/ f", number=2)
    step(workspace, "sed -i s/7/seven/ f", session="other", number=2)
    assert not back(workspace, first).conflicts
    assert (root / "f").read_text() == "1\n2\n3\nfour\n5\n6\nseven\n"


def test_what_tools_of_another_session_edited_meanwhile_is_theirs(workspace: Workspace, root: Path) -> None:
    mine, _ = begin_step(workspace, "s", 1, 1)
    step(workspace, "mkdir d; echo 1 > d/theirs; echo 1 > both", session="other", number=1)
    step(workspace, "echo 2 >> d/theirs", session="other", number=2)
    (root / "both").write_text("mine")
    (root / "mine").write_text("mine")
    end_step(workspace, mine)
    edited = {("other", 1, 1): {"d", "d/theirs", "both"}, ("other", 1, 2): {"d", "d/theirs"}}
    done = back(workspace, mine, edited=edited)
    assert {conflict.path: conflict.why for conflict in done.conflicts} == {"both": AT_ONCE}
    assert not (root / "mine").exists() and (root / "d" / "theirs").read_text() == "1\n2\n"

    first = workspace.file.read_now(lambda db: database.list_records(db, "other"))[0].id
    done = back(workspace, first, "other", edited=edited)
    assert {conflict.path: conflict.why for conflict in done.conflicts} == {"both": AT_ONCE}
    assert not (root / "d").exists() and (root / "both").read_text() == "mine"


def test_a_session_takes_back_only_its_own(workspace: Workspace, root: Path) -> None:
    first = step(workspace, "echo 1 > mine")
    step(workspace, "echo 1 > theirs", session="other")
    step(workspace, "echo 2 >> mine", number=2)
    back(workspace, first)
    assert [path.name for path in root.iterdir()] == ["theirs"]


@pytest.mark.slow
def test_git_commands_are_taken_back_with_their_repository(workspace: Workspace, root: Path) -> None:
    git = "git -c user.name=x -c user.email=x@example.com -c gc.auto=0"
    set_up = f"git init -q . && echo 1 > f && {git} add f && {git} commit -qm one && echo 2 > f"
    set_up += f" && {git} commit -qam two"
    subprocess.run(
        ["bash", "-c", set_up + " && mkdir in && cd in && git init -q . && echo 3 > g"],
        cwd=workspace.root,
        check=True,
    )
    before = fingerprint(root)
    destroy = f"{git} reset -q --hard HEAD~1; {git} reflog expire --expire=now --all"
    first = step(workspace, f"{destroy}; {git} gc -q --prune=now; rm -rf in/.git")
    back(workspace, first)
    assert fingerprint(root) == before
    process = subprocess.run(
        ["git", "log", "--format=%s"], cwd=workspace.root, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["two", "one"]


def test_no_link_leads_a_rewind_out_of_the_workspace(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "d").mkdir()
    (root / "d" / "f").write_text("1")
    first = step(workspace, "rm d/f")
    (root / "d").rmdir()
    (root / "d").symlink_to(outside)
    back(workspace, first, force=True)
    assert list(outside.iterdir()) == []


def test_old_records_go_and_what_only_they_held(workspace: Workspace, root: Path) -> None:
    (root / "f").write_bytes(os.urandom(100_000))
    step(workspace, "head -c 100000 /dev/urandom > f")
    step(workspace, "head -c 100000 /dev/urandom > f", number=2)

    def blobs() -> int:
        return workspace.file.read_now(lambda db: db.execute("SELECT count(*) FROM blobs").fetchall()[0][0])

    assert blobs() == 3
    assert prune(workspace.file, RecordLimits(), workspace.clock.unix_ms()) == 0
    assert prune(workspace.file, RecordLimits(days=1), workspace.clock.unix_ms() + 2 * 86_400_000) == 2
    assert blobs() == 1
    step(workspace, "echo 1 > g", session="gone")
    assert forget_sessions(workspace.file, ["gone"]) == 1


def test_a_full_record_loses_its_oldest_steps_until_there_is_room(workspace: Workspace) -> None:
    for number in range(8):
        step(workspace, "head -c 100000 /dev/urandom > f", number=number)
    newest = workspace.file.read_now(lambda db: database.list_records(db, "s"))[-1]
    assert prune(workspace.file, RecordLimits(total_bytes=600_000), workspace.clock.unix_ms()) > 0
    assert workspace.file.read_now(database.used_bytes) <= 420_000
    assert workspace.file.read_now(lambda db: database.list_records(db, "s"))[-1] == newest


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_is_said_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(tmp_path / "home")], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        workspace = open_workspace(tmp_path)
        (tmp_path / "work" / "f").write_bytes(os.urandom(3_000_000))
        with pytest.raises((StoreError, OSError)):
            begin_step(workspace, "s", 1, 1)
        workspace.close()
    finally:
        subprocess.run(["umount", str(tmp_path / "home")], check=True)
