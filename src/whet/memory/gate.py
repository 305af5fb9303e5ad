"""Stands before every learned write: is there evidence, from whom, and is the text itself harmless.

It judges one claim against the texts of one session and refuses with a reason that lets the model try again.
Trust: the person's words before what was observed; what untrusted text alone carries is quarantined. It
writes nothing, and knows neither files nor the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from whet.log import mask
from whet.memory.claim import Claim, GateVerdict
from whet.memory.contradiction import contradiction
from whet.memory.duplicates import duplicate_of
from whet.memory.folding import fold
from whet.memory.requests import Refused
from whet.memory.scan import scan
from whet.memory.sources import SourceText
from whet.memory.support import EvidencePool, Support, examine
from whet.memory.transcript import QuotableTranscript, QuotePlace, load
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.ledger import Quote, Trust

_SHORTEST_CHARS = 8
_SHORTEST_ALONE = 12
_SHORTEST_LINE = 6
_PACKED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MOST_QUOTES = 12
_KEPT_QUOTE_CHARS = 400


def check_text(claim: Claim) -> None:
    """Raise Refused for a text that may not be kept whoever says it, and for one that is there already."""
    if finding := scan(claim.text):
        raise Refused(f"Not kept: {finding}", hint="Leave it out or say it otherwise.")
    if same := duplicate_of(claim.text, claim.existing):
        raise Refused(
            f"That is remembered already: {_short(same)}", hint="Nothing has to be saved; or replace it."
        )


def judge_stored(
    database: StateDatabase, session_id: str, local_tools: Collection[str], claim: Claim, *, foreground: bool
) -> GateVerdict:
    """Give the verdict on a claim, judged by what is stored of a session. Raises Refused, NotFound."""
    check_text(claim)  # first: it needs no reading
    if database.read_now(lambda db: sessions.get(db, session_id)).private:
        raise Refused("This session is private: nothing is learned from it", hint="Go on without saving.")
    transcript = database.read_now(lambda db: load(db, session_id, local_tools))
    return judge(claim, transcript, foreground=foreground)


def judge(claim: Claim, transcript: QuotableTranscript, *, foreground: bool) -> GateVerdict:
    """Give the verdict on a claim. Raises Refused with what would make it acceptable."""
    check_text(claim)
    places = _places(claim, transcript, foreground=foreground)
    pool = _pool(claim, places, transcript)
    if not pool.trusted and not pool.untrusted:
        raise Refused(*_no_evidence(claim, places))
    found = examine(claim.text, pool, is_skill=claim.kind == "skill", is_pitfall=claim.is_pitfall)
    _refuse_unsupported(claim, found)
    if said := contradiction(claim.text, [place.source for place in places], transcript.sources):
        raise Refused(
            f"The person took that back later in the session: {_short(said)}",
            hint="Keep what they said last, quoted from there, or nothing.",
        )
    evidence = tuple(_quote(place, transcript.session_id) for place in places)
    if found.tainted or not pool.trusted:
        why = next((place.why for place in places if place.tier == "untrusted" and place.why), "")
        part = (
            f"only untrusted text says: {', '.join(map(_short, found.tainted[:3]))}" if found.tainted else why
        )
        return GateVerdict(
            "untrusted", evidence, quarantined=True, why=part or "it rests on untrusted text alone"
        )
    trust: Trust = "user" if any(place.tier == "user" for place in places) else "observed"
    return GateVerdict(trust, evidence)


def _places(claim: Claim, transcript: QuotableTranscript, *, foreground: bool) -> list[QuotePlace]:
    """Find every quote that is long enough to mean something. Raises Refused for one that stands nowhere."""
    if not claim.quotes and foreground:
        return [QuotePlace(source.text, source, "user", source.folded) for source in transcript.own_words()]
    if not claim.quotes:
        raise Refused(
            "There is no evidence",
            hint="Give verbatim quotes from the session: the person's words, or a result.",
        )
    places: list[QuotePlace] = []
    short: list[str] = []
    for quote in dict.fromkeys(claim.quotes[:_MOST_QUOTES]):
        place = transcript.locate(quote)
        if not _means_something(quote, place):
            short.append(quote)
        elif place is None:
            hint = "Quote word for word from the person or from a result, one message per quote."
            raise Refused(f"This quote does not stand in the session: {_short(quote)}", hint=hint)
        else:
            places.append(place)
    if not places:
        shown = ", ".join(map(_short, short[:3]))
        raise Refused(
            f"These quotes are too short to show anything: {shown}", hint="Quote a whole sentence or line."
        )
    return places


def _means_something(quote: str, place: QuotePlace | None) -> bool:
    folded = fold(quote)
    if place is not None and place.tier == "user" and folded == place.source.folded:
        return len(folded) >= 5
    if len(_PACKED.findall(folded)) >= 4:
        return True
    words = re.findall(r"\w[\w.'/-]*", folded)
    size = len(folded.replace(" ", ""))
    if place is not None and size >= _SHORTEST_LINE and folded in map(fold, place.source.text.splitlines()):
        return True
    return size >= _SHORTEST_CHARS and (len(words) >= 2 or size >= _SHORTEST_ALONE)


def _pool(claim: Claim, places: Sequence[QuotePlace], transcript: QuotableTranscript) -> EvidencePool:
    trusted = {
        id(p.source): p.source for p in places if p.tier in ("user", "observed") and not p.source.failed
    }
    failed = {id(p.source): p.source for p in places if p.tier in ("user", "observed") and p.source.failed}
    done = [place.source.called for place in places]
    if claim.kind == "skill":
        # A procedure is spread over the steps of a turn; its evidence is too.
        for source in (one for turn in {p.source.turn for p in places} for one in transcript.of_turn(turn)):
            done.append(source.called)
            if source.tier in ("user", "observed"):
                (failed if source.failed else trusted).setdefault(id(source), source)
    if not trusted or not (claim.is_pitfall or claim.kind == "skill"):
        failed_pool: tuple[SourceText, ...] = ()
    else:
        failed_pool = tuple(failed.values())
    return EvidencePool(
        trusted=tuple(trusted.values()),
        failed=failed_pool,
        untrusted=tuple(p.source for p in places if p.tier == "untrusted" and not p.source.failed),
        foreign=tuple(source for source in transcript.sources if source.tier == "untrusted"),
        known=claim.known,
        near=" ".join(f"{place.around} {place.source.called}" for place in places if place.tier != "own"),
        standing=transcript.standing,
        done=tuple(filter(None, done)),
    )


def _no_evidence(claim: Claim, places: Sequence[QuotePlace]) -> tuple[str]:
    if any(place.source.failed for place in places):
        return (
            "The quotes are from failed results; what to do needs a successful result or the person's word",
        )
    return ("The quotes are the assistant's own words, which show nothing; quote the person or a result",)


def _refuse_unsupported(claim: Claim, found: Support) -> None:
    if found.missing:
        shown = ", ".join(_short(part, 40) for part in found.missing[:6])
        raise Refused(
            f"The messages quoted from don't say: {shown}",
            hint="Quote the message that does, or leave it out of what is kept.",
        )
    if found.failed_only:
        shown = ", ".join(_short(part, 40) for part in found.failed_only[:6])
        raise Refused(
            f"Only a failed result says: {shown}",
            hint="Quote a successful result or the person for what to do; what went wrong begins `Pitfall:`.",
        )
    if found.unrelated:
        raise Refused(
            "The quotes have nothing to do with what is to be kept",
            hint="Quote the message that shows it, and say it in that message's words.",
        )


def _quote(place: QuotePlace, session_id: str) -> Quote:
    source = place.source
    return Quote(
        mask(place.quote[:_KEPT_QUOTE_CHARS]),
        session_id,
        source.seq,
        source.role,
        source.tool,
        place.tier,
        source.failed,
    )


def _short(text: str, limit: int = 90) -> str:
    text = " ".join(text.split())
    return f"“{text if len(text) <= limit else text[: limit - 1] + '…'}”"
