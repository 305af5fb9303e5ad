"""Decide when a finished turn triggers a review: counters per conversation, a correction, a recovered
failure.

No model is asked. Everything is read and stored in the turn's own end transaction, so that one-shots
and chats are counted alike, a crash loses no count, and a job is queued exactly when its turn has ended. This
module does not know how a review is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.agent.session import Session, TurnObserver
from whet.clock import Clock, iso, local_time
from whet.config.schema import ReviewSettings
from whet.contract.errors import WhetError
from whet.contract.events import EndReason
from whet.contract.protocols import ModelInfo
from whet.contract.texts import parse_arguments
from whet.contract.tools import Tag, tags_of
from whet.late import late_pattern
from whet.review.jobs import (
    KINDS,
    TAG_OF,
    Kind,
    ReviewJob,
    Runtime,
    queue_review,
    read_review_job,
    reviewable_kinds,
)
from whet.review.spending import Weights, find_room, forecast, weigh_day, weights_of
from whet.store import jobs, outcomes, reviews
from whet.store.database import lock_scope
from whet.store.jobs import QueuedJob, TransactionWork
from whet.store.reviews import Counters, ReviewedTurn, TurnCall
from whet.store.sessions import SessionRow
from whet.store.transcript import TurnRecord

if TYPE_CHECKING:
    from whet.review.correction import Correction

_ONE_SHOTS = "cli"
_BATCH = 10
# After so many turns a conversation has its first look of a day, and its second after so many more.
_FIRST_LOOKS = (3, 3)
_FAILURES = frozenset({"exit", "failed", "timeout", "bad_input"})
# Calls with these tags fail because of a wrong text or path, not because of how the work is done.
_TRIVIAL = frozenset[Tag](("path", "tasks", "notes", "skills"))
_LOOKING = frozenset(
    {"ls", "cat", "head", "tail", "grep", "rg", "find", "pwd", "echo", "which", "type", "wc", "tree", "file"}
    | {"stat", "env", "printenv", "man", "test", "[", "diff", "sort"}
)
_NEAR_CALLS = 6
_WORD = late_pattern(r"[^\W_][\w-]{2,}")
_OPENS = late_pattern(r"\W*\w{1,9}\s*[,.!;:，、。！]")
_MENDED = frozenset(("correction", "recovery"))
"""The reasons that a lesson without a model can settle. A correction of an earlier turn, or one that changed
no call, needs a model."""


class ReviewTrigger(msgspec.Struct, frozen=True):
    """The reason for a review, and its kinds."""

    kinds: tuple[Kind, ...]
    reasons: tuple[str, ...]


class ReviewObserver(TurnObserver):
    """Counts at a turn's end, and queues a review if one is triggered. `runtime` returns the server, model
    and key that answer for a model."""

    def __init__(
        self, settings: ReviewSettings, clock: Clock, runtime: Callable[[ModelInfo], Runtime]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._runtime = runtime

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        """Return the writes that count the turn and queue a review."""
        kinds = reviewable_kinds(session.tools)
        if self._settings.writes == "off" or not kinds:
            return jobs.queue_nothing
        model = session.model
        runtime, weights = self._runtime(model), weights_of(model)
        setup = _TriggerSetup(self._settings, kinds, self._clock, runtime, weights)
        live, ended_well = session.log.live, reason == "answered"

        def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
            if turn.is_new and turn.number == 1 and live.session.id == live.session.conversation_id:
                facts, before = ReviewedTurn.of_memory(turn), ReviewedTurn((), (), 0)
                return _count_turn(
                    connection, live.session, Counters(), (turn, facts, before), ended_well, setup
                )
            read_session = reviews.select_counted_session(connection, turn.session_id)
            read_turns = reviews.select_turns(connection, live.key, turn.number, 2)
            facts, before = read_turns()
            return _count_turn(connection, *read_session(), (turn, facts, before), ended_well, setup)

        return work


class _TriggerSetup(msgspec.Struct, frozen=True):
    """The parts of the decision that do not depend on the turn's rows."""

    settings: ReviewSettings
    kinds: tuple[Kind, ...]
    clock: Clock
    runtime: Runtime
    weights: Weights


def _count_turn(
    connection: apsw.Connection,
    session: SessionRow,
    before: Counters,
    turns_read: tuple[TurnRecord, ReviewedTurn, ReviewedTurn],
    ended_well: bool,
    setup: _TriggerSetup,
) -> Sequence[QueuedJob]:
    turn, facts, facts_before = turns_read
    if session.private or session.kind != "chat":
        return ()
    corrects = _find_correction(turn.number, facts, facts_before)
    if corrects == "redone":
        now = iso(setup.clock.now())
        outcomes.record_signal(connection, session.id, "correction", now, turn=turn.number - 1)
    counted = count(before, facts, setup.settings, corrects=bool(corrects))
    folder = _count_folder(connection, session, turn.number, facts, setup)
    trigger = _choose_trigger(connection, session, counted, folder, setup)
    queued: Sequence[QueuedJob] = ()
    review_job = None
    turns = (turn.number,) if _has_plain_lesson(facts, setup.settings, corrects) else ()
    corrected_turns = turns if corrects == "redone" and setup.settings.on_correction else ()
    if trigger is not None and ended_well:
        others = reviews.list_unreviewed_ids(connection, session, _BATCH) if folder is not None else []
        review_job = _plan_affordable(connection, session, (turn.number, trigger, facts), others, setup)
    if review_job is not None:
        needs_model = "correction" in before.reasons or corrects == "said"
        is_enough = not needs_model and _MENDED.issuperset(review_job.reasons)
        review_job = msgspec.structs.replace(
            review_job, turns=turns, corrected_turns=corrected_turns, plain_is_enough=is_enough
        )
    elif turns and ended_well and "memory" in setup.kinds:
        reasons = tuple(reason for reason in counted.reasons if reason in _MENDED)
        plain = ReviewJob(session.id, turn.number, ("memory",), reasons, setup.runtime, facts.context_tokens)
        plain = msgspec.structs.replace(plain, is_plain=True, turns=turns, corrected_turns=corrected_turns)
        queued = (queue_review(connection, plain, session.conversation_id, setup.clock),)
    if trigger is not None and review_job is not None:
        queued = (queue_review(connection, review_job, session.conversation_id, setup.clock),)
        counted = reset_counters(counted, trigger.kinds)
        if folder is not None:
            reviews.set_counters(connection, _folder_key(session), reset_counters(folder, trigger.kinds))
    runtime = msgspec.json.encode(setup.runtime).decode()
    reviews.set_counters(
        connection, session.conversation_id, msgspec.structs.replace(counted, runtime=runtime)
    )
    return queued


def _has_plain_lesson(facts: ReviewedTurn, settings: ReviewSettings, corrects: Correction) -> bool:
    """Return whether a turn may hold a lesson that needs no model. A wrong guess costs no request."""
    if not settings.share:
        return False
    if corrects == "redone" and settings.on_correction:
        return True
    failed = [call for call in facts.calls if call.error_kind in _FAILURES]
    last = facts.calls[-1].step if facts.calls else 0
    return settings.on_recovery and bool(failed) and failed[0].step < last


def _find_correction(turn: int, facts: ReviewedTurn, before: ReviewedTurn) -> Correction:
    """Return how a turn corrects the one before it, or an empty string. A session's first message may correct
    what was done in another one: "No, the labels are A6"."""
    if not facts.said or (turn == 1 and not _OPENS.match(facts.said[0])):
        return ""
    from whet.review.correction import find_correction, rejects_earlier  # noqa: PLC0415 - 15 ms, most of it expressions; few one-shots need them

    if turn == 1:
        return "said" if rejects_earlier(facts.said[0]) else ""
    return find_correction(facts.said[0], facts.calls, before.calls, "\n".join(before.said))


def _choose_trigger(
    connection: apsw.Connection,
    session: SessionRow,
    counted: Counters,
    folder: Counters | None,
    setup: _TriggerSetup,
) -> ReviewTrigger | None:
    """Return the review that is due: by the counters of the conversation or of the folder's one-shots, or as
    one of the day's first looks at them."""
    for counters in (counted, folder):
        if counters is not None and (trigger := find_trigger(counters, setup.settings, setup.kinds)):
            return trigger
    turns = max(counted.turns, folder.turns if folder else 0)
    if "memory" not in setup.kinds or not setup.settings.turns or turns < min(_FIRST_LOOKS):
        return None
    since = day_start(setup.clock.now())
    workspace = session.workspace if folder is not None else None
    looks = reviews.count_looks(connection, session.conversation_id, workspace, since)
    is_due = looks < len(_FIRST_LOOKS) and turns >= _FIRST_LOOKS[looks]
    return ReviewTrigger(("memory",), ("day",)) if is_due else None


def _folder_key(session: SessionRow) -> str:
    return f"folder:{session.workspace}"


def _count_folder(
    connection: apsw.Connection, session: SessionRow, turn: int, facts: ReviewedTurn, setup: _TriggerSetup
) -> Counters | None:
    """Count a conversation's first turn for its folder too, and return the folder's counters.

    A conversation of one or two turns is usually too short to trigger a review, so the folder's counters add
    such conversations up. They also keep what a one-shot triggered while the day's share was used up. From
    the second turn on this returns None, and the third reverts the count, because from then on the
    conversation has reviews of its own.
    """
    is_counted = turn in (1, reviews.SHORT_TURNS + 1)
    if session.source != _ONE_SHOTS or session.id != session.conversation_id or not is_counted:
        return None
    lock_scope(connection, "reviews")
    before = reviews.get_counters(connection, _folder_key(session))
    if turn > 1:
        counted = msgspec.structs.replace(before, turns=max(before.turns - 1, 0))
    else:
        counted = count(before, facts, setup.settings)
    reviews.set_counters(connection, _folder_key(session), counted)
    return counted if turn == 1 else None


def count(
    before: Counters, facts: ReviewedTurn, settings: ReviewSettings, *, corrects: bool = False
) -> Counters:
    """Add a turn to the counters; a memory write resets the turns, a skill write the steps. `corrects`: its
    message corrected the turn before it."""
    written = {kind: _last_write_step(facts.calls, kind) for kind in KINDS}
    last_skill = written["skill"]
    steps = len({call.step for call in facts.calls if call.step > last_skill})
    reasons = list(before.reasons)
    # A turn that wrote lessons itself needs no review for a correction or recovery.
    if not any(written.values()):
        if settings.on_correction and (corrects or len(facts.said) > 1):
            reasons.append("correction")
        if settings.on_recovery and shows_recovery(facts.calls):
            reasons.append("recovery")
    return Counters(
        turns=0 if written["memory"] else before.turns + 1,
        steps=steps if last_skill else before.steps + steps,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _last_write_step(calls: Sequence[TurnCall], kind: Kind) -> int:
    """Return the last step that wrote a lesson of this kind, or 0."""
    steps = (call.step for call in calls if not call.error_kind and TAG_OF[kind] in tags_of(call.name))
    return max(steps, default=0)


def find_trigger(
    counted: Counters, settings: ReviewSettings, possible: Sequence[Kind]
) -> ReviewTrigger | None:
    """Return the review that the counters trigger, limited to the `possible` kinds, or None."""
    reasons = list(counted.reasons)
    kinds: set[Kind] = set(possible) if reasons else set()
    if "memory" in possible and settings.turns and counted.turns >= settings.turns:
        kinds.add("memory")
        reasons.append("turns")
    if "skill" in possible and settings.steps and counted.steps >= settings.steps:
        kinds.add("skill")
        reasons.append("steps")
    chosen: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in kinds)
    return ReviewTrigger(chosen, tuple(reasons)) if chosen else None


def reset_counters(counted: Counters, kinds: Sequence[Kind]) -> Counters:
    """Return the counters as they restart after a review for `kinds` is queued."""
    return Counters(
        turns=0 if "memory" in kinds else counted.turns, steps=0 if "skill" in kinds else counted.steps
    )


def _plan_affordable(
    connection: apsw.Connection,
    session: SessionRow,
    why: tuple[int, ReviewTrigger, ReviewedTurn],
    others: Sequence[str],
    setup: _TriggerSetup,
) -> ReviewJob | None:
    """Return the job for a review with the `others`, or None if the day's share has no room for one more.

    Queued reviews that need a model count as spent. A queued review of this conversation does not, because it
    is widened. The first review of a day that a correction triggers always has room.
    """
    turn, trigger, facts = why
    lock_scope(connection, "reviews")
    since = day_start(setup.clock.now())
    spent = weigh_day(reviews.usage_since(connection, since), setup.weights)
    waiting = jobs.find_waiting(connection, reviews.KIND, session.conversation_id)
    open_payloads = reviews.list_open_payloads(connection)
    if waiting is not None:
        open_payloads.remove(waiting.payload)
    queued = sum(map(_needs_model, open_payloads))
    settings, tokens = setup.settings, facts.context_tokens
    is_cached = facts.is_cached and not settings.model
    is_first = (
        bool(settings.share)
        and "correction" in trigger.reasons
        and not _had_correction_review(connection, since)
    )
    room = None if is_first else find_room(settings, spent) // (queued + 1)
    limits = settings.digest_tokens, len(others)
    expected = forecast(tokens, limits, setup.weights, is_cached=is_cached, room=room)
    if expected is None:
        return None
    return ReviewJob(
        session.id,
        turn,
        trigger.kinds,
        trigger.reasons,
        setup.runtime,
        tokens,
        is_cached=is_cached,
        is_brief=expected.is_brief,
        excerpt_tokens=expected.excerpt_tokens,
        others=tuple(others),
        allowance=spent.review_tokens + expected.weight * queued + expected.first_of_day if is_first else 0,
    )


def _needs_model(payload: str) -> bool:
    """Return whether a queued review asks a model."""
    try:
        return not read_review_job(payload).is_plain
    except WhetError:
        return True  # another version's


def _had_correction_review(connection: apsw.Connection, since: str) -> bool:
    """Return whether a correction has triggered a review since then."""
    for payload in reviews.payloads_since(connection, since):
        with suppress(WhetError):
            if "correction" in read_review_job(payload).reasons:
                return True
    return False


def day_start(now: datetime, later_days: int = 0) -> str:
    """Return the ISO time at which the person's day began, or begins `later_days` later."""
    local = local_time(now)
    midnight = datetime.combine(local.date() + timedelta(days=later_days), time.min)
    # a zone without a name is this machine's, whose offset may be another one on that day
    has_name = hasattr(local.tzinfo, "key")
    return iso(midnight.replace(tzinfo=local.tzinfo) if has_name else midnight.astimezone())


def shows_recovery(calls: Sequence[TurnCall]) -> bool:
    """Return whether these calls, in the order requested, recovered from a failure: by another call, or by a
    call that the error asked for, after which the same call worked."""
    doing = [call for call in calls if not tags_of(call.name) & _TRIVIAL and not _is_looking(call)]
    for at, failed in enumerate(doing):
        if failed.error_kind not in _FAILURES:
            continue
        after = doing[at + 1 :]
        later = [call for call in after if call.name == failed.name and not call.error_kind]
        again = next((n for n, call in enumerate(later) if call.arguments == failed.arguments), None)
        if again is None and any(call in later for call in after[:_NEAR_CALLS]):
            return True
        if any(is_taught(call.arguments, failed.arguments, failed.error) for call in later[: again or 0]):
            return True
    return False


def is_taught(call: str, failed: str, error: str) -> bool:
    """Return whether an error's own words name something that a later call has and the failed one lacked."""
    new = set(_WORD.findall(call)) - set(_WORD.findall(failed))
    return bool(new & set(_WORD.findall(error)))


def _is_looking(call: TurnCall) -> bool:
    """Return whether a command only looks around, judging by the first word after its last `&&`."""
    command = parse_arguments(call.arguments).get("command")
    if not isinstance(command, str):
        return False
    words = command.rpartition("&&")[2].split(maxsplit=1)
    return bool(words) and words[0] in _LOOKING
