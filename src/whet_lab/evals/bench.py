"""Measures how much of the evidence for benchmarks' questions Whet's search and plain BM25 find.

Each case gets its own store. The unit of the intervals is a question. The seed is fixed, so the same data
and code produce the same card.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import msgspec

from whet.clock import Clock, iso
from whet.contract.messages import Message
from whet.stats import Interval, mcnemar, typical_mean
from whet.store import bulk
from whet.store.database import StateDatabase
from whet.store.search import find_now
from whet.store.sessions import NewSession
from whet_lab.evals.bench_cases import BenchCase, BenchQuestion
from whet_lab.evals.bench_data import BenchData

OWN, PLAIN = "search", "bm25"
SEED = 0
_ORIGIN = "bench"

Finder: TypeAlias = Callable[[BenchQuestion, int], list[str]]
"""Takes a question and a limit, and returns the refs of messages, best first."""
_K1, _B = 1.2, 0.75
_WORDS = (
    "a an and are as at be been by can could did do does for from had has have he her his how i if in is it "
    "its me my of on or our she should so that the their them they this to was we were what when where which "
    "who whom why will with would you your"
)
_STOP = frozenset(_WORDS.split())


class BenchArm(msgspec.Struct, frozen=True):
    """One arm on some of the questions.

    `recall` is the mean share of a question's evidence among the hits, `any_found` the share of questions
    with any evidence among them.
    """

    arm: str
    part: str
    questions: int
    recall: Interval
    any_found: float


class BenchGap(msgspec.Struct, frozen=True):
    """Whet's search against plain BM25.

    `gap` is the mean difference of the recall. The counts are of questions for which only one of the two
    found all evidence.
    """

    part: str
    gap: Interval
    only_search: int
    only_bm25: int
    p_value: float


class BenchCard(msgspec.Struct, frozen=True):
    """The results of a run, and the data needed to repeat it."""

    benchmark: str
    files: tuple[str, ...]
    sha256: str
    whet: str
    at: str
    seed: int
    hits: int
    cases: int
    arms: tuple[BenchArm, ...]
    gaps: tuple[BenchGap, ...]
    kinds: dict[str, float]
    """The recall of Whet's search by kind of question."""


class _Answer(msgspec.Struct, frozen=True):
    kind: str
    is_tuned: bool
    recall: dict[str, float]


def run(
    data: BenchData, hits: int, clock: Clock, version: str, progress: Callable[[int, int], object]
) -> BenchCard:
    """Run every question of every case."""
    answers: list[_Answer] = []
    for number, case in enumerate(data.cases):
        progress(number, len(data.cases))
        answers += _score_case(case, hits, clock)
    parts = {
        "all": answers,
        "tuned on": [answer for answer in answers if answer.is_tuned],
        "held out": [answer for answer in answers if not answer.is_tuned],
    }
    kinds = sorted({answer.kind for answer in answers})
    return BenchCard(
        benchmark=data.name,
        files=data.files,
        sha256=data.digest,
        whet=version,
        at=iso(clock.now()),
        seed=SEED,
        hits=hits,
        cases=len(data.cases),
        arms=tuple(_arm(arm, part, some) for arm in (OWN, PLAIN) for part, some in parts.items() if some),
        gaps=tuple(_gap(part, some) for part, some in parts.items() if some),
        kinds={
            kind: fmean(answer.recall[OWN] for answer in answers if answer.kind == kind) for kind in kinds
        },
    )


def _score_case(case: BenchCase, hits: int, clock: Clock) -> Iterator[_Answer]:
    if not (questions := [question for question in case.questions if question.evidence]):
        return
    with open_finders(case, clock) as finders:
        for question in questions:
            recall = {arm: _share(finder(question, hits), question) for arm, finder in finders.items()}
            yield _Answer(question.kind, case.is_tuned, recall)


def _share(refs: Sequence[str], question: BenchQuestion) -> float:
    return sum(not any_of.isdisjoint(refs) for any_of in question.evidence) / len(question.evidence)


@contextmanager
def open_finders(case: BenchCase, clock: Clock) -> Generator[dict[str, Finder]]:
    """Provide the finders of a case: Whet's search over a store of its messages, and plain BM25 over them."""
    refs: dict[tuple[str, int], str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="whet-bench-") as folder,
        closing(StateDatabase.open(Path(folder) / "state.db", clock)) as database,
    ):
        for session in case.sessions:
            past_messages = [
                bulk.PastMessage(Message("user", message.text), message.at_ms) for message in session.messages
            ]
            past = bulk.PastSession(
                NewSession(session.id), past_messages, past_messages[0].at_ms if past_messages else 0
            )
            database.write_now(lambda db, past=past: bulk.store_session(db, _ORIGIN, past, iso(clock.now())))
            refs |= {(session.id, seq): message.ref for seq, message in enumerate(session.messages, 1)}

        def find(question: BenchQuestion, hits: int) -> list[str]:
            now = datetime.fromtimestamp(question.now_ms / 1000, UTC)
            search_hits = find_now(database, question.text, hits, now=now)
            return [refs[hit.session_id, hit.seq] for hit in search_hits]

        yield {OWN: find, PLAIN: _make_bm25_finder(case)}


def _make_bm25_finder(case: BenchCase) -> Finder:
    messages = [message for session in case.sessions for message in session.messages]
    bm25 = PlainBm25([message.text for message in messages])
    return lambda question, hits: [messages[index].ref for index in bm25.best(question.text, hits)]


def _arm(arm: str, part: str, answers: Sequence[_Answer]) -> BenchArm:
    shares = [answer.recall[arm] for answer in answers]
    any_found = fmean(share > 0 for share in shares)
    return BenchArm(arm, part, len(shares), typical_mean(shares, seed=SEED), any_found)


def _gap(part: str, answers: Sequence[_Answer]) -> BenchGap:
    pairs = [(answer.recall[OWN], answer.recall[PLAIN]) for answer in answers]
    only_own = sum(own_recall == 1 and plain < 1 for own_recall, plain in pairs)
    only_plain = sum(plain == 1 and own_recall < 1 for own_recall, plain in pairs)
    gap = typical_mean([own_recall - plain for own_recall, plain in pairs], seed=SEED)
    return BenchGap(part, gap, only_own, only_plain, mcnemar(only_own, only_plain))


class PlainBm25:
    """An index of texts by their position in the list."""

    def __init__(self, texts: Sequence[str]) -> None:
        documents = [_tokens(text) for text in texts]
        self._lengths = [len(tokens) for tokens in documents]
        self._mean = sum(self._lengths) / max(len(documents), 1) or 1.0
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for index, tokens in enumerate(documents):
            for token, count in Counter(tokens).items():
                self._postings.setdefault(token, []).append((index, count))

    def best(self, query: str, limit: int) -> list[int]:
        """Return the positions of the best texts, best first."""
        scores: Counter[int] = Counter()
        for token in dict.fromkeys(_tokens(query)):
            postings = self._postings.get(token, [])
            idf = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for index, count in postings:
                norm = 1 - _B + _B * self._lengths[index] / self._mean
                scores[index] += idf * count * (_K1 + 1) / (count + _K1 * norm)  # pyright: ignore[reportArgumentType] a Counter takes floats
        return nlargest(limit, scores, key=lambda index: (scores[index], -index))


def _tokens(text: str) -> list[str]:
    return [token for token in re.findall(r"[^\W_]+", text.lower()) if token not in _STOP]
