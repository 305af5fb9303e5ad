"""Caps of a team that are set when some turns have run already."""

from __future__ import annotations

from contextlib import closing

import apsw

from whet.contract.messages import Usage
from whet.store import sessions, turns, wallet
from whet.store.team import TeamDatabase

_MIDNIGHT = "2026-11-29T00:00:00.000Z"


def _store_turn(db: apsw.Connection, new: sessions.NewSession, usage: Usage) -> None:
    turn = turns.TurnRecord(f"turn-{new.id}", new.id, 1, _MIDNIGHT, usage=usage)
    sessions.create(db, new, _MIDNIGHT)
    key = sessions.key_of(db, new.id)
    turns.begin_turn(db, key, turn)
    turns.end_turn(db, key, turn, "answered", "", _MIDNIGHT)()


def test_what_ran_before_a_cap_counts_for_the_day_the_person_and_the_session(url: str) -> None:
    with closing(TeamDatabase.open_url(url)) as database:
        chat = sessions.NewSession("s", profile="ann")
        database.write_now(lambda db: _store_turn(db, chat, Usage(total_tokens=12, cost_usd=0.5)))
        review = sessions.NewSession("r", parent_session_id="s", kind="review")
        database.write_now(lambda db: _store_turn(db, review, Usage(total_tokens=6, cost_usd=0.25)))
        other = sessions.NewSession("o", profile="ben")
        database.write_now(lambda db: _store_turn(db, other, Usage(total_tokens=1)))
        for scope, spent in {
            ("day", "2026-11-29"): (0.75, 19),
            ("person", "2026-11-29 ann"): (0.75, 18),
            ("session", "s"): (0.75, 18),
            ("schedule", "2026-11-29 x"): (0.0, 0),
        }.items():
            for _ in range(2):  # counting again adds nothing
                database.write_now(lambda db, scope=scope: wallet.count_stored(db, scope, _MIDNIGHT))
            assert database.read_now(lambda db, scope=scope: wallet.read_spending(db, scope)) == spent, scope
