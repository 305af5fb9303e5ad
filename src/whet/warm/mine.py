"""Mine the store for calls worth showing: a stream over finished sessions, in constant memory.

The first pass judges every call, counts each tool's errors, and groups calls that worked by shape, with a
few candidates each. The second pass looks only at the chosen calls: one of each of the best groups,
for the tools that fail, in proportion to how often they fail. The same store always yields the same
template.
"""

from __future__ import annotations

import bisect
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apsw
import msgspec

from whet.contract.tools import tags_of
from whet.memory.folding import content_words
from whet.memory.transcript import is_rejection
from whet.store import calls
from whet.store.calls import MinedSession, StoredCall, UserWords
from whet.warm.aftermath import JudgedCall, OutcomeJudge
from whet.warm.foreign_calls import convert_call
from whet.warm.mends import FailureSample, Mend, find_mend, words_of
from whet.warm.shape import shape_of

MIN_ERROR_RATE = 0.02
_MIN_CALLS = 5
_MAX_GROUPS = 4_000
_CANDIDATES = 5
_SAMPLE = 300
_MAX_ARGUMENT_CHARS = 2_000
_HINT_CHARS = 160
_HALF_LIFE_DAYS = 90
_MIN_TASK_WORDS = 2

Progress = Callable[[int, int], None]
"""Called with (messages read, messages in total) now and then."""
CallOrder = tuple[int, int, int]
"""The order of calls, independent of the reading order of the store: rank, session, seq."""


class MiningScope(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions to mine. `max_sessions` 0: all of them."""

    min_messages: int = 20
    max_sessions: int = 0
    source: str = ""
    project: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """A call that could become an example. `rank` orders candidates pseudo-randomly, equally in every run."""

    rank: int
    session: MinedSession
    name: str
    arguments: dict[str, Any]
    seq: int
    at_ms: int
    hint: str
    repairs: str = ""
    repairs_why: str = ""
    mend: Mend | None = None

    @property
    def order(self) -> CallOrder:
        """The call's sort key."""
        return self.rank, self.session.key, self.seq


class Group(msgspec.Struct):
    """Calls of one tool and shape that worked."""

    name: str
    shape: str
    sessions: int = 0
    calls: int = 0
    repairs: int = 0
    last_ms: int = 0
    last_key: int | None = None
    candidates: list[Candidate] = msgspec.field(default_factory=list[Candidate])

    def count(self, session: int, at_ms: int, is_repair: bool) -> None:
        """Count a call."""
        self.calls += 1
        self.repairs += is_repair
        self.last_ms = max(self.last_ms, at_ms)
        if session != self.last_key:
            self.sessions += 1
            self.last_key = session

    def take_over(self, other: Group, candidates: Sequence[Candidate]) -> None:
        """Add another group's calls, as `candidates`."""
        self.sessions += other.sessions
        self.calls += other.calls
        self.last_ms = max(self.last_ms, other.last_ms)
        both = sorted([*self.candidates, *candidates], key=lambda candidate: candidate.order)
        self.candidates = both[:_CANDIDATES]

    def score(self, newest_ms: int) -> float:
        """Return recurrence over sessions, times recency, times a bonus for repairs."""
        age_days = max(newest_ms - self.last_ms, 0) / 86_400_000
        return math.log2(1 + self.sessions) * 0.5 ** (age_days / _HALF_LIFE_DAYS) * (3 if self.repairs else 1)


class ToolTally(msgspec.Struct):
    """How often a tool was called and failed; denied calls and calls without a known end don't count."""

    calls: int = 0
    failed: int = 0

    @property
    def error_rate(self) -> float:
        """The share of failed calls."""
        return self.failed / self.calls if self.calls else 0.0

    def add(self, failed: bool) -> None:
        """Count a call."""
        self.calls += 1
        self.failed += failed

    def fails(self, least: float) -> bool:
        """Return whether it fails often enough to be worth the tokens: in `least` of its calls."""
        return self.calls >= _MIN_CALLS and self.error_rate >= least


class MiningResult(msgspec.Struct):
    """The results of the first pass. `sample` holds calls that worked, drawn at random from all."""

    sessions: int = 0
    messages: int = 0
    tools: dict[str, ToolTally] = msgspec.field(default_factory=dict[str, ToolTally])
    groups: dict[str, Group] = msgspec.field(default_factory=dict[str, Group])
    sample: list[Candidate] = msgspec.field(default_factory=list[Candidate])
    failures: FailureSample = msgspec.field(default_factory=FailureSample)
    newest_ms: int = 0

    def rank_groups(self, tool: str) -> list[Group]:
        """Return a tool's groups, the best first."""
        return self._best_first([group for group in self.groups.values() if group.name == tool])

    def drop_unproven_mends(self) -> None:
        """Count calls that followed a failure as mends only if the mistake failed in other sessions too; the
        others are calls that worked."""
        worked = [
            (candidate.name, words_of(candidate.name, candidate.arguments)) for candidate in self.sample
        ]
        for key, group in list(self.groups.items()):
            mend = group.candidates[0].mend
            if mend is None or self.failures.confirms(mend, worked):
                continue
            del self.groups[key]
            plain = [
                msgspec.structs.replace(candidate, repairs="", repairs_why="", mend=None)
                for candidate in group.candidates
            ]
            shape = shape_of(group.name, plain[0].arguments)
            self.groups.setdefault(shape, Group(group.name, shape)).take_over(group, plain)

    def thin_out(self) -> None:
        """Drop the weaker half of the groups."""
        best = self._best_first(self.groups.values())
        self.groups: dict[str, Group] = {group.shape: group for group in best[: len(best) // 2]}

    def _best_first(self, groups: Iterable[Group]) -> list[Group]:
        return sorted(groups, key=lambda group: (-group.score(self.newest_ms), group.shape))

    def failing_tools(self, least: float = MIN_ERROR_RATE) -> list[tuple[str, float]]:
        """Return the tools that need examples with their error rates, the worst first."""
        rates = [(name, tally.error_rate) for name, tally in self.tools.items() if tally.fails(least)]
        return sorted(rates, key=lambda row: (-row[1], row[0]))


def mine(connection: apsw.Connection, choice: MiningScope, progress: Progress) -> MiningResult:
    """Read the store once. Memory does not grow with the number of messages."""
    sessions = calls.find_finished_sessions(
        connection,
        min_messages=choice.min_messages,
        limit=choice.max_sessions,
        source=choice.source,
        workspace=choice.project,
    )
    total = sum(session.messages for session in sessions)
    mined = MiningResult(sessions=len(sessions))
    for session in sessions:
        for judged, hint in _judge_calls(connection, session):
            _count_call(mined, session, judged, hint)
        mined.messages += session.messages
        progress(mined.messages, total)
    mined.drop_unproven_mends()
    return mined


def _judge_calls(connection: apsw.Connection, session: MinedSession) -> Iterator[tuple[JudgedCall, str]]:
    """Yield a session's calls with their outcomes and the person's request in that turn."""
    judge = OutcomeJudge(
        calls.list_undone_turns(connection, session.key), calls.list_tool_names(connection, session.key)
    )
    hints: dict[int, str] = {}
    asked = ""
    for item in calls.stream_calls(connection, session.key):
        judge.add(convert_call(item, session) if isinstance(item, StoredCall) else item)
        for judged in judge.take():
            yield judged, hints.get(judged.call.turn, "")
        if isinstance(item, UserWords) and item.turn not in hints:
            # keep only the turns that may not be settled yet
            hints = {turn: text for turn, text in hints.items() if turn >= item.turn - 1}
            if not asked or not _is_reply(item.text):
                asked = " ".join(item.text[: 2 * _HINT_CHARS].split())[:_HINT_CHARS]
            hints[item.turn] = asked
    for judged in judge.finish():
        yield judged, hints.get(judged.call.turn, "")


def _is_reply(text: str) -> bool:
    """Return whether a message only answers what was done before it, so that the task is that of the message
    before: "No, undo it", "go on"."""
    return is_rejection(text) or (len(content_words(text)) < _MIN_TASK_WORDS and not re.search(r"\d", text))


def _count_call(mined: MiningResult, session: MinedSession, judged: JudgedCall, hint: str) -> None:
    call, outcome = judged.call, judged.outcome
    if outcome in ("denied", "unknown"):
        return
    mined.tools.setdefault(call.name, ToolTally()).add(outcome == "failed")
    mined.newest_ms = max(mined.newest_ms, call.at_ms)
    if outcome == "failed":
        mined.failures.add(session, judged)
    if outcome != "ok" or not judged.arguments or not is_eligible(call):
        return
    mend = judged.repairs and find_mend(call.name, judged.repairs.arguments, judged.arguments)
    shape = mend.key if mend else shape_of(call.name, judged.arguments)
    group = mined.groups.get(shape)
    if group is None:
        if len(mined.groups) >= _MAX_GROUPS:
            mined.thin_out()
        group = mined.groups[shape] = Group(call.name, shape)
    group.count(session.key, call.at_ms, mend is not None)
    rank = zlib.crc32(f"{session.id}:{call.seq}".encode())
    order = (rank, session.key, call.seq)
    pools = [
        pool
        for pool, most in ((group.candidates, _CANDIDATES), (mined.sample, _SAMPLE))
        if len(pool) < most or order < pool[-1].order
    ]
    if pools:
        new_candidate = _make_candidate(rank, session, judged, hint, mend)
        for pool in pools:
            bisect.insort(pool, new_candidate, key=lambda candidate: candidate.order)
        del group.candidates[_CANDIDATES:], mined.sample[_SAMPLE:]


def _make_candidate(
    rank: int, session: MinedSession, judged: JudgedCall, hint: str, mend: Mend | None
) -> Candidate:
    call, repaired = judged.call, judged.repairs
    return Candidate(
        rank,
        session,
        call.name,
        judged.arguments,
        call.seq,
        call.at_ms,
        hint,
        repaired.arguments[:_MAX_ARGUMENT_CHARS] if repaired and mend else "",
        judged.repairs_why if mend else "",
        mend,
    )


def is_eligible(call: StoredCall) -> bool:
    """Return whether a call that worked may become an example at all."""
    text = call.result
    return (
        bool(text)
        and "aside" not in tags_of(call.name)
        and not call.exit_code
        and call.decided_by in ("", "rule")
        and not text.isspace()
        and "\0" not in text
        and len(call.arguments) <= _MAX_ARGUMENT_CHARS
    )
