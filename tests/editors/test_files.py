"""The editor's unsaved files under the file tools: read, changed through the editor, and what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from acp.schema import EmbeddedResourceContentBlock, ImageContentBlock, TextResourceContents

from tests.editors.rig import Desk, does, editing
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


def results(desk: Desk) -> list[str]:
    """What the tools said to the model, in order."""
    rows = desk.server.requests[-1].json_body["messages"]
    return [row["content"] for row in rows if row["role"] == "tool"]


@pytest.fixture
def page(desk: Desk) -> Path:
    """A file whose last line the person has changed and not saved."""
    path = desk.work / "page.txt"
    path.write_text("one\ntwo\n")
    desk.editor.buffers[str(path)] = "one\nTWO, unsaved\n"
    return path


def run(desk: Desk, *replies: ScriptedReply) -> list[str]:
    """Run a turn in auto mode and give what its tools said."""
    desk.server.install([*replies, ScriptedReply("Done.")])

    async def story() -> None:
        assert await desk.ask(await desk.session("auto"), "go") == "end_turn"

    desk.run(story())
    return results(desk)


def test_unsaved_text_is_read_and_a_change_of_it_goes_through_the_editor(desk: Desk, page: Path) -> None:
    read, patched = run(
        desk,
        does("read_file", path="page.txt"),
        does("patch", path="page.txt", old_string="TWO", new_string="three"),
    )
    assert "TWO, unsaved" in read and "not saved" in read
    assert patched.startswith("patched page.txt")
    assert page.read_text() == "one\nthree, unsaved\n"
    assert ("write", str(page)) in desk.editor.files
    [shown] = desk.editor.diffs()
    assert (shown.old_text, shown.new_text) == ("one\nTWO, unsaved\n", "one\nthree, unsaved\n")


async def test_a_proposal_is_shown_against_the_unsaved_text(desk: Desk, page: Path) -> None:
    desk.server.install([does("write_file", path="page.txt", content="new\n"), ScriptedReply("Then not.")])
    assert await desk.ask(await desk.session(), "go") == "end_turn"
    [(asked, _)] = desk.editor.asked
    [proposed] = [content for content in asked.content or () if content.type == "diff"]
    assert (proposed.old_text, proposed.new_text) == ("one\nTWO, unsaved\n", "new\n")
    assert page.read_text() == "one\ntwo\n" and ("write", str(page)) not in desk.editor.files


def test_a_file_that_is_only_in_the_editor_is_read_and_saved(desk: Desk) -> None:
    path = desk.work / "draft.txt"
    desk.editor.buffers[str(path)] = "a draft\n"
    read, patched = run(
        desk,
        does("read_file", path="draft.txt"),
        does("patch", path="draft.txt", old_string="draft", new_string="text"),
    )
    assert "a draft" in read and patched.startswith("patched draft.txt")
    assert path.read_text() == "a text\n"


def test_line_ends_and_encoding_of_the_disk_do_not_make_a_file_unsaved(desk: Desk) -> None:
    path = desk.work / "dos.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    desk.editor.buffers[str(path)] = "one\ntwo"
    [read] = run(desk, does("read_file", path="dos.txt"))
    assert "CRLF" in read and "not saved" not in read


@pytest.mark.parametrize("fault", ["fails", "lies"])
def test_the_disk_is_written_where_the_editor_fails(desk: Desk, fault: str) -> None:
    path = desk.work / "plain.txt"
    path.write_text("one\n")
    desk.editor.faulty = fault
    [patched] = run(desk, does("patch", path="plain.txt", old_string="one", new_string="two"))
    assert patched.startswith("patched plain.txt") and path.read_text() == "two\n"
    [shown] = desk.editor.diffs()
    assert shown.new_text == "two\n"


def test_unsaved_text_is_not_written_over_where_the_editor_does_not_take_the_change(
    desk: Desk, page: Path
) -> None:
    desk.editor.faulty = "lies"
    [patched] = run(desk, does("patch", path="page.txt", old_string="TWO", new_string="three"))
    assert "holds unsaved changes" in patched
    assert page.read_text() == "one\ntwo\n"


@pytest.mark.parametrize(("fault", "word"), [("keeps", "did not save it"), ("formats", "changed it while")])
def test_what_an_editor_does_besides_is_told_to_the_model(desk: Desk, fault: str, word: str) -> None:
    (desk.work / "plain.txt").write_text("one\n")
    desk.editor.faulty = fault
    [patched] = run(desk, does("patch", path="plain.txt", old_string="one", new_string="two"))
    assert word in patched


def test_several_files_are_changed_together_or_not_at_all(desk: Desk, page: Path) -> None:
    other = desk.work / "locked.txt"
    other.write_text("one\n")
    other.chmod(0o444)
    diff = (
        "--- a/page.txt\n+++ b/page.txt\n@@ -1,2 +1,2 @@\n one\n-TWO, unsaved\n+three\n"
        "--- a/locked.txt\n+++ b/locked.txt\n@@ -1 +1 @@\n-one\n+two\n"
    )
    [patched] = run(desk, does("patch", diff=diff))
    other.chmod(0o644)
    assert "read-only" in patched
    assert page.read_text() == "one\nTWO, unsaved\n"  # as the person had it, saved by the way back
    assert other.read_text() == "one\n"


def test_the_editor_is_asked_for_nothing_outside_the_workspace(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    link = desk.work / "link.txt"
    link.unlink(missing_ok=True)
    os.symlink(outside, link)
    texts = run(
        desk,
        does("read_file", path=str(outside)),
        does("read_file", path="link.txt"),
        does("write_file", path="link.txt", content="x"),
    )
    assert all("outside the workspace" in text for text in texts)
    assert desk.editor.files == [] and outside.read_text() == "secret"


async def test_a_cancel_does_not_wait_for_an_editor_that_does_not_answer(desk: Desk, page: Path) -> None:
    session_id = await desk.session("auto")
    for asked in (1, 2):  # after two answers that came too late, the editor would be asked no more
        desk.server.install([does("read_file", path="page.txt"), ScriptedReply("never")])
        desk.editor.faulty = "hangs"
        desk.editor.thawed.clear()
        desk.editor.files.clear()
        turn = asyncio.create_task(desk.ask(session_id, "go"))
        await desk.editor.until(
            lambda asked=asked: bool(desk.editor.files) and len(desk.server.requests) == asked
        )
        await desk.connection.cancel(session_id=session_id)
        assert await turn == "cancelled"
        desk.editor.thawed.set()
    desk.editor.faulty = ""
    desk.server.install([does("read_file", path="page.txt"), ScriptedReply("Done.")])
    assert await desk.ask(session_id, "again") == "end_turn"
    assert "TWO, unsaved" in results(desk)[-1]


@pytest.mark.slow
async def test_an_embedded_file_that_a_deny_rule_protects_does_not_reach_the_model(
    home: Path, server: PracticeServer, tmp_path: Path
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text('approval: {deny: ["read(secrets/*)"]}\n')
    work = tmp_path / "work"
    (work / "secrets").mkdir(parents=True)
    (work / "link").symlink_to("secrets")
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 40).decode()
    uris = [
        f"file://{work}/secrets/a",
        f"FILE://localhost{work}/link/%62",
        f"vscode-remote://wsl{work}/secrets/c",
        f"zed:///agent/file?path={work}/secrets/d",
        "editor:view?line=1&file=secrets%2Fe",
    ]
    prompt: list[Any] = [
        EmbeddedResourceContentBlock(type="resource", resource=TextResourceContents(uri=uri, text="HUNTER2"))
        for uri in (*uris, f"file://{work}/open.txt#L1:2")
    ]
    prompt.append(ImageContentBlock(type="image", data=picture, mime_type="image/png", uri=uris[0]))
    async with editing(home, server, work) as (_, connection, _):
        session = await connection.new_session(cwd=str(work), mcp_servers=[])
        await connection.prompt(session_id=session.session_id, prompt=prompt)
    text = json.dumps(server.requests[-1].json_body["messages"][-1]["content"])
    assert text.count("HUNTER2") == 1 and "image_url" not in text
    assert text.count("is left out: the rule deny: read(secrets/*) protects it") == 6
