"""Check with a control that a call mended a failed one: the same mistake failed elsewhere without the mend.

The difference of the two calls is the lesson: the words that were dropped and the words that came. A call
that merely worked after a failure taught nothing, unless calls with the dropped words, and without the new
ones, fail in other sessions too, and seldom work.
"""

from __future__ import annotations

import re
import zlib
from bisect import insort
from collections.abc import Iterable
from typing import Any

import msgspec

from whet.contract.texts import parse_arguments
from whet.store.calls import MinedSession
from whet.warm.aftermath import JudgedCall
from whet.warm.outcome import programs_of

_WORD = re.compile(r"[^\s'\"`;|&<>()]+")
_FILE = re.compile(r"\w[\w-]*\.[A-Za-z]\w{0,5}")
_MAX_WORDS = 24
_MAX_FAILURES = 2_000
_MIN_SESSIONS = 2


class Mend(msgspec.Struct, frozen=True):
    """What a call changed about a failed one: the words that it dropped and those that it added, of paths
    only the folders. `exact`: the dropped words as they were; `program`: that of the failed call."""

    name: str
    program: str
    dropped: frozenset[str]
    added: frozenset[str]
    kept: frozenset[str]
    exact: frozenset[str]

    @property
    def key(self) -> str:
        """A text that is the same for the same lesson."""
        changes = f"-{' '.join(sorted(self.dropped))} +{' '.join(sorted(self.added))}"
        return f"{self.name} {self.program} {changes}"[:300]

    def is_repeated_by(self, words: frozenset[str]) -> bool:
        """Return whether a call makes the same mistake: it has the dropped words and none of the new ones. If
        nothing was dropped, it has the program and most of the other words."""
        if self.program not in words or not self.added.isdisjoint(words):
            return False
        if self.dropped:
            return self.dropped <= words
        return 2 * len(self.kept & words) >= len(self.kept)


class FailedCall(msgspec.Struct, frozen=True):
    """A failed call: its session, its tool and its words."""

    rank: int
    session: int
    name: str
    words: frozenset[str]


class FailureSample(msgspec.Struct):
    """Failed calls of the store; of very many, a pseudo-random part that is equal in every run."""

    calls: list[FailedCall] = msgspec.field(default_factory=list[FailedCall])
    by_word: dict[str, list[FailedCall]] = msgspec.field(default_factory=dict[str, list[FailedCall]])
    """The calls by each of their words. Empty until the first mend is compared with them."""

    def add(self, session: MinedSession, judged: JudgedCall) -> None:
        """Add a failed call."""
        call = judged.call
        rank = zlib.crc32(f"{session.id}:{call.seq}".encode())
        if len(self.calls) >= _MAX_FAILURES and rank >= self.calls[-1].rank:
            return
        words = words_of(call.name, judged.arguments)
        insort(self.calls, FailedCall(rank, session.key, call.name, words), key=lambda failed: failed.rank)
        del self.calls[_MAX_FAILURES:]
        self.by_word.clear()

    def confirms(self, mend: Mend, worked: Iterable[tuple[str, frozenset[str]]]) -> bool:
        """Return whether the same mistake failed in several sessions, and more often than it worked among
        `worked`, the tools and words of calls drawn from those that worked."""
        if not self.by_word:
            for call in self.calls:
                for word in call.words:
                    self.by_word.setdefault(word, []).append(call)
        return self._fails(mend, worked) or (
            mend.dropped != mend.exact
            and self._fails(msgspec.structs.replace(mend, dropped=mend.exact), worked)
        )

    def _fails(self, mend: Mend, worked: Iterable[tuple[str, frozenset[str]]]) -> bool:
        near = self.by_word.get(mend.program, ())
        failed = [call for call in near if call.name == mend.name and mend.is_repeated_by(call.words)]
        if len({call.session for call in failed}) < _MIN_SESSIONS:
            return False
        fine = sum(name == mend.name and mend.is_repeated_by(words) for name, words in worked)
        return fine < len(failed)


def find_mend(name: str, failed_arguments: str, arguments: dict[str, Any]) -> Mend | None:
    """Return what a call changed about a failed one, or None if it is another kind of call."""
    before_arguments = parse_arguments(failed_arguments)
    before, after = words_of(name, before_arguments), words_of(name, arguments)
    program = _program(name, before_arguments)
    kept = before & after
    is_wrapped = program in {word.rpartition("/")[2] for word in after}
    if before == after or (not is_wrapped and 2 * len(kept) < len(before)):
        return None
    return Mend(name, program, _folders(before - after), _folders(after - before), kept, before - after)


def words_of(name: str, arguments: dict[str, Any]) -> frozenset[str]:
    """Return the words of a call, with its program or tool and the folders of its paths."""
    text = " ".join(str(value) for value in arguments.values())[:2_000]
    words = _WORD.findall(text)[:_MAX_WORDS]
    folders = [f"{word.rpartition('/')[0] or '.'}/" for word in words if "/" in word or _FILE.fullmatch(word)]
    return frozenset([_program(name, arguments), *words, *folders])


def _folders(words: frozenset[str]) -> frozenset[str]:
    """Return the folders among the words if there are any: of files in another place, the place is the
    lesson."""
    return frozenset(word for word in words if word.endswith("/")) or words


def _program(name: str, arguments: dict[str, Any]) -> str:
    command = arguments.get("command")
    return next(programs_of(command), name) if isinstance(command, str) else name
