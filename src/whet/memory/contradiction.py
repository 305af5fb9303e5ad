"""Whether the person took back, later in the session, what a claim rests on.

A later message of theirs speaks against a claim when a sentence of it rejects something that the claim says,
or when, right after what is quoted, it says no and nothing more. It looks at words, not at meaning: a doubt
is a refusal, and the model may try again with the person's latest words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.memory.folding import content_words, fold, word_set
from whet.memory.literals import literals, stands_in
from whet.memory.sources import SourceText

_REJECTS = re.compile(
    r"\b(?:no(?!te|w|r)\b(?!\s+(?:problem|worries|need))|not\b|nope|wrong|incorrect|false|untrue"
    r"|mistaken?|misremembered|scratch that|forget"
    r"|never ?mind|disregard|ignore|don'?t|doesn'?t|isn'?t|aren'?t|won'?t|shouldn'?t|stop|no longer"
    r"|anymore|any more|outdated"
    r"|deprecated|retired|was a (?:lie|joke|mistake)|i lied|just kidding|actually|instead of"
    r"|rather than|take (?:that|it) back"
    r"|changed (?:my|our) minds?|undo that|nicht|falsch|doch nicht|nein|kein\w*|non|pas\b|faux"
    r"|mal\b)\b|不对|不是|错了|违|ちがう|違う"
)
_NO = (
    r"(?:no+|nope|wrong|nein|falsch|non|that'?s (?:wrong|not right|not true|incorrect|false)|scratch that"
    r"|forget (?:that|it|what i said)|never ?mind|i was (?:wrong|mistaken)|(?:my )?mistake"
    r"|ignore (?:that|this)|disregard that|don'?t (?:save|remember|keep) (?:that|this|it)|不对|错了)"
)
_BARE = re.compile(rf"{_NO}(?:[\s.,!]+(?:{_NO}|sorry|please|about that|actually))*[\s.!]*")
# What is said no to here is what was done, not what comes after the colon or the full stop.
_POINTS_BACK = (
    r"(?:(?:that|this|it)(?:'?s| is| was)(?:n'?t| not)? (?:just |quite |at all |simply )?"
    r"(?:wrong|incorrect|right|correct|true|it|the (?:file|one|place|way|right \w+)"
    r"|(?:what|how|the way) (?:i|we) (?:want(?:ed)?|mean|meant|said|asked(?: you)?(?: for)?|do (?:it|that)))"
    r"\s*[:;.!-]+\s*)"
)
_OPENING = re.compile(
    rf"(?:^|(?<=[.!?\n])\s*)(?:(?:no+|nope|nein|non|wrong|falsch|不对|错了)\s*[,:;.!-]+\s*{_POINTS_BACK}?|{_POINTS_BACK})"
)
_CLAUSE = re.compile(
    r"[.!?;\n]+|,\s+(?=(?:but|not|use|it|we|i|the|our|my|you|they|run|please)\b)|\s+-\s+|\bbut\b"
    r"|\b(?=not\b)|\b(?=instead of\b)|\b(?=rather than\b)"
)


def contradiction(text: str, places: Sequence[SourceText], sources: Sequence[SourceText]) -> str:
    """Give the person's words that take the claim back, empty where none do. `places` are the sources that
    its quotes stand in; those may say the opposite themselves."""
    if not places:
        return ""
    first, last = min(source.seq for source in places), max(source.seq for source in places)
    theirs = [one for one in sources if one.tier == "user" and one.role == "user" and not one.why]
    after = [source for source in theirs if source.seq > last]
    if after and _BARE.fullmatch(after[0].folded):
        return after[0].text.strip()
    mine = _Claim(text)
    quoted = {source.seq for source in places}
    for source in theirs:
        # "No, X" says no to what was said before it; where it is itself what is quoted, it says X.
        said = _OPENING.sub("", source.folded) if source.seq in quoted else source.folded
        if source.seq >= first and any(mine.is_denied_by(clause) for clause in clauses(said)):
            return source.text.strip()
    return ""


def clauses(folded: str) -> list[str]:
    """Cut folded text where a thought, or a denial, begins."""
    return [clause for clause in _CLAUSE.split(folded) if clause and clause.strip()]


class _Claim:
    """A claim taken apart: its literals and words, and what it denies itself."""

    def __init__(self, text: str) -> None:
        folded = fold(text)
        self._named = [literal for literal in literals(text) if len(literal) > 1]
        self._denied = frozenset[str]().union(*(_denied(clause) for clause in clauses(folded)))
        affirmed = [clause for clause in clauses(folded) if not _REJECTS.search(clause)]
        self._affirmed = frozenset(word for clause in affirmed for word in content_words(clause))
        self._affirmed_text = " ".join(affirmed)

    def is_denied_by(self, clause: str) -> bool:
        """Whether a clause denies what the claim affirms."""
        found = _REJECTS.search(clause)
        if found is None:
            return False
        denied = _denied(clause)
        if denied & self._denied:
            return False  # the claim says no to the same thing
        tail = clause[found.start() :]
        if any(stands_in(one, tail) and stands_in(one, self._affirmed_text) for one in self._named):
            return True
        if denied and len(denied) <= 2 and denied <= self._affirmed and len(self._affirmed) <= 4:
            return True
        shared = self._affirmed & (denied or word_set(clause))
        return len(shared) >= 2 and len(shared) >= 0.5 * len(self._affirmed)


def _denied(clause: str) -> frozenset[str]:
    """Give the words that a clause says no to: those after its denial, else those before it."""
    found = _REJECTS.search(clause)
    if found is None:
        return frozenset()
    return frozenset(content_words(clause[found.end() :]) or content_words(clause[: found.start()]))
