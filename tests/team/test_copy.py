"""A store is the same after it was copied to a team's database and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.support import USAGE, asking, finish, new_log, talk, user
from tests.support import FixedClock
from whet.clock import SystemClock
from whet.contract.errors import StoreBusy, StoreError
from whet.store import jobs, search
from whet.store.database import StateDatabase
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript
from whet.team.copy import copy, digest, tables


def quiet(table: str, rows: int) -> None:
    pass


async def fill(db: StateDatabase, clock: FixedClock) -> None:
    for number in range(30):
        await talk(
            db, clock, f"s{number}", f"zebra {number}", "日本語 and NUL and ␀", profile="ada" * (number % 2)
        )
    log = await new_log(db, clock, "calls")
    turn = await log.begin_turn(user("x" * 100_000))
    await log.append_reply(turn, asking("t", "u"), USAGE, "m")
    for call in log.open_calls(turn):
        await finish(log, turn, call)
    await log.end_turn(turn, "answered", "")
    await db.append(lambda c: jobs.enqueue(c, jobs.NewJob("review", "{}"), clock))


@pytest.mark.slow
def test_there_and_back_is_the_same_and_goes_on(tmp_path: Path, url: str, clock: FixedClock) -> None:
    own = StateDatabase.open(tmp_path / "state.db", clock)
    back = StateDatabase.open(tmp_path / "back.db", clock)
    team = TeamDatabase.open_url(url)
    try:
        asyncio.run(fill(own, clock))
        # An older version stored such a text.
        own.write_now(lambda c: c.execute("UPDATE messages SET content = replace(content, 'NUL', char(0))"))
        there = copy(own, team, quiet)
        assert [table.rows for table in there if table.name == "sessions"] == [31]
        assert copy(own, team, quiet) == there
        assert copy(team, back, quiet) == there
        for db in (team, back):
            assert [hit.session_id for hit in search.find_now(db, '"zebra 7"')] == ["s7"]
            asyncio.run(talk(db, clock, "after", "and more"))
            log = asyncio.run(Transcript.open(db, "s3", SystemClock()))
            assert log.messages[2].content == "日本語 and \0 and ␀"
    finally:
        for db in (own, back, team):
            db.close()


@pytest.mark.slow
def test_a_copy_that_was_broken_off_goes_on(tmp_path: Path, url: str, clock: FixedClock) -> None:
    own = StateDatabase.open(tmp_path / "state.db", clock)
    team = TeamDatabase.open_url(url)
    try:
        asyncio.run(fill(own, clock))

        def stop(table: str, rows: int) -> None:
            if table == "messages":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(own, team, stop)
        wanted = own.read_now(tables)
        assert copy(own, team, quiet) == [own.read_now(lambda db, t=table: digest(db, t)) for table in wanted]
    finally:
        own.close()
        team.close()


@pytest.mark.slow
def test_what_is_in_use_or_has_other_rows_is_refused(tmp_path: Path, url: str, clock: FixedClock) -> None:
    own = StateDatabase.open(tmp_path / "state.db", clock)
    team = TeamDatabase.open_url(url)
    try:
        asyncio.run(talk(own, clock, "mine", "x"))
        asyncio.run(talk(team, clock, "theirs", "y"))
        before = [team.read_now(lambda db, t=table: digest(db, t)) for table in own.read_now(tables)]
        with pytest.raises(StoreError, match="rows of its own"):
            copy(own, team, quiet)
        assert before == [team.read_now(lambda db, t=table: digest(db, t)) for table in own.read_now(tables)]
        log = asyncio.run(new_log(own, clock, "open"))
        asyncio.run(log.begin_turn(user("x")))
        with pytest.raises(StoreBusy, match="in use"):
            copy(own, team, quiet)
        with pytest.raises(StoreError, match="own file"):
            copy(own, own, quiet)
    finally:
        own.close()
        team.close()
