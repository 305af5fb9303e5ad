"""The common shape of public memory benchmarks: cases of sessions, and questions with their evidence."""

from __future__ import annotations

import msgspec


class BenchMessage(msgspec.Struct, frozen=True):
    """A message; `ref` is its name in the benchmark."""

    ref: str
    text: str
    at_ms: int


class BenchSession(msgspec.Struct, frozen=True):
    """One conversation."""

    id: str
    messages: tuple[BenchMessage, ...]


class BenchQuestion(msgspec.Struct, frozen=True):
    """A question with its evidence, kind, time and right answer.

    `evidence` holds, for each piece of the answer, the refs of the messages that contain it; any one of
    them is enough. It is empty if the data names none. `now_ms` is the time of the question. `answer` is
    empty if the data has no answer, and None if the sessions do not contain it and the model must say so.
    """

    text: str
    evidence: tuple[frozenset[str], ...]
    kind: str
    now_ms: int
    answer: str | None = ""


class BenchCase(msgspec.Struct, frozen=True):
    """The sessions of one store with their questions. If `is_tuned`, settings were chosen on this case."""

    id: str
    sessions: tuple[BenchSession, ...]
    questions: tuple[BenchQuestion, ...]
    is_tuned: bool = False
