"""Once told is told: what a person has read of a review is no news at the next start; `/inbox` decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import reviewed
from tests.review.rig import Bench, bench
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.slash_output import CommandReply, remote_commands
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.contract.errors import WhetError
from whet.store import lesson_counts

LINE = "since you left: learned 1, refused 1, waiting for you 1 (whet review inbox)"


async def said(b: Bench, command: str, profile: str = "") -> str:
    """Give what a slash command says."""
    commands = remote_commands(SLASH_COMMANDS)
    name, _, rest = command.partition(" ")
    hosted = SessionHost(b.app.sessions, PersonRouter())
    reply = CommandReply(hosted, b.session, commands, b.app.learning.service_of(profile), 80)
    await reply.run(commands.get(name), rest)
    return "\n".join(reply.lines)


def test_what_was_read_is_no_news(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_the_inbox_is_read_and_decided_in_a_conversation(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_nobody_decides_on_anothers_inbox(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())
