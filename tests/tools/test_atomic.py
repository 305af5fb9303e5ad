"""Several files change as one: whatever fails in the middle, each is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from whet.contract.errors import ToolDenied, ToolError
from whet.tools.atomic import PendingWrite, fingerprint, write_all
from whet.tools.paths import resolve


def never() -> bool:
    return False


@pytest.fixture
def changes(tmp_path: Path) -> list[PendingWrite]:
    (tmp_path / "a").write_text("old a")
    (tmp_path / "b").write_text("old b")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/last").write_text("old last")
    wanted = {"a": b"new a", "fresh": b"new", "b": None, "sub/last": b"new last"}
    pending: list[PendingWrite] = []
    for name, data in wanted.items():
        target = resolve(name, tmp_path)
        old = target.path.read_bytes() if target.path.exists() else None
        pending.append(PendingWrite(target, data, fingerprint(target), old))
    return pending


def test_all_is_done(tmp_path: Path, changes: list[PendingWrite]) -> None:
    write_all(changes, never)
    assert sorted(os.listdir(tmp_path)) == ["a", "fresh", "sub"]
    assert (tmp_path / "a").read_text() == "new a" and (tmp_path / "sub/last").read_text() == "new last"


def swap_folder(folder: Path) -> None:
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to(folder.parent)


@pytest.mark.parametrize(
    "meddle",
    [
        lambda folder: (folder / "sub/last").write_text("edited by somebody"),
        lambda folder: (folder / "sub/last").unlink(),
        swap_folder,
    ],
    ids=["edit", "remove", "swap"],
)
def test_a_late_failure_puts_everything_back(
    tmp_path: Path, changes: list[PendingWrite], meddle: Callable[[Path], object]
) -> None:
    def is_stopped() -> bool:
        meddle(tmp_path)
        return False

    with pytest.raises((ToolError, ToolDenied)):
        write_all(changes, is_stopped)
    assert (tmp_path / "a").read_text() == "old a" and (tmp_path / "b").read_text() == "old b"
    assert not (tmp_path / "fresh").exists()
    assert not any(name.startswith(".whet-") for name in os.listdir(tmp_path))


def test_a_stop_before_the_first_rename_changes_nothing(tmp_path: Path, changes: list[PendingWrite]) -> None:
    with pytest.raises(ToolError, match="stopped"):
        write_all(changes, lambda: True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "sub"]
    assert os.listdir(tmp_path / "sub") == ["last"]


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    change = PendingWrite(resolve("new", tmp_path), b"mine", None)
    (tmp_path / "new").write_text("theirs")
    with pytest.raises(ToolError, match="changed meanwhile"):
        write_all([change], never)
    assert (tmp_path / "new").read_text() == "theirs"


def replace(folder: Path, name: str, data: bytes) -> list[str]:
    path = resolve(name, folder)
    return write_all([PendingWrite(path, data, fingerprint(path), path.path.read_bytes())], never)


def test_hard_links_within_the_workspace_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "sub").mkdir()
    os.link(tmp_path / "a", tmp_path / "sub/b")
    assert replace(tmp_path, "a", b"longer than before") == [""]
    assert (tmp_path / "sub/b").read_text() == "longer than before"
    assert replace(tmp_path, "a", b"x") == [""]
    assert (tmp_path / "sub/b").read_text() == "x"
    assert sorted(os.listdir(tmp_path)) == ["a", "sub"]


def test_a_file_that_is_shared_with_another_folder_is_not_changed_there(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("old")
    workspace = tmp_path / "ws"
    workspace.mkdir()
    os.link(tmp_path / "cache", workspace / "a")
    replace(workspace, "a", b"new")
    assert (workspace / "a").read_text() == "new"
    assert (tmp_path / "cache").read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_extended_attributes_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    try:
        os.setxattr(tmp_path / "a", "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    assert replace(tmp_path, "a", b"new") == [""]
    assert os.getxattr(tmp_path / "a", "user.note") == b"kept"
    assert (tmp_path / "a").read_text() == "new"


_WRITE_MOUNTED = """
import sys
from pathlib import Path
from whet.beneath import replace_beneath
from whet.config.paths import replace_file
from whet.memory.disk import swap
from whet.store.ledger import hash_text
from whet.tools.atomic import PendingWrite, fingerprint, write_all
from whet.tools.paths import resolve

folder = Path(sys.argv[1])
path = folder / "mounted"
place = resolve("mounted", folder)
write_all([PendingWrite(place, b"one", fingerprint(place), b"old")], lambda: False)
assert path.read_bytes() == b"one"
replace_file(path, "two", mode=0o600)
assert path.read_bytes() == b"two"
replace_beneath(folder, "mounted", b"three")
assert path.read_bytes() == b"three"
swap(path, hash_text(b"three"), b"four")
"""


def write_mounted(folder: Path, mount: str, code: str) -> subprocess.CompletedProcess[str]:
    source, workspace = folder / "source", folder / "ws"
    source.write_text("old")
    workspace.mkdir()
    (workspace / "mounted").write_text("")
    script = f'{mount} && exec "$2" -c "$3" "$1"'
    unshared = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, source, workspace]
    done = subprocess.run([*unshared, sys.executable, code], capture_output=True, text=True, check=False)
    if "not permitted" in done.stderr:
        pytest.skip("no mounts for this user")
    assert os.listdir(workspace) == ["mounted"]
    return done


@pytest.mark.slow
def test_a_file_that_is_mounted_by_itself_is_written(tmp_path: Path) -> None:
    done = write_mounted(tmp_path, 'mount --bind "$0" "$1/mounted"', _WRITE_MOUNTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "source").read_text() == "four"


_WRITE_READ_ONLY_MOUNT = """
import sys
from pathlib import Path
from whet.beneath import replace_beneath

try:
    replace_beneath(Path(sys.argv[1]), "mounted", b"three")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
def test_a_file_that_is_mounted_read_only_is_left_and_named_as_that(tmp_path: Path) -> None:
    mount = 'mount --bind "$0" "$1/mounted" && mount -o remount,ro,bind "$1/mounted"'
    done = write_mounted(tmp_path, mount, _WRITE_READ_ONLY_MOUNT)
    assert (done.returncode, done.stdout) == (0, "Read-only file system\n"), done.stderr
    assert (tmp_path / "source").read_text() == "old"


_WRITE_IN_READ_ONLY_FOLDER = """
import sys
from pathlib import Path
from whet.tools.atomic import PendingWrite, fingerprint, write_all
from whet.tools.paths import resolve

folder = Path(sys.argv[1])
place = resolve("mounted", folder)
write_all([PendingWrite(place, b"new", fingerprint(place), b"old")], lambda: False)
"""


@pytest.mark.slow
def test_a_file_in_a_read_only_folder_is_written_if_it_may_be(tmp_path: Path) -> None:
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount --bind "$0" "$1/mounted"'
    done = write_mounted(tmp_path, mount, _WRITE_IN_READ_ONLY_FOLDER)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "source").read_text() == "new"
