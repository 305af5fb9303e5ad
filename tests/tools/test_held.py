"""Files that another program holds open, under the file tools: what is checked before and after it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.contract.errors import ToolError
from whet.tools import atomic, held
from whet.tools.atomic import PendingWrite
from whet.tools.paths import resolve


class Held:
    """A program that holds files as its user left them, and saves what it is given."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.writes: list[str] = []

    def read(self, path: Path) -> str | None:
        return self.texts.get(path.stem)

    def write(self, path: Path, text: str) -> bool:
        self.writes.append(path.name)
        self.texts.pop(path.stem, None)
        path.write_text(text)
        return True


def change(folder: Path, name: str, new: str, old: str | None) -> PendingWrite:
    """A change that was worked out from `old` just now."""
    place = resolve(name, folder)
    return PendingWrite(place, new.encode(), atomic.fingerprint(place), None if old is None else old.encode())


def never() -> bool:
    return False


def test_text_that_its_user_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    program = Held(a="two\n")
    made = change(tmp_path, "a.txt", "three\n", "two\n")
    program.texts["a"] = "two and more\n"
    with pytest.raises(ToolError, match="changed meanwhile"):
        held.write_all([made], program, never)
    assert program.writes == [] and (tmp_path / "a.txt").read_text() == "one\n"


def test_a_file_that_changed_on_the_disk_meanwhile_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    program = Held()
    made = change(tmp_path, "a.txt", "three\n", "one\n")
    (tmp_path / "a.txt").write_text("other\n")
    with pytest.raises(ToolError, match="changed meanwhile"):
        held.write_all([made], program, never)
    assert program.writes == []


def test_a_link_that_was_planted_meanwhile_is_not_followed(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "sub").mkdir(parents=True)
    outside.mkdir()
    made = change(work, "sub/new.txt", "x\n", None)
    (work / "sub").rmdir()
    os.symlink(outside, work / "sub")
    program = Held()
    with pytest.raises(ToolError, match="symlink"):
        held.write_all([made], program, never)
    assert program.writes == [] and list(outside.iterdir()) == []


def test_nothing_is_written_after_a_stop(tmp_path: Path) -> None:
    program = Held()
    with pytest.raises(ToolError, match="stopped"):
        held.write_all([change(tmp_path, "a.txt", "x\n", None)], program, lambda: True)
    assert program.writes == [] and not (tmp_path / "a.txt").exists()


def test_a_file_that_was_made_is_taken_back_when_the_next_one_fails(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b\n")
    first, second = change(tmp_path, "a.txt", "x\n", None), change(tmp_path, "b.txt", "y\n", "b\n")
    (tmp_path / "b.txt").write_text("changed\n")
    with pytest.raises(ToolError):
        held.write_all([first, second], Held(), never)
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("data", [b"\x00\x01binary", b"x" * (held.LARGEST_BYTES + 1)])
def test_what_is_no_text_or_large_is_the_disks(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    program = Held(a="as text\n")
    assert held.unsaved(program, resolve("a.txt", tmp_path)) is None
    held.write_all([change(tmp_path, "a.txt", "new\n", None)], program, never)
    assert program.writes == [] and (tmp_path / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize(
    ("disk", "text", "found"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo\n", None),
        (b"one\r\ntwo\r\n", "one\n2", b"one\r\n2\r\n"),
        (b"\xff\xfeo\x00n\x00e\x00", "two", "two".encode("utf-16-le").join([b"\xff\xfe", b""])),
        (b"caf\xe9\n", "cafés\n", b"caf\xe9s\n"),
        (b"one\n", "broken \ud800\n", b"broken ?\n"),
        (b"one\n", "x" * (held.LARGEST_BYTES + 1), None),
    ],
)
def test_what_is_held_is_given_as_the_disk_would_have_it(
    tmp_path: Path, disk: bytes, text: str, found: bytes | None
) -> None:
    (tmp_path / "a.txt").write_bytes(disk)
    assert held.unsaved(Held(a=text), resolve("a.txt", tmp_path)) == found
