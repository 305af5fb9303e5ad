"""LongMemEval V2: an agent's actions on web pages as sessions, with questions about them.

Its data names no evidence. A piece of an answer counts as found if a hit contains its words, compared as
the benchmark's own scorer does. Questions whose answer does not occur that way (a letter, a sentence, a
refused premise) are left out. Pictures are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from whet.contract.texts import from_json
from whet_lab.evals.bench_cases import BenchCase, BenchMessage, BenchQuestion, BenchSession

_DAY_MS = 86_400_000
_STEP_MS = 1_000
_MIN_CHARS = 3
Row = TypeVar("Row")


class _State(msgspec.Struct):
    url: str = ""
    action: str | None = None
    thought: str | None = None
    accessibility_tree: str = ""


class _Trajectory(msgspec.Struct):
    id: str
    states: list[_State]
    goal: str | list[str] = ""
    outcome: str | None = None


class _Question(msgspec.Struct):
    id: str
    question: str
    question_type: str
    answer: str


def read_trajectories(contents: dict[str, bytes]) -> list[BenchCase]:
    """Return one case per haystack: its trajectories and the questions about exactly these."""
    questions_by_id = {row.id: row for row in _lines(contents.pop("questions.jsonl"), _Question)}
    sessions = {row.id: row for row in _lines(contents.pop("trajectories.jsonl"), _Trajectory)}
    cases: list[BenchCase] = []
    for content in contents.values():
        haystacks = from_json(content, dict[str, list[str]])
        by_stack: dict[tuple[str, ...], list[_Question]] = {}
        for id_, stack in haystacks.items():
            by_stack.setdefault(tuple(stack), []).append(questions_by_id[id_])
        for stack, questions in by_stack.items():
            case_sessions = tuple(_session(sessions[id_], index) for index, id_ in enumerate(stack))
            cases.append(
                BenchCase(f"{len(cases)}", case_sessions, tuple(_questions(questions, case_sessions)))
            )
    return cases


def _lines(content: bytes, kind: type[Row]) -> list[Row]:
    return [from_json(line, kind) for line in content.splitlines() if line.strip()]


def _session(trajectory: _Trajectory, index: int) -> BenchSession:
    goal = trajectory.goal if isinstance(trajectory.goal, str) else " ".join(trajectory.goal)
    texts = [f"{goal} {trajectory.outcome or ''}".strip()]
    for state in trajectory.states:
        parts = (state.url, state.thought, state.action, state.accessibility_tree)
        texts.append("\n".join(filter(None, parts)))
    messages = (
        BenchMessage(f"{index}:{number}", text, (index + 1) * _DAY_MS + number * _STEP_MS)
        for number, text in enumerate(texts)
    )
    return BenchSession(f"{index}-{trajectory.id}", tuple(messages))


def _questions(rows: Sequence[_Question], sessions: Sequence[BenchSession]) -> Iterator[BenchQuestion]:
    there = [(message.ref, _plain(message.text)) for session in sessions for message in session.messages]
    now_ms = (len(sessions) + 2) * _DAY_MS
    for row in rows:
        pieces = [piece for part in re.split(r"[,;]", row.answer) if (piece := _plain(part).strip())]
        evidence = tuple(frozenset(ref for ref, text in there if f" {piece} " in text) for piece in pieces)
        if evidence and all(evidence) and all(len(piece) >= _MIN_CHARS for piece in pieces):
            yield BenchQuestion(row.question, evidence, row.question_type, now_ms)


def _plain(text: str) -> str:
    """Return a text's words in lower case between single spaces, without punctuation."""
    bare = re.sub(r"[^\w\s]", "", re.sub("[-_]", " ", text.lower()))
    return f" {' '.join(bare.split())} "
