"""Several files change as one: whatever fails in the middle, each is as it was."""

from __future__ import annotations

import os
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
    made: list[PendingWrite] = []
    for name, data in wanted.items():
        place = resolve(name, tmp_path)
        old = place.path.read_bytes() if place.path.exists() else None
        made.append(PendingWrite(place, data, fingerprint(place), old))
    return made


def test_all_is_done(tmp_path: Path, changes: list[PendingWrite]) -> None:
    write_all(changes, never)
    assert sorted(os.listdir(tmp_path)) == ["a", "fresh", "sub"]
    assert (tmp_path / "a").read_text() == "new a" and (tmp_path / "sub/last").read_text() == "new last"


def edit_last(folder: Path) -> None:
    (folder / "sub/last").write_text("edited by somebody")


def remove_last(folder: Path) -> None:
    (folder / "sub/last").unlink()


def swap_folder(folder: Path) -> None:
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to(folder.parent)


@pytest.mark.parametrize("meddle", [edit_last, remove_last, swap_folder])
def test_a_late_failure_puts_everything_back(
    tmp_path: Path, changes: list[PendingWrite], meddle: Callable[[Path], None]
) -> None:
    def is_stopped() -> bool:
        meddle(tmp_path)
        return False

    with pytest.raises((ToolError, ToolDenied)):
        write_all(changes, is_stopped)
    assert (tmp_path / "a").read_text() == "old a" and (tmp_path / "b").read_text() == "old b"
    assert not (tmp_path / "fresh").exists()
    left = [name for name in os.listdir(tmp_path) if name.startswith(".whet-")]
    assert left == []


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
