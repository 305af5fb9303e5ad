"""Files below a folder that commands may write are reached through no link, at whichever part of the path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.beneath import create_beneath, enter_folders, open_beneath, replace_beneath, replace_file

_PATH = "a/b/c.txt"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace and a folder outside that looks the same."""
    for name in ("work", "outside"):
        (tmp_path / name / "a" / "b").mkdir(parents=True)
        (tmp_path / name / _PATH).write_text(name)
    return tmp_path / "work", tmp_path / "outside"


@pytest.mark.parametrize("link", ["a", "a/b", _PATH])
@pytest.mark.parametrize("how", ["absolute", "relative", "dangling"])
def test_a_link_is_followed_at_no_part_of_a_path(folders: tuple[Path, Path], link: str, how: str) -> None:
    work, outside = folders
    (work / link).rename(work / "moved")
    target = outside / link if how != "dangling" else outside / "absent"
    shown = os.path.relpath(target, (work / link).parent) if how == "relative" else target
    (work / link).symlink_to(shown)
    with pytest.raises(OSError):
        open_beneath(work, _PATH)
    with pytest.raises(OSError):
        create_beneath(work, _PATH, b"EVIL")
    with pytest.raises(OSError):
        replace_beneath(work, _PATH, b"EVIL")
    with pytest.raises(OSError):
        replace_file(work / _PATH, b"EVIL", [work])
    assert (outside / _PATH).read_text() == "outside" and not (outside / "absent").exists()
    assert sorted(path.name for path in outside.rglob("*")) == ["a", "b", "c.txt"]


def test_a_file_is_read_made_and_replaced(folders: tuple[Path, Path]) -> None:
    work, _ = folders
    with open_beneath(work, _PATH) as file:
        assert file.read() == b"work"
    with pytest.raises(FileExistsError):
        create_beneath(work, _PATH, b"x")
    create_beneath(work, "new/deep/file", b"made")
    assert (work / "new/deep/file").read_bytes() == b"made"
    assert [(work / name).stat().st_mode & 0o777 for name in ("new", "new/deep/file")] == [0o700, 0o600]
    (work / _PATH).chmod(0o640)
    replace_beneath(work, _PATH, b"replaced")
    assert (work / _PATH).read_bytes() == b"replaced" and (work / _PATH).stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in (work / "a/b").iterdir()) == ["c.txt"]


@pytest.mark.parametrize(
    "path", ["../outside/a/b/c.txt", "a/../a/b/c.txt", "/etc/hostname", "", ".", "a//b/c.txt"]
)
def test_a_path_that_is_not_plainly_below_is_refused(folders: tuple[Path, Path], path: str) -> None:
    with pytest.raises(OSError):
        open_beneath(folders[0], path)
    with pytest.raises(OSError):
        replace_beneath(folders[0], path, b"")


def test_a_pipe_or_a_folder_is_no_file_and_holds_nobody_up(folders: tuple[Path, Path]) -> None:
    work, _ = folders
    os.mkfifo(work / "pipe")
    for name in ("pipe", "a"):
        with pytest.raises(OSError):
            open_beneath(work, name)
        with pytest.raises(OSError):
            replace_beneath(work, name, b"")


def test_the_way_into_a_folder_is_found_through_a_persons_links(folders: tuple[Path, Path]) -> None:
    work, outside = folders
    (outside / "led").symlink_to(work)
    (outside / "deep").symlink_to(work / "a")
    (work / "planted").symlink_to(outside)
    (outside / "circle").symlink_to("circle")
    assert enter_folders(work / _PATH, [work]) == (work, _PATH)
    assert enter_folders(outside / "led" / "x", [work]) == (work, "x")
    assert enter_folders(outside / "deep" / "b" / "x", [work]) == (work, "a/b/x")
    assert enter_folders(work / "planted" / "x", [work]) == (work, "planted/x")
    assert enter_folders(work / "../outside/x", [work]) is None
    assert enter_folders(work / "planted/../../outside/x", [work]) is None
    assert enter_folders(outside / "x", [work]) is None
    with pytest.raises(OSError):
        enter_folders(outside / "circle" / "x", [work])


def test_a_persons_link_outside_keeps_leading_to_its_target(folders: tuple[Path, Path]) -> None:
    work, outside = folders
    (outside / "link.txt").symlink_to(_PATH)
    replace_file(outside / "link.txt", b"new", [work])
    assert (outside / "link.txt").is_symlink() and (outside / _PATH).read_bytes() == b"new"
