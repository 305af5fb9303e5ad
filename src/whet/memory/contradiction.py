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
from whet.memory.sources import Source

_REJECTS = re.compile(
    r"\b(?:no(?!te|w|r)\b(?!\s+(?:problem|worries|need))|not\b|nope|wrong|incorrect|false|untrue|mistaken?|misremembered|scratch that|forget"
    r"|never ?mind|disregard|ignore|don'?t|doesn'?t|isn'?t|aren'?t|won'?t|shouldn'?t|stop|no longer|anymore|any more|outdated"
    r"|deprecated|retired|was a (?:lie|joke|mistake)|i lied|just kidding|actually|instead of|rather than|take (?:that|it) back"
    r"|changed (?:my|our) minds?|undo that|nicht|falsch|doch nicht|nein|kein\w*|non|pas\b|faux|mal\b)\b|不对|不是|错了|违|ちがう|違う"
)
_BARE = re.compile(
    r"(?:no+|nope|wrong|nein|falsch|non|that'?s (?:wrong|not right|not true|incorrect|false)|scratch that|forget (?:that|it|what i said)|never ?mind"
    r"|i was (?:wrong|mistaken)|(?:my )?mistake|ignore (?:that|this)|disregard that|don'?t (?:save|remember|keep) (?:that|this|it)|不对|错了)"
    r"[\s.,!]*(?:sorry|please|about that|i was wrong)?[\s.!]*"
)
_CLAUSE = re.compile(
    r"[.!?;\n]+|,\s+(?=(?:but|not|use|it|we|i|the)\b)|\s+-\s+|\bbut\b|\b(?=not\b)|\b(?=instead of\b)|\b(?=rather than\b)"
)
_NOW = re.compile(
    r"\b(?:use|now|it'?s|it is|should be|must be|is|are|go(?:es)? (?:to|with)|switch(?:ed)? to|prefer)\b"
)


def contradiction(text: str, places: Sequence[Source], sources: Sequence[Source]) -> str:
    """Give the person's words that take the claim back, empty where none do. `places` are the sources that
    its quotes stand in."""
    if not places:
        return ""
    first = min(source.seq for source in places)
    last = max(source.seq for source in places)
    later = [
        source for source in sources if source.role == "user" and source.tier == "user" and source.seq > first
    ]
    named = literals(text)
    words = content_words(text)
    folded = fold(text)
    for number, source in enumerate(one for one in later if not one.why):
        if source.seq > last and number == 0 and _BARE.fullmatch(source.folded):
            return source.text.strip()
        for clause in _CLAUSE.split(source.folded):
            if clause and _speaks_against(clause, named, words, folded):
                return source.text.strip()
    return ""


def _speaks_against(clause: str, named: Sequence[str], words: Sequence[str], claim: str) -> bool:
    rejection = _REJECTS.search(clause)
    if rejection is None:
        return False
    if _REJECTS.search(claim) and _same_rejection(clause, claim):
        return False  # the claim itself says no to the same thing
    after = clause[rejection.start() :]
    if any(stands_in(literal, after) or stands_in(literal, clause) for literal in named if len(literal) > 1):
        return True
    there = word_set(clause)
    shared = [word for word in words if word in there]
    return len(shared) >= 2 and len(shared) >= 0.4 * len(words)


def _same_rejection(clause: str, claim: str) -> bool:
    """Whether the claim rejects what the clause rejects: "don't use npm" against "use pnpm, not npm"."""
    found = _REJECTS.search(clause)
    if found is None:
        return False
    rejected = content_words(clause[found.end() :]) or content_words(clause[: found.start()])
    for mine in _REJECTS.finditer(claim):
        near = word_set(claim[max(0, mine.start() - 60) : mine.end() + 60])
        if any(word in near for word in rejected):
            return True
    return False
