"""What a person is shown of a write before it happens, for tools that are not ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.tools.calls import Desk
from tests.tools.running import context
from whet.contract.changes import TextChange, hash_bytes, hash_changes
from whet.contract.errors import ToolDenied
from whet.contract.protocols import ApprovalRequest
from whet.question import build_question
from whet.tools.paths import resolve
from whet.tools.preview import change_of, propose_changes


def preview(folder: Path, name: str, arguments: dict[str, object]) -> tuple[TextChange, ...]:
    """Return the changes that a call of our own tool would make."""
    tool = Desk(folder).registry.get(name)
    assert tool.preview is not None
    return asyncio.run(tool.preview(context(folder), arguments))


EDITS = pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("write_file", {"content": "bye\n"}, "bye\n"),
        ("patch", {"old_string": "hello hello", "new_string": "bye"}, "bye\n"),
        ("patch", {"old_string": "hello", "new_string": "bye", "replace_all": True}, "bye bye\n"),
    ],
)


@EDITS
def test_our_own_edits_show_what_they_would_write_and_write_nothing(
    file: Path, name: str, arguments: dict[str, object], text: str
) -> None:
    (change,) = preview(file.parent, name, {"path": "greeting.txt", **arguments})
    assert (change.old, change.new, change.absolute_path) == ("hello hello\n", text, str(file))
    assert file.read_text("utf-8") == "hello hello\n"


@EDITS
def test_an_edit_through_a_link_names_the_file_and_the_link(
    file: Path, name: str, arguments: dict[str, object], text: str
) -> None:
    (file.parent / "link.txt").symlink_to(file.name)
    changes = preview(file.parent, name, {"path": "link.txt", **arguments})
    question = build_question(ApprovalRequest("s", "c", name, "", (), changes=changes))
    assert changes[0].new == text
    assert "file greeting.txt through the link link.txt (1 line added, 1 removed)" in question.title
    assert question.body[0].text == "greeting.txt  (through link.txt, +1 −1)"


@EDITS
def test_only_what_a_person_was_shown_is_written(
    file: Path, name: str, arguments: dict[str, object], text: str
) -> None:
    tool = Desk(file.parent).registry.get(name)
    given = {"path": "greeting.txt", **arguments}
    changes = preview(file.parent, name, given)
    allowed = msgspec.structs.replace(context(file.parent), shown=hash_changes(changes))
    file.write_text("hello hello\nsaved meanwhile\n", "utf-8")
    with pytest.raises(ToolDenied, match="changed after the person was shown"):
        asyncio.run(tool.run(allowed, given))
    assert file.read_text("utf-8") == "hello hello\nsaved meanwhile\n"
    file.write_text("hello hello\n", "utf-8")
    asyncio.run(tool.run(allowed, given))
    assert file.read_text("utf-8") == text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "greeting.txt"
    path.write_text("hello hello\n", "utf-8")
    return path


def test_a_whole_content_is_shown_beside_what_is_there(file: Path) -> None:
    (change,) = propose_changes(context(file.parent), {"path": "greeting.txt", "content": "bye\n"})
    assert (change.old, change.new, change.note) == ("hello hello\n", "bye\n", "")
    assert change.before == hash_bytes(file.read_bytes()) and change.absolute_path == str(file)


@pytest.mark.parametrize(("more", "text"), [({}, "bye hello\n"), ({"replace_all": True}, "bye bye\n")])
def test_a_replacement_is_shown_as_it_will_read(file: Path, more: dict[str, object], text: str) -> None:
    arguments = {"path": "greeting.txt", "old_string": "hello", "new_string": "bye", **more}
    (change,) = propose_changes(context(file.parent), arguments)
    assert (change.old, change.new) == ("hello hello\n", text)


@pytest.mark.parametrize(
    "arguments",
    [
        {"old_string": "absent", "new_string": "bye"},
        {"old_string": "", "new_string": "bye"},
        {"old_string": "hello"},
        {"new_string": "bye"},
        {"old_string": 7, "new_string": "bye"},
    ],
)
def test_what_can_not_be_foreseen_is_said(file: Path, arguments: dict[str, object]) -> None:
    (change,) = propose_changes(context(file.parent), {"path": "greeting.txt", **arguments})
    assert (change.old, change.new) == ("hello hello\n", "hello hello\n")
    assert change.note == "what it writes is not said"


def test_a_new_file_has_no_old_text(tmp_path: Path) -> None:
    (change,) = propose_changes(context(tmp_path), {"path": "new.txt", "content": "one\n"})
    assert (change.old, change.new, change.before) == (None, "one\n", "")
    (change,) = propose_changes(context(tmp_path), {"path": "new.txt", "old_string": "a", "new_string": "b"})
    assert (change.old, change.new) == (None, None)


def test_a_diff_is_shown_as_its_result(file: Path) -> None:
    diff = "--- a/greeting.txt\n+++ b/greeting.txt\n@@ -1 +1 @@\n-hello hello\n+bye\n"
    (change,) = propose_changes(context(file.parent), {"diff": diff})
    assert (change.old, change.new) == ("hello hello\n", "bye\n")


def test_a_path_outside_is_named_whole(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (change,) = propose_changes(context(workspace), {"path": "../out.txt", "content": "x"})
    assert change.note == "outside the workspace" and change.new == "x"
    assert propose_changes(context(workspace), {"path": ""}) == propose_changes(context(workspace), {}) == ()


def test_what_is_no_text_is_told_by_its_size(tmp_path: Path) -> None:
    path = resolve("picture.bin", tmp_path, ())
    change = change_of(path, b"\x00\xff" * 600, "text\n")
    assert isinstance(change, TextChange) and change.old is None and change.new == "text\n"
    assert change.note == "replaces 1.2 KB of binary data"
