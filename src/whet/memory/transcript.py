"""A session as evidence: where a quote stands, and who was the first to say it.

What the assistant or an untrusted text said first is not made true by a local tool that repeats it; what the
person says in their own words is theirs whoever said it before. It judges no claim.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import apsw
import msgspec

from whet.memory.folding import fold
from whet.memory.literals import stands_in
from whet.memory.sources import SourceText, StoredText, Tier, puts, sources
from whet.store import rows, sessions


class QuotePlace(msgspec.Struct, frozen=True):
    """Where a quote was found and what it is worth there. `around` is the folded text near it."""

    quote: str
    source: SourceText
    tier: Tier
    around: str
    why: str = ""


_NEAR = 300


class QuotableTranscript:
    """The texts of one session, in order; `turn` is the last turn's number."""

    def __init__(self, session_id: str, found: Sequence[SourceText]) -> None:
        self.session_id = session_id
        self.sources: list[SourceText] = list(found)
        self.turn: int = max((source.turn for source in found), default=0)

    def locate(self, quote: str) -> QuotePlace | None:
        """Give where a quote counts most: the person's words, then what was observed; None where it stands
        nowhere."""
        wanted = fold(quote)
        holders = [(source, at) for source in self.sources if (at := source.folded.find(wanted)) >= 0]
        if not wanted or not holders:
            return None
        best: QuotePlace | None = None
        first = next((s for s, _ in holders if s.tier != "own" or puts(s)), holders[0][0])
        for source, at in holders:
            place = self._place(quote, source, (at, at + len(wanted)), first)
            if best is None or _rank(place) > _rank(best):
                best = place
        return best

    def standing(self, literal: str) -> Tier:
        """Say whose word a literal is: the person's if they ever said it; observed where a local tool showed
        it though nobody had put it there; else whoever was first: untrusted text, or the assistant (own)."""
        first: Tier | None = None
        put = False
        for source in self.sources:
            if not stands_in(literal, source.folded):
                continue
            if source.tier == "user":
                return "user"
            if source.tier == "observed" and not put:
                return self._said_later(literal, source) or "observed"
            put = put or puts(source)
            if source.tier == "untrusted" or (first is None and source.tier == "own"):
                first = "untrusted" if source.tier == "untrusted" else first or "own"
        return first or "own"

    def _said_later(self, literal: str, after: SourceText) -> Tier | None:
        later = (s for s in self.sources if s.seq > after.seq and s.tier == "user")
        return "user" if any(stands_in(literal, source.folded) for source in later) else None

    def of_turn(self, turn: int) -> list[SourceText]:
        """Give the texts of one turn."""
        return [source for source in self.sources if source.turn == turn]

    def own_words(self) -> list[SourceText]:
        """Give what the person said in the last turn."""
        return [source for source in self.of_turn(self.turn) if source.tier == "user"]

    def _place(self, quote: str, source: SourceText, span: tuple[int, int], first: SourceText) -> QuotePlace:
        tier: Tier = source.tier_at(*span)
        why = source.why
        if tier == "observed" and first is not source and first.tier in ("own", "untrusted"):
            tier, why = first.tier, first.why or "the assistant said it before the tool repeated it"
        elif tier == "untrusted" and source.tier == "observed":
            why = "it is written there for an assistant to follow"
        around = source.folded[max(0, span[0] - _NEAR) : span[1] + _NEAR]
        return QuotePlace(quote, source, tier, around, why)


def _rank(place: QuotePlace) -> tuple[int, bool]:
    return ("own", "untrusted", "observed", "user").index(place.tier), not place.source.failed


def load(connection: apsw.Connection, session_id: str, trusted: Collection[str] = ()) -> QuotableTranscript:
    """Read a session's messages, also those that a compaction took out of sight; `local` names the tools
    whose results are observed. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    kind = sessions.get(connection, session_id).kind
    found = connection.execute(
        "SELECT id, turn, role, content, extra FROM messages WHERE id >= ? AND id < ?"
        " AND turn NOT IN (SELECT number FROM turns WHERE session = ? AND undone <> '') ORDER BY id",
        (key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS, key),
    )
    stored = [StoredText(r[0] & (rows.SEQ_LIMIT - 1), r[1], rows.unpack(r[2], r[3], r[4])) for r in found]
    return QuotableTranscript(session_id, sources(stored, has_person=kind == "chat", trusted=trusted))
