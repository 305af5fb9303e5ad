"""Files that another program holds open, under the file tools: what is checked before and after it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support import open_files
from tests.tools.calls import Desk
from tests.tools.running import context
from whet.contract.errors import ToolError
from whet.tools import atomic, editor_files
from whet.tools.atomic import PendingWrite
from whet.tools.paths import resolve


class Held:
    """A program that holds files as its user left them, and saves what it is given, or what `does` says."""

    def __init__(self, does: str = "saves", **texts: str) -> None:
        self.does = does
        self.texts = texts
        self.writes: list[str] = []

    def read(self, path: Path) -> str | None:
        return self.texts.get(path.stem)

    def write(self, path: Path, text: str) -> bool:
        self.writes.append(path.name)
        if self.does in ("refuses", "only says so"):
            return self.does != "refuses"
        self.texts.pop(path.stem, None)
        if self.does == "keeps it unsaved":
            self.texts[path.stem] = text
        else:
            path.write_text(text.upper() if self.does == "formats" else text)
        return True


def change(folder: Path, name: str, new: str, old: str | None) -> PendingWrite:
    path = resolve(name, folder)
    return PendingWrite(path, new.encode(), atomic.fingerprint(path), None if old is None else old.encode())


def never() -> bool:
    return False


@pytest.mark.parametrize(
    ("does", "said", "disk"),
    [
        ("saves", "", "new\n"),
        ("keeps it unsaved", "did not save it", "old\n"),
        ("formats", "changed it while saving", "NEW\n"),
        ("only says so", "", "new\n"),
        ("refuses", "", "new\n"),
    ],
)
def test_what_became_of_a_change_is_said(tmp_path: Path, does: str, said: str, disk: str) -> None:
    path = tmp_path / "a.txt"
    for old in ("old\n", None):
        path.write_text("old\n")
        files, program = open_files(), Held(does)
        (note,) = editor_files.write_all([change(tmp_path, "a.txt", "new\n", old)], program, never)
        assert said in note and bool(said) == bool(note)
        assert path.read_text() == disk and program.writes == ["a.txt"]
        assert not open_files() - files


def test_a_file_is_changed_over_its_unsaved_text_through_the_program_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old\n")
    program = Held(a="mine\n")
    assert editor_files.write_all([change(tmp_path, "a.txt", "new\n", "mine\n")], program, never) == [""]
    assert path.read_text() == "new\n" and program.texts == {}
    for does in ("refuses", "only says so"):
        program = Held(does, a="mine\n")
        with pytest.raises(ToolError, match="holds unsaved changes"):
            editor_files.write_all([change(tmp_path, "a.txt", "newer\n", "mine\n")], program, never)
        assert path.read_text() == "new\n" and program.texts == {"a": "mine\n"}


def test_all_that_the_program_took_is_put_back_when_a_later_one_fails(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    program = Held(b="mine\n")
    olds = {"a": "a\n", "b": "mine\n", "c": "c\n"}
    writes = [change(tmp_path, f"{name}.txt", "x\n", old) for name, old in olds.items()]
    (tmp_path / "c.txt").write_text("changed\n")
    with pytest.raises(ToolError, match="changed meanwhile"):
        editor_files.write_all(writes, program, never)
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["a\n", "mine\n", "changed\n"]
    assert program.writes == ["a.txt", "b.txt", "b.txt", "a.txt"]


def test_a_file_is_deleted_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    path, program = resolve("a.txt", tmp_path), Held()
    deletion = PendingWrite(path, None, atomic.fingerprint(path))
    assert editor_files.write_all([deletion], program, never) == [""]
    assert program.writes == [] and list(tmp_path.iterdir()) == []


def _plant_link(folder: Path) -> None:
    (folder / "outside").mkdir()
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(folder / "outside")


@pytest.mark.parametrize(
    ("name", "old", "meddle", "reason"),
    [
        ("new", None, lambda folder: (folder / "new").mkdir(), "new is a folder"),
        ("a.txt", "one\n", lambda folder: (folder / "a.txt").chmod(0o444), "read-only"),
        ("a.txt", "one\n", lambda folder: (folder / "a.txt").write_text("other\n"), "changed meanwhile"),
        ("b.txt", "two\n", lambda folder: None, "changed meanwhile"),  # its unsaved text is another by then
        ("sub/new.txt", None, _plant_link, "symlink"),
        ("stop.txt", None, lambda folder: None, "stopped"),
    ],
)
def test_a_file_that_may_not_be_written_is_not_given_to_the_program(
    tmp_path: Path, name: str, old: str | None, meddle: Callable[[Path], object], reason: str
) -> None:
    (tmp_path / "sub").mkdir()
    for file in ("a.txt", "b.txt"):
        (tmp_path / file).write_text("one\n")
    program = Held(b="two\n")
    pending = change(tmp_path, name, "three\n", old)
    meddle(tmp_path)
    program.texts["b"] = "two and more\n"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.txt")}
    with pytest.raises(ToolError, match=reason):
        editor_files.write_all([pending], program, lambda: reason == "stopped")
    assert program.writes == [] and {path: path.read_bytes() for path in tmp_path.rglob("*.txt")} == before


def test_a_file_that_was_made_is_taken_back_when_the_next_one_fails(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b\n")
    first, second = change(tmp_path, "a.txt", "x\n", None), change(tmp_path, "b.txt", "y\n", "b\n")
    (tmp_path / "b.txt").write_text("changed\n")
    with pytest.raises(ToolError):
        editor_files.write_all([first, second], Held(), never)
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("data", [b"\x00\x01binary", b"x" * (editor_files.MAX_BYTES + 1)])
def test_what_is_no_text_or_large_is_the_disks(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    program = Held(a="as text\n")
    assert editor_files.read_unsaved(program, resolve("a.txt", tmp_path)) is None
    editor_files.write_all([change(tmp_path, "a.txt", "new\n", None)], program, never)
    assert program.writes == [] and (tmp_path / "a.txt").read_text() == "new\n"
    program = Held()
    path = resolve("a.txt", tmp_path)
    editor_files.write_all([PendingWrite(path, data, atomic.fingerprint(path))], program, never)
    assert program.writes == [] and (tmp_path / "a.txt").read_bytes() == data


def test_a_text_of_the_largest_size_is_still_the_programs(tmp_path: Path) -> None:
    largest = "x" * editor_files.MAX_BYTES
    (tmp_path / "a.txt").write_text(largest)
    program = Held(a=largest[:-1] + "y")
    assert editor_files.read_unsaved(program, resolve("a.txt", tmp_path)) == program.texts["a"].encode()
    editor_files.write_all([change(tmp_path, "a.txt", largest, None)], program, never)
    assert program.writes == ["a.txt"]


def test_a_file_that_the_program_has_not_saved_yet_has_its_text(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    program = Held(new="text\n", empty="", sub="none")
    found = {
        name: editor_files.read_unsaved(program, resolve(name, tmp_path))
        for name in ("new", "empty", "sub", "gone")
    }
    assert found == {"new": b"text\n", "empty": None, "sub": None, "gone": None}


def test_a_file_that_only_the_program_has_can_be_patched(tmp_path: Path) -> None:
    ctx = msgspec.structs.replace(context(tmp_path), buffers=Held(a="one\ntwo\n"))
    arguments = {"path": "a.txt", "old_string": "two", "new_string": "2"}
    asyncio.run(Desk(tmp_path).registry.get("patch").run(ctx, arguments))
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"


@pytest.mark.parametrize(
    ("disk", "text", "found"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo\n", None),
        (b"one\r\ntwo\r\n", "one\n2", b"one\r\n2\r\n"),
        (b"one\r\ntwo", "one\n2", b"one\r\n2"),
        (b"one\r\ntwo\n", "1\r\ntwo\n", b"1\r\ntwo\n"),
        (b"one\ntwo\n", "one\ntwo", None),
        (b"one\ntwo\n", "one\n2\n", b"one\n2\n"),
        (b"\xff\xfeo\x00n\x00e\x00", "two", "two".encode("utf-16-le").join([b"\xff\xfe", b""])),
        (b"caf\xe9\n", "cafés\n", b"caf\xe9s\n"),
        (b"one\n", "broken \ud800\n", b"broken ?\n"),
        (b"one\n", "x" * (editor_files.MAX_BYTES + 1), None),
    ],
)
def test_what_is_held_is_given_as_the_disk_would_have_it(
    tmp_path: Path, disk: bytes, text: str, found: bytes | None
) -> None:
    (tmp_path / "a.txt").write_bytes(disk)
    assert editor_files.read_unsaved(Held(a=text), resolve("a.txt", tmp_path)) == found
