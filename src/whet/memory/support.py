"""Whether quotes bear on a claim: its literals stand in the messages quoted from, its words are theirs.

Each sentence of a claim is looked at on its own. What trusted messages carry is trusted; what only untrusted
text carries taints the claim; what none carries refuses it, with the missing parts named. It knows nothing of
how a message came to be trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from whet.memory.folding import content_words, fold, stem, word_set
from whet.memory.literals import LIST_MARK, literals, stands_in
from whet.memory.sources import SourceText, Tier

_ENOUGH = 0.5
_ENOUGH_OF_SKILL = 0.34
_FOREIGN = 0.34
_WARNING = re.compile(
    r"\b(?:fail|error|don'?t|do not|avoid|never|not\b|wrong|instead|pitfall|break|hang|refus|crash"
    r"|without)",
    re.IGNORECASE,
)
_REMEDY = re.compile(
    r"(?:\binstead\b(?!\s+of)|\brather\b|->|→|\bfix:|\bremedy:|\bsolution:|\bdo:|\buse\b|\brun\b|[;.]\s)",
    re.I,
)
_OPPOSITES = tuple(
    pair.split("/")
    for pair in [
        "before/after",
        "passed/failed",
        "passes/fails",
        "pass/fail",
        "short/long",
        "always/never",
        "enabled/disabled",
        "enable/disable",
        "allowed/forbidden",
        "internal/external",
        "staging/production",
        "public/private",
        "first/last",
        "more/less",
        "minimum/maximum",
        "required/optional",
        "above/below",
        "start/stop",
        "accept/reject",
        "true/false",
        "succeeds/fails",
        "most/least",
        "daily/weekly",
        "read-only/writable",
        "mutable/immutable",
        "lowercase/uppercase",
        "ascending/descending",
        "synchronous/asynchronous",
    ]
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_FENCE = re.compile(r"(?m)^[ \t]*(?:`{3,}|~{3,}).*$")


class EvidencePool(msgspec.Struct, frozen=True):
    """What a claim may rest on: `trusted` messages, those that `failed` (for what went wrong only), and
    `untrusted` ones; `known` is the text being edited; `near` what stands around the quotes; `foreign`
    every untrusted text of the session; `standing` says of a literal whose word it is; `done`
    are the commands that succeeded, wherever their output came from."""

    trusted: tuple[SourceText, ...]
    failed: tuple[SourceText, ...]
    untrusted: tuple[SourceText, ...]
    foreign: tuple[SourceText, ...]
    standing: Callable[[str], Tier]
    done: tuple[str, ...] = ()
    known: str = ""
    near: str = ""


class Support(msgspec.Struct, frozen=True):
    """What came of looking: `missing` parts that nothing quoted carries, `failed_only` those that only a
    failed result carries, and `tainted` those that only untrusted text does. `unrelated`: the quotes are
    about something else."""

    missing: tuple[str, ...] = ()
    failed_only: tuple[str, ...] = ()
    tainted: tuple[str, ...] = ()
    unrelated: bool = False


def examine(text: str, pool: EvidencePool, *, is_skill: bool = False, is_pitfall: bool = False) -> Support:
    """Look at a claim sentence by sentence."""
    bodies = _Bodies(pool)
    missing: dict[str, None] = {}
    failed_only: dict[str, None] = {}
    tainted: dict[str, None] = {}
    parts = list(_parts(text, is_pitfall=is_pitfall))
    for part, may_fail in parts:
        allowed = may_fail or (is_skill and _WARNING.search(part) is not None)
        for literal in literals(part):
            where = bodies.where(literal, allow_failed=allowed)
            if where == "missing":
                missing[literal] = None
            elif where == "failed":
                failed_only[literal] = None
            elif where == "untrusted":
                tainted[literal] = None
        if turned := bodies.turned_round(part):
            missing[turned] = None
        if foreign := bodies.foreign_words(part):
            tainted[foreign] = None
    enough = _ENOUGH_OF_SKILL if is_skill else _ENOUGH
    related, only_untrusted = bodies.related(text, enough)
    if related and only_untrusted:
        tainted[text[:60]] = None
    return Support(tuple(missing), tuple(failed_only), tuple(tainted), not related)


class _Bodies:
    """The pool's texts, folded once."""

    def __init__(self, pool: EvidencePool) -> None:
        known = fold(pool.known)
        self._known = known
        self._done = pool.done
        self._standing = pool.standing
        self._trusted = [known, *(source.fresh for source in pool.trusted), *pool.done]
        self._failed = [source.folded for source in pool.failed]
        self._untrusted = [source.folded for source in pool.untrusted]
        self._trusted_words = _words(self._trusted)
        self._failed_words = _words(self._failed)
        self._untrusted_words = _words(self._untrusted)
        self._foreign = [word_set(source.folded) for source in pool.foreign]
        self._near = word_set(f"{pool.near} {known}")
        self._near_text = f"{pool.near} {known}"

    def where(self, literal: str, *, allow_failed: bool) -> str:
        """Say which texts carry a literal: trusted, failed, untrusted or missing."""
        if any(_carries(body, literal) for body in self._trusted):
            return self._whose(literal)
        if any(_carries(body, literal) for body in self._failed):
            return "trusted" if allow_failed else "failed"
        if any(_carries(body, literal) for body in self._untrusted):
            return "untrusted"
        return "missing"

    def _whose(self, literal: str) -> str:
        if _carries(self._known, literal) or not _is_telling(literal):
            return "trusted"
        standing = self._standing(literal)
        if standing == "own":
            return "trusted" if any(_carries(done, literal) for done in self._done) else "missing"
        return "untrusted" if standing == "untrusted" else "trusted"

    def turned_round(self, part: str) -> str:
        """Give a word of a sentence whose opposite is what the messages say, and not itself."""
        said = set(re.findall(r"[\w-]+", fold(part)))
        for pair in _OPPOSITES:
            for mine, theirs in (pair, pair[::-1]):
                if mine in said and theirs not in said and self._only_says(theirs, mine):
                    return mine
        return ""

    def _only_says(self, word: str, other: str) -> bool:
        return stands_in(word, self._near_text) and not any(
            stands_in(other, body) for body in (*self._trusted, *self._failed)
        )

    def foreign_words(self, part: str) -> str:
        """Give the words of a sentence that only one untrusted text carries, where they are a good part of
        it: the sentence was taken over from there, in whatever words."""
        words = content_words(part)
        home = self._trusted_words | self._failed_words
        strange = [word for word in words if word not in home]
        for there in self._foreign:
            taken = [word for word in strange if word in there]
            if len(taken) >= 2 and len(taken) >= _FOREIGN * len(words):
                return " ".join(taken)
        return ""

    def related(self, text: str, enough: float) -> tuple[bool, bool]:
        """Say whether the quotes are about what the text says, and whether that rests on untrusted ones."""
        words = content_words(text)
        named = [literal for literal in literals(text) if _is_telling(literal)]
        near = any(word in self._near for word in words) or any(
            _carries(self._near_text, one) for one in named
        )
        if not words:
            return near or bool(named), False
        home = self._trusted_words | self._failed_words
        covered = sum(word in home for word in words) / len(words)
        if covered >= enough and near:
            return True, False
        if near and named and covered >= enough / 2 and any(_carries(self._near_text, one) for one in named):
            return True, False
        everything = home | self._untrusted_words
        reached = sum(word in everything for word in words) / len(words)
        return reached >= enough and near, True


def _parts(text: str, *, is_pitfall: bool) -> list[tuple[str, bool]]:
    """Cut a claim into sentences; of a pitfall also into what went wrong and, with False, the remedy."""
    text = LIST_MARK.sub("", _FENCE.sub("", text))
    if not is_pitfall:
        return [(part, False) for part in _SENTENCE.split(text) if part.strip()]
    body = re.sub(r"^\s*pitfall\s*:\s*", "", text, flags=re.IGNORECASE)
    cut = None
    for cut in _REMEDY.finditer(body):
        if cut.start() > 3:
            break
    if cut is None or cut.start() <= 3:
        return [(body, True)]
    return [(body[: cut.start()], True), (body[cut.start() :], False)]


def _words(bodies: Sequence[str]) -> frozenset[str]:
    return frozenset[str]().union(*map(word_set, bodies))


def _carries(body: str, literal: str) -> bool:
    if stands_in(literal, body):
        return True
    bare = literal.rstrip("/").removeprefix("./")
    if bare != literal and stands_in(bare, body):
        return True
    if literal.isalpha() and literal.isascii() and len(literal) > 3:
        return re.search(rf"\b{re.escape(stem(literal))}\w{{0,3}}\b", body) is not None
    return literal.isdigit() and literal in word_set(body) if len(literal) <= 2 else False


def _is_telling(literal: str) -> bool:
    """Whether a literal is rare enough that sharing it means being about the same thing."""
    return len(literal) >= (3 if literal.isdigit() else 4)
