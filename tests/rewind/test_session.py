"""A session's files and conversation go back to any point, through the real loop, gate and shell."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, Consenting, Running, call, running, shell
from tests.rewind.trees import fingerprint
from whet.config.schema import RewindSettings
from whet.contract.errors import NotFound
from whet.contract.protocols import Answer, ApprovalRequest
from whet.rewind import database
from whet.rewind.planning import SINCE
from whet.rewind.record_path import record_path
from whet.rewind.recorder import hold_lock
from whet.rewind.rewinding import Point
from whet.rewind.taking_back import Scope, take_back
from whet.store.rewinds import Parts, RewindRow, begin_rewind


@pytest.mark.slow
async def test_a_turn_of_shell_commands_is_taken_back_and_brought_again(tmp_path: Path) -> None:
    script = [
        shell("rm -rf src; echo made > new"),
        ANSWER,
        shell("echo more >> new; chmod 600 new"),
        ANSWER,
        ANSWER,
        ANSWER,
    ]
    async with running(tmp_path, script) as r:
        work = r.app.services.workspace
        (work / "src").mkdir()
        (work / "src" / "a.py").write_text("print(1)\n")
        start = fingerprint(work)
        await r.turn("first")
        middle = fingerprint(work)
        await r.turn("second")
        end = fingerprint(work)
        assert len({str(start), str(middle), str(end)}) == 3

        done = await r.rewinding.rewind(Point(1), "both", force=False)
        assert fingerprint(work) == start
        assert done.undone_text == "first" and not done.files.conflicts and not done.files.failed
        assert [message.text for message in r.session.log.messages] == []

        await r.rewinding.rewind(None, "both", force=False)
        assert fingerprint(work) == end
        texts = [message.text for message in r.session.log.messages if message.role == "user"]
        assert texts == ["first", "second"]

        await r.rewinding.rewind(Point(2), "files", force=False)
        assert fingerprint(work) == middle
        assert len([m for m in r.session.log.messages if m.role == "user"]) == 2
        await r.turn("third")
        await r.turn("fourth")
        notes = [m.note for m in r.session.log.messages if m.role == "user"]
        assert ["set the workspace's files back" in note for note in notes] == [False, False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("parts", ["files", "both"])
@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_rewind_that_changes_nothing_does_not_hide_the_one_before_it_from_undo(
    tmp_path: Path, parts: Parts, *, is_cut_off: bool
) -> None:
    async with running(tmp_path, [shell("echo made > new; rm old"), ANSWER]) as r:
        work = r.app.services.workspace
        (work / "old").write_text("kept\n")
        start = fingerprint(work)
        await r.turn("first")
        end = fingerprint(work)
        if is_cut_off:
            await begin_without_end(r, parts)
        else:
            await r.rewinding.rewind(Point(1), parts, force=False)
        again = await r.rewinding.rewind(Point(1), parts, force=False)
        assert again.finished is is_cut_off and not again.files.changes
        assert fingerprint(work) == start

        await r.rewinding.rewind(None, parts, force=False)
        assert fingerprint(work) == end
        texts = [message.text for message in r.session.log.messages if message.role == "user"]
        assert texts == ["first"]


async def test_each_undo_takes_back_the_last_rewind_that_still_holds(tmp_path: Path) -> None:
    replies = [shell("echo two > f"), ANSWER, shell("echo three > f"), ANSWER]
    async with running(tmp_path, replies) as r:
        file = r.app.services.workspace / "f"
        file.write_text("one\n")
        for text in ("first", "second"):
            await r.turn(text)
        for point, content in ((Point(2), "two\n"), (Point(1), "one\n"), (None, "two\n"), (None, "three\n")):
            await r.rewinding.rewind(point, "both", force=False)
            assert file.read_text() == content
        with pytest.raises(NotFound, match="taken back now"):
            await r.rewinding.rewind(None, "both", force=False)
        texts = [message.text for message in r.session.log.messages if message.role == "user"]
        assert texts == ["first", "second"]


async def test_a_workspace_with_more_files_than_the_setting_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in "abcd":
        (tmp_path / "work" / name).touch()
    async with running(tmp_path, [shell("rm a"), ANSWER], RewindSettings(max_files=3)) as r:
        await r.turn()
        assert any("more than 3 files and folders" in text for text in r.notices())


async def begin_without_end(r: Running, parts: Parts) -> None:
    """Rewind the files to before the first turn, as a process does that is killed before the rewind's end."""
    row = RewindRow("cut-off", "2026-01-01T00:00:00Z", 1, 0, "begun", "", parts)
    log = r.session.log
    await log.writer.db.write(lambda db: begin_rewind(db, log.session.id, row))
    workspace = r.app.services.recordings.get().workspace_of(r.app.services.workspace)
    first = workspace.file.read_now(lambda db: database.list_records(db, log.session.id))[0].id
    new = database.Record(0, log.session.id, 1, 0, "rewind", 0, 0, 0, row.id)
    take_back(workspace, first, new, Scope({log.session.id}, force=False, files=(), edited={}))


@pytest.mark.slow
async def test_a_file_that_a_tool_wrote_while_another_session_ran_a_command_is_its_own(
    tmp_path: Path,
) -> None:
    script = [
        shell("cat running; echo b > b"),
        call("write_file", path="new/a", content="a\n"),
        ANSWER,
        ANSWER,
    ]
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "running")
    async with running(tmp_path, script) as r:
        work = r.app.services.workspace
        editing = Running(r.app, await r.app.new_session())
        async with asyncio.TaskGroup() as group:
            group.create_task(r.turn("run"))
            pipe = await asyncio.to_thread(os.open, tmp_path / "work" / "running", os.O_WRONLY)
            await editing.turn("write")
            os.close(pipe)
        assert [diff.path for diff in await r.rewinding.diff()] == ["b"]
        assert [diff.path for diff in await editing.rewinding.diff()] == ["new", "new/a"]
        assert [step.paths for step in await r.rewinding.steps()] == [1]

        plan = await editing.rewinding.preview(Point(1), "files", force=False)
        assert {change.path for change in plan.files.changes} == {"new", "new/a"}
        await editing.rewinding.rewind(Point(1), "files", force=False)
        assert not (work / "new").exists() and (work / "b").exists()
        done = await r.rewinding.rewind(Point(1), "files", force=False)
        assert not done.files.conflicts and not (work / "b").exists()


@pytest.mark.slow
async def test_a_step_within_a_turn_is_a_point_for_files_and_conversation(tmp_path: Path) -> None:
    async with running(tmp_path, [shell("echo 1 > f"), shell("echo 2 > f"), ANSWER, ANSWER]) as r:
        await r.turn()
        await r.rewinding.rewind(Point(1, 2), "both", force=False)
        assert (r.app.services.workspace / "f").read_text() == "1\n"
        assert [m.role for m in r.session.log.messages] == ["user", "assistant", "tool"]
        await r.turn("go on")
        assert r.session.log.messages[-1].text == "Done."
        await r.session.log.writer.reload()
        assert [m.role for m in r.session.log.messages] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.slow
async def test_one_file_is_taken_back_and_the_session_has_not_changed_it_any_more(tmp_path: Path) -> None:
    script = [shell("echo 2 > a; echo 2 > b"), ANSWER, shell("echo 3 > a; rm -r old"), ANSWER]
    async with running(tmp_path, script) as r:
        work = r.app.services.workspace
        (work / "old" / "deep").mkdir(parents=True)
        for name in ("a", "b", "old/deep/c", "old/d"):
            (work / name).write_text("1\n")
        await r.turn()
        await r.turn()
        plan = await r.rewinding.preview(Point(1), "files", force=False, files=["a"])
        assert [change.path for change in plan.files.changes] == ["a"]
        await r.rewinding.rewind(Point(1), "files", force=False, files=["a", "old/deep/c"])
        assert [(work / name).read_text() for name in ("a", "b", "old/deep/c")] == ["1\n", "2\n", "1\n"]
        assert not (work / "old" / "d").exists()
        assert [(diff.path, diff.what) for diff in await r.rewinding.diff()] == [
            ("b", "changed"),
            ("old/d", "removed"),
        ]
        assert [diff.path for diff in await r.rewinding.diff(1)] == ["a", "b"]
        await r.rewinding.rewind(None, "files", force=False, files=["a"])
        assert (work / "a").read_text() == "3\n" and (work / "old" / "deep" / "c").exists()


@pytest.mark.slow
async def test_what_the_person_changed_since_is_kept(tmp_path: Path) -> None:
    script = [shell("sed -i 's/two/TWO/' merged same; rm gone; echo x > own"), ANSWER]
    async with running(tmp_path, script) as r:
        work = r.app.services.workspace
        for name in ("merged", "same"):
            (work / name).write_text("one\ntwo\nthree\nfour\n")
        (work / "gone").write_text("kept\n")
        await r.turn()
        (work / "merged").write_text("one\nTWO\nthree\nFOUR of mine\n")
        (work / "same").write_text("one\nTWO of mine\nthree\nfour\n")
        (work / "own").write_text("mine now\n")
        (work / "new-of-mine").write_text("mine\n")

        plan = await r.rewinding.preview(Point(1), "files", force=False)
        assert {conflict.path: conflict.why for conflict in plan.files.conflicts} == {
            "same": SINCE,
            "own": SINCE,
        }
        await r.rewinding.rewind(Point(1), "files", force=False)
        assert (work / "merged").read_text() == "one\ntwo\nthree\nFOUR of mine\n"
        assert (work / "same").read_text() == "one\nTWO of mine\nthree\nfour\n"
        assert (work / "own").read_text() == "mine now\n"
        assert (work / "new-of-mine").read_text() == "mine\n"
        assert (work / "gone").read_text() == "kept\n"

        await r.rewinding.rewind(None, "files", force=False)
        await r.rewinding.rewind(Point(1), "files", force=True)
        assert (work / "same").read_text() == "one\ntwo\nthree\nfour\n"
        assert not (work / "own").exists()
        assert (work / "new-of-mine").read_text() == "mine\n"


@pytest.mark.parametrize(("lost", "named"), [((1, 2), ["f"]), ((1, 1), [])])
async def test_files_of_a_step_without_a_record_are_named(
    tmp_path: Path, lost: tuple[int, int], named: list[str]
) -> None:
    script = [shell("echo 1 > first"), shell("echo 2 > f"), shell("echo 3 > g"), ANSWER]
    async with running(tmp_path, script) as r:
        await r.turn()
        file = r.app.services.recordings.get().workspace_of(r.app.services.workspace).file
        file.write_now(lambda db: db.execute("DELETE FROM records WHERE (turn, step) = (?, ?)", lost))
        plan = await r.rewinding.preview(Point(1, 2), "files", force=False)
        outcome = await r.rewinding.rewind(Point(1, 2), "files", force=False)
        for files in (plan.files, outcome.files):
            assert [conflict.path for conflict in files.conflicts] == named
            assert [conflict.can_force for conflict in files.conflicts] == [False] * len(named)
        assert not (r.app.services.workspace / "g").exists()


async def test_a_change_between_two_steps_is_the_persons(tmp_path: Path) -> None:
    async with running(tmp_path, [shell("echo a > a"), ANSWER, shell("rm -f mine; echo b > b"), ANSWER]) as r:
        await r.turn()
        (r.app.services.workspace / "mine").write_text("mine\n")
        await r.turn()
        await r.rewinding.rewind(Point(1), "files", force=False)
        assert sorted(path.name for path in r.app.services.workspace.iterdir()) == ["mine"]


async def test_calls_that_only_read_record_nothing(tmp_path: Path) -> None:
    reads = [call("search_files", pattern="x", path="."), call("read_file", path="f"), shell("cat f; ls")]
    async with running(tmp_path, [*reads, ANSWER]) as r:
        (r.app.services.workspace / "f").write_text("x\n")
        await r.turn()
        assert not (tmp_path / "home" / "rewind").exists()
        assert await r.rewinding.steps() == []


async def test_a_command_that_only_reads_does_not_wait_for_a_record_that_is_begun(tmp_path: Path) -> None:
    async with running(tmp_path, [shell("echo x > f"), ANSWER, shell("cat f"), ANSWER]) as r:
        work = r.app.services.workspace
        await r.turn()
        with hold_lock(record_path(tmp_path / "home", str(work)).parent):  # as a long scan holds it
            r.app.services.recordings.get().scan_ahead(work, ())
            async with asyncio.timeout(20):
                await r.turn()
        assert [(step.turn, step.step) for step in await r.rewinding.steps()] == [(1, 1)]


async def test_a_command_that_only_reads_does_not_fill_a_record_that_was_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, [shell("ls"), ANSWER]) as r:
        record = r.app.services.recordings.get().workspace_of(r.app.services.workspace)
        assert (record.file is not None, record.exists, record.is_recorded) == (True, True, False)
        await r.turn()
        assert not record.is_recorded and await r.rewinding.steps() == []


class Looking(Consenting):
    """A person who answers once the workspace has been recorded."""

    def __init__(self, home: Path) -> None:
        self.record = home / "rewind"

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        async with asyncio.timeout(20):
            while not any(path.stat().st_size for path in self.record.glob("*/files.db")):
                await asyncio.sleep(0.01)
        return "once"


async def test_the_workspace_is_recorded_while_a_question_waits(tmp_path: Path) -> None:
    script = [shell("rm f"), ANSWER]
    async with running(tmp_path, script, person=Looking(tmp_path / "home")) as r:
        (r.app.services.workspace / "f").write_text("x\n")
        await r.turn()
        assert not (r.app.services.workspace / "f").exists()
        await r.rewinding.rewind(Point(1), "files", force=False)
        assert (r.app.services.workspace / "f").read_text() == "x\n"


async def test_a_diff_shows_what_the_shell_changed(tmp_path: Path) -> None:
    command = "echo two >> f; printf 'a\\0b' > bin; ln -s f l; mkdir d; chmod 700 f"
    async with running(tmp_path, [shell(command), ANSWER]) as r:
        (r.app.services.workspace / "f").write_text("one\n")
        (r.app.services.workspace / "f").chmod(0o644)
        await r.turn()
        fields = {diff.path: diff for diff in await r.rewinding.diff(1)}
        assert list(fields) == ["bin", "d", "f", "l"]
        assert fields["f"].lines == ["--- a/f", "+++ b/f", "@@ -1 +1,2 @@", " one", "+two"]
        assert (fields["f"].added, fields["f"].removed, fields["f"].note) == (1, 0, "mode 644 → 700")
        assert "binary" in fields["bin"].note and fields["bin"].lines == []
        assert fields["l"].note == "link to f" and fields["d"].note == "folder"
        assert await r.rewinding.diff(2) == []
