"""Store each call's outcome: after every turn of a new session, on request for old ones.

A turn is judged again with the next one, whose calls may restore its files, and a session after each review.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from whet.contract.errors import NotFound, StoreError
from whet.sqlite.lane import ScopedWrite
from whet.store import calls, warm
from whet.store.calls import StoredCall
from whet.store.database import StateDatabase, lock_scope
from whet.warm.aftermath import OutcomeJudge

_BATCH = 200


def judge_session(
    connection: apsw.Connection, state: calls.JudgingState, from_turn: int
) -> list[tuple[int, str, str]]:
    """Judge a session's calls from a turn on, and return the outcomes."""
    judge = OutcomeJudge(state.undone_turns, state.tool_names)
    outcomes: list[tuple[int, str, str]] = []
    for item in calls.stream_calls(connection, state.key, from_turn):
        if isinstance(item, StoredCall) and item.turn > state.last_turn:
            break
        judge.add(item)
        outcomes += [(judged.call.seq, judged.outcome, judged.reason) for judged in judge.take()]
    outcomes += [(judged.call.seq, judged.outcome, judged.reason) for judged in judge.finish()]
    return outcomes


def label_soon(database: StateDatabase, session_id: str, now: str) -> None:
    """Judge a session's new calls in the background, and the effect of the template that it was started with.

    Does not wait. If it fails, `label_all` repairs it.
    """

    def work(connection: apsw.Connection) -> None:
        state = calls.read_judging_state(connection, session_id)
        outcomes = judge_session(connection, state, state.judged_turn)
        calls.store_outcomes(connection, state.key, state.last_turn, outcomes)
        start = warm.read_start(connection, session_id) if state.has_start else None
        if start is not None and start.chosen_by in ("auto", "default"):
            from whet.warm.proof import update_verdict  # noqa: PLC0415 - few sessions need it

            lock_scope(connection, "warm templates")
            update_verdict(connection, start.hash, start.template, now)

    try:
        # a session that was deleted meanwhile has nothing to judge
        database.submit_aside(ScopedWrite(session_id, work)).add_done_callback(lambda done: done.exception())
    except StoreError:
        return


def label_all(
    database: StateDatabase, progress: Callable[[int, int], None], *, again: bool = False
) -> tuple[int, int]:
    """Judge every call that has no outcome yet, or every call if `again`. Returns the numbers of sessions and
    calls."""
    pending = database.read_now(lambda connection: calls.list_unjudged_sessions(connection, again=again))
    count = 0
    for begin in range(0, len(pending), _BATCH):
        batch = pending[begin : begin + _BATCH]

        def work(connection: apsw.Connection, batch: list[str] = batch) -> int:
            judged = 0
            for session_id in batch:
                try:
                    state = calls.read_judging_state(connection, session_id)
                except NotFound:  # deleted meanwhile
                    continue
                outcomes = judge_session(connection, state, 0 if again else state.judged_turn)
                calls.store_outcomes(connection, state.key, state.last_turn, outcomes)
                judged += len(outcomes)
            return judged

        count += database.write_now(work)
        progress(min(begin + _BATCH, len(pending)), len(pending))
    return len(pending), count
