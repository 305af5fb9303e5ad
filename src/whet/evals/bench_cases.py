"""The one shape of public memory benchmarks: cases of sessions, and questions with what answers them."""

from __future__ import annotations

import msgspec


class BenchMessage(msgspec.Struct, frozen=True):
    """Something said; `ref` is what the benchmark calls it."""

    ref: str
    text: str
    at_ms: int


class BenchSession(msgspec.Struct, frozen=True):
    """One conversation."""

    id: str
    messages: tuple[BenchMessage, ...]


class BenchQuestion(msgspec.Struct, frozen=True):
    """A question, what answers it (for each piece the refs of the messages that have it, any of which will
    do; none where the data does not say), its kind, when it is asked, and the right answer: empty where the
    data has none, None where the sessions do not tell it and an answer has to say so."""

    text: str
    evidence: tuple[frozenset[str], ...]
    kind: str
    now_ms: int
    answer: str | None = ""


class BenchCase(msgspec.Struct, frozen=True):
    """One store's worth of sessions, with its questions; `is_tuned` where settings were chosen on it."""

    id: str
    sessions: tuple[BenchSession, ...]
    questions: tuple[BenchQuestion, ...]
    is_tuned: bool = False
