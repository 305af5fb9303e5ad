"""Once told is told: what a person has read of a review is not a news at the next start; `/inbox` decides."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from tests import reviewed
from tests.review.rig import Bench, bench
from tests.reviewed import AT
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.slash_output import CommandReply, remote_commands
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.cli.interactive.status import StatusBoard
from whet.contract.errors import WhetError
from whet.contract.events import Event, ReviewFinished, ReviewQueued
from whet.contract.origin import Origin
from whet.store import learned, ledger, lesson_counts
from whet.store.ledger import FileChange, NewRow

LINE = "since you left: learned 1, refused 1, waiting for you 1 (whet review inbox)"


async def said(b: Bench, command: str, profile: str = "") -> str:
    """Give what a slash command says."""
    commands = remote_commands(SLASH_COMMANDS)
    name, _, rest = command.partition(" ")
    hosted = SessionHost(b.app.sessions, PersonRouter())
    reply = CommandReply(hosted, b.session, commands, b.app.learning.service_of(profile), 80)
    await reply.run(commands.get(name), rest)
    return "\n".join(reply.lines)


async def test_what_was_read_is_no_news(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:
        write = b.app.database.write_now
        write(lambda db: reviewed.leave(db, task_id="one"))
        assert write(lesson_counts.count_unread).line == LINE
        write(lambda db: lesson_counts.mark_task_read(db, "one"))
        assert write(lesson_counts.count_unread).line == ""
        write(lambda db: reviewed.leave(db, task_id="two"))
        write(lambda db: reviewed.leave(db, task_id="three"))
        write(lambda db: lesson_counts.mark_task_read(db, "three"))
        assert write(lesson_counts.take_unread).learned == 2, "the second was told to nobody"
        write(lambda db: lesson_counts.mark_task_read(db, "gone"))
        assert write(lesson_counts.take_unread).line == ""


async def test_the_inbox_is_read_and_decided_in_a_conversation(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:
        assert "nothing waits" in await said(b, "inbox")
        rows = b.app.database.write_now(reviewed.leave)
        shown = await said(b, "inbox")
        assert all(text in shown for text in (reviewed.REFUSED, reviewed.WHY, reviewed.WAITS))
        assert b.app.database.write_now(lesson_counts.take_unread).line == "", "who has read it was told"
        assert "in force" in await said(b, f"inbox accept {rows['refused'].id}")
        assert reviewed.REFUSED in b.memory()
        assert "dropped" in await said(b, f"inbox reject {rows['quarantined'].id}")
        assert reviewed.WAITS not in b.memory() and "nothing waits" in await said(b, "inbox")


async def test_what_was_learned_is_listed_and_opened_whole(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:
        assert await said(b, "learned") == "nothing was learned today"
        rows = b.app.database.write_now(reviewed.leave)
        assert await said(b, "learned today") == "nothing was learned today", "that was on another day"
        listed = await said(b, "learned all")
        assert f"{rows['active'].id}  learned  memory: {reviewed.KEPT}" in listed
        assert f"{rows['quarantined'].id}  waits" in listed and "/learned NUMBER" in listed
        assert b.app.database.write_now(lesson_counts.take_unread).line == "", "who has read it was told"
        whole = await said(b, f"learned {rows['refused'].id}")
        assert f"+ {reviewed.REFUSED}" in whole and f"because: {reviewed.WHY}" in whole
        assert f'"{reviewed.REFUSED}" (user, message 1 of s)' in whole
        with pytest.raises(WhetError, match="there is no change"):
            await said(b, f"learned {rows['active'].id}", "anna")
        with pytest.raises(WhetError, match="/learned knows no 'odd'"):
            await said(b, "learned odd")


async def test_the_status_line_says_that_a_review_runs_and_that_it_saved(tmp_path: Path) -> None:
    wanted = {"ui.status_line": ["learning"], "review.worker": "auto"}
    async with bench(tmp_path, [], settings=wanted) as b:
        board = StatusBoard(b.app.services, plain=False)

        def shown(event: Event) -> str:
            board.record_event(event)
            return board.line(b.session, 80)

        running = "learning from this turn…"
        assert shown(ReviewQueued("one", ("memory",))) == running
        assert shown(ReviewQueued("two", ("skill",))) == running
        assert shown(ReviewFinished("other", "s", "r", "saved")) == running, "another session's"
        assert shown(ReviewFinished("one", "s", "r", "saved")) == running, "the second still runs"
        assert shown(ReviewFinished("two", "s", "r", "nothing")) == "learned: /learned"
        assert shown(ReviewQueued("three", ("memory",))) == running
        assert shown(ReviewFinished("three", "s", "r", "nothing")) == ""


async def test_what_the_inbox_shows_in_part_is_shown_whole_before_it_is_accepted(tmp_path: Path) -> None:
    long, hidden = f"Deploys {'are slow and ' * 40}end with a dance.", "rm -rf ~/everything"
    async with bench(tmp_path, []) as b:

        def wait(db: apsw.Connection) -> tuple[int, int]:
            text = b"---\nname: tidy\ndescription: d\n---\nLook.\n"
            files = tuple(
                FileChange(f"skills/tidy/{path}", "", learned.store_text(db, content))
                for path, content in (("SKILL.md", text), ("scripts/run.sh", hidden.encode()))
            )
            rows = (
                NewRow("memory", "memory", "add", "inbox", Origin("review"), after=long),
                NewRow(
                    "skill", "tidy", "create", "inbox", Origin("import"), after=text.decode(), changes=files
                ),
            )
            return ledger.insert_row(db, rows[0], AT).id, ledger.insert_row(db, rows[1], AT).id

        note, skill = b.app.database.write_now(wait)
        for number, rest in ((note, "end with a dance."), (skill, hidden)):
            assert rest not in await said(b, "inbox")
            shown = await said(b, f"inbox accept {number}")
            assert rest in shown and "in force" not in shown
            words = re.search(r"/inbox accept \d+ =\w+", shown)
            assert words is not None and rest in await said(b, f"inbox {number}")
            for wrong in (f"{words[0][1:-1]}x", f"inbox accept {number} ="):
                assert "in force" not in await said(b, wrong)
            assert "in force" in await said(b, words[0][1:])
        assert "end with a dance." in b.memory()


async def test_the_inbox_accepts_all_changes_or_none(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:

        def wait(db: apsw.Connection) -> list[int]:
            note = NewRow("memory", "memory", "add", "inbox", Origin("review"), after="We sail at dawn.")
            dropped = NewRow("memory", "memory", "add", "rejected", Origin("review"), after="We row.")
            return [ledger.insert_row(db, row, AT).id for row in (note, dropped)]

        first, second = b.app.database.write_now(wait)
        with pytest.raises(WhetError, match=f"change {second} is rejected"):
            await said(b, f"inbox accept {first} {second}")
        assert b.app.database.read_now(lambda db: ledger.get(db, first)).state == "inbox"
        assert "in force" in await said(b, f"inbox accept {first}")
        assert "We sail at dawn." in b.memory()


async def test_nobody_decides_on_anothers_inbox(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:
        rows = b.app.database.write_now(lambda db: reviewed.leave(db, "anna"))
        assert "nothing waits" in await said(b, "inbox")
        for profile in ("", "ben"):
            with pytest.raises(WhetError, match="there is no change"):
                await said(b, f"inbox accept {rows['refused'].id}", profile)
        assert reviewed.REFUSED in await said(b, "inbox", "anna")
        for wrong in ("take 1", "accept", "accept one", "accept 1 x", "accept ²"):
            with pytest.raises(WhetError, match="/inbox knows no"):
                await said(b, f"inbox {wrong}")
        with pytest.raises(WhetError, match="/inbox knows no"):
            await said(b, "inbox accept 9" + "9" * 40)
