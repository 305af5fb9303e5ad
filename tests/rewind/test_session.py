"""A session's files and conversation go back to any point, through the real loop, gate and shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, call, running, shell
from tests.rewind.trees import fingerprint
from whet.rewind.planning import SINCE
from whet.rewind.rewinding import Point


@pytest.mark.slow
def test_a_turn_of_shell_commands_is_taken_back_and_brought_again(tmp_path: Path) -> None:
    async def main() -> None:
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
            assert done.said == "first" and not done.files.conflicts and not done.files.failed
            assert [message.text for message in r.session.log.messages] == []

            await r.rewinding.rewind(None, "both", force=False)
            assert fingerprint(work) == end
            said = [message.text for message in r.session.log.messages if message.role == "user"]
            assert said == ["first", "second"]

            await r.rewinding.rewind(Point(2), "files", force=False)
            assert fingerprint(work) == middle
            assert len([m for m in r.session.log.messages if m.role == "user"]) == 2
            await r.turn("third")
            await r.turn("fourth")
            notes = [m.note for m in r.session.log.messages if m.role == "user"]
            assert ["set the workspace's files back" in note for note in notes] == [False, False, True, False]

    asyncio.run(main())


@pytest.mark.slow
def test_a_step_within_a_turn_is_a_point_for_files_and_conversation(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, [shell("echo 1 > f"), shell("echo 2 > f"), ANSWER, ANSWER]) as r:
            await r.turn()
            await r.rewinding.rewind(Point(1, 2), "both", force=False)
            assert (r.app.services.workspace / "f").read_text() == "1\n"
            assert [m.role for m in r.session.log.messages] == ["user", "assistant", "tool"]
            await r.turn("go on")
            assert r.session.log.messages[-1].text == "Done."
            await r.session.log.writer.reload()
            assert [m.role for m in r.session.log.messages] == [
                "user",
                "assistant",
                "tool",
                "user",
                "assistant",
            ]

    asyncio.run(main())


@pytest.mark.slow
def test_what_the_person_changed_since_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
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
            assert {one.path: one.why for one in plan.files.conflicts} == {"same": SINCE, "own": SINCE}
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

    asyncio.run(main())


def test_a_change_between_two_steps_is_the_persons(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(
            tmp_path, [shell("echo a > a"), ANSWER, shell("rm -f mine; echo b > b"), ANSWER]
        ) as r:
            await r.turn()
            (r.app.services.workspace / "mine").write_text("mine\n")
            await r.turn()
            await r.rewinding.rewind(Point(1), "files", force=False)
            assert sorted(path.name for path in r.app.services.workspace.iterdir()) == ["mine"]

    asyncio.run(main())


def test_calls_that_only_read_record_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        script = [call("search_files", pattern="x", path="."), call("read_file", path="f"), ANSWER]
        async with running(tmp_path, script) as r:
            (r.app.services.workspace / "f").write_text("x\n")
            await r.turn()
            assert not (tmp_path / "home" / "rewind").exists()
            assert await r.rewinding.steps() == []

    asyncio.run(main())


def test_a_diff_shows_what_the_shell_changed(tmp_path: Path) -> None:
    async def main() -> None:
        command = "echo two >> f; printf 'a\\0b' > bin; ln -s f l; mkdir d; chmod 700 f"
        async with running(tmp_path, [shell(command), ANSWER]) as r:
            (r.app.services.workspace / "f").write_text("one\n")
            (r.app.services.workspace / "f").chmod(0o644)
            await r.turn()
            found = {one.path: one for one in await r.rewinding.diff(1)}
            assert list(found) == ["bin", "d", "f", "l"]
            assert found["f"].lines == ["--- a/f", "+++ b/f", "@@ -1 +1,2 @@", " one", "+two"]
            assert (found["f"].added, found["f"].removed, found["f"].note) == (1, 0, "mode 644 → 700")
            assert "binary" in found["bin"].note and found["bin"].lines == []
            assert found["l"].note == "link to f" and found["d"].note == "folder"
            assert await r.rewinding.diff(2) == []

    asyncio.run(main())
