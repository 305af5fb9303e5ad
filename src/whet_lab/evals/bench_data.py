"""Loads public memory benchmarks as cases: sessions, and questions with the messages that answer them.

A loader reads a local folder; nothing is downloaded. The same files always produce the same cases.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from whet.contract.errors import BadInput
from whet.contract.texts import NOT_JSON, from_json, from_values
from whet_lab.evals.bench_cases import BenchCase, BenchMessage, BenchQuestion, BenchSession
from whet_lab.evals.bench_trajectories import read_trajectories

_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_LOCOMO_TIMES = ("%I:%M %p on %d %B, %Y",)
_LONGMEMEVAL_TIMES = ("%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M")
_STEP_MS = 1_000
_ABSTENTION = "_abs"
"""The suffix of LongMemEval's question ids whose answer is not in the sessions."""

Said = TypeVar("Said")
Reader: TypeAlias = Callable[[dict[str, bytes]], list[BenchCase]]


class BenchData(msgspec.Struct, frozen=True):
    """A loaded benchmark; `digest` is the SHA-256 of its files."""

    name: str
    digest: str
    files: tuple[str, ...]
    cases: tuple[BenchCase, ...]


def load_benchmark(name: str, folder: Path) -> BenchData:
    """Read a benchmark's files. Raises BadInput."""
    patterns, reader = LOADERS[name]
    paths: list[Path] = []
    for pattern in patterns:
        matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not matches:
            raise BadInput(f"there is no {pattern} in {folder}", hint="--data names the folder with the data")
        paths += matches
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for content in contents.values():
        digest.update(content)
    try:
        cases = reader(contents)
    except (*NOT_JSON, LookupError, ValueError) as error:
        names = ", ".join(map(str, paths))
        raise BadInput(
            f"{names} is not data of {name}: {error}", hint="--data names the folder as it was downloaded"
        ) from error
    return BenchData(name, digest.hexdigest(), tuple(contents), tuple(cases))


class _LocomoMessage(msgspec.Struct):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str = ""


class _LocomoQuestion(msgspec.Struct):
    question: str
    category: int = 0
    evidence: list[str] = []
    answer: str | int | float = ""


class _LocomoCase(msgspec.Struct):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_LocomoQuestion]


_ADVERSARIAL = 5
"""LoCoMo's kind of questions that have no answer."""


def _read_locomo(content: bytes) -> list[BenchCase]:
    """Return the cases of a LoCoMo file with all their questions.

    A question without an answer has no evidence, even if the data names some. A message is the speaker's
    text with the caption of a picture. Settings were chosen on every second case.
    """
    cases: list[BenchCase] = []
    for number, case in enumerate(from_json(content, list[_LocomoCase])):
        sessions = tuple(_locomo_sessions(case.conversation))
        refs = {message.ref for session in sessions for message in session.messages}
        now_ms = max((session.messages[-1].at_ms for session in sessions if session.messages), default=0)
        questions = [
            BenchQuestion(
                raw_question.question,
                tuple(
                    frozenset([ref])
                    for ref in _locomo_refs(raw_question.evidence)
                    if ref in refs and has_answer
                ),
                str(raw_question.category),
                now_ms + 86_400_000,
                str(raw_question.answer) if has_answer else None,
            )
            for raw_question in case.qa
            for has_answer in [raw_question.category != _ADVERSARIAL]
        ]
        cases.append(BenchCase(case.sample_id, sessions, tuple(questions), is_tuned=number % 2 == 0))
    return cases


def _locomo_refs(evidence: Iterable[str]) -> list[str]:
    """Return refs as the conversation writes them. The data has several in one text, and leading zeros."""
    pairs = [pair for text in evidence for pair in _EVIDENCE.findall(text)]
    return list(dict.fromkeys(f"D{int(session)}:{int(turn)}" for session, turn in pairs))


def _locomo_sessions(talk: dict[str, Any]) -> Iterable[BenchSession]:
    numbers = sorted(int(key[8:]) for key in talk if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        begin_ms = _time_ms(str(talk[f"session_{number}_date_time"]), _LOCOMO_TIMES)
        messages = from_values(talk[f"session_{number}"], list[_LocomoMessage])
        yield BenchSession(
            f"session-{number}",
            tuple(
                BenchMessage(
                    message.dia_id,
                    f"{message.speaker}: {message.text} {message.blip_caption}".rstrip(),
                    at_ms,
                )
                for at_ms, message in _space_times(begin_ms, messages)
            ),
        )


class _LongMessage(msgspec.Struct):
    role: str
    content: str
    has_answer: bool = False


class _LongCase(msgspec.Struct):
    question_id: str
    question: str
    question_type: str
    question_date: str
    haystack_session_ids: list[str]
    haystack_dates: list[str]
    haystack_sessions: list[list[_LongMessage]]
    answer: str | int | float = ""
    answer_session_ids: list[str] = []


def _read_longmemeval(content: bytes) -> list[BenchCase]:
    """Return one case per question. The evidence is the messages marked as containing the answer."""
    cases: list[BenchCase] = []
    for number, case in enumerate(from_json(content, list[_LongCase])):
        sessions: list[BenchSession] = []
        evidence: list[frozenset[str]] = []
        for index, (date, raw_messages) in enumerate(
            zip(case.haystack_dates, case.haystack_sessions, strict=True)
        ):
            messages: list[BenchMessage] = []
            for at_ms, raw_message in _space_times(_time_ms(date, _LONGMEMEVAL_TIMES), raw_messages):
                messages.append(BenchMessage(f"{index}:{len(messages)}", raw_message.content, at_ms))
                if raw_message.has_answer:
                    evidence.append(frozenset([messages[-1].ref]))
            sessions.append(BenchSession(f"{index}-{case.haystack_session_ids[index]}", tuple(messages)))
        question = BenchQuestion(
            case.question,
            tuple(evidence),
            case.question_type,
            _time_ms(case.question_date, _LONGMEMEVAL_TIMES),
            None if case.question_id.endswith(_ABSTENTION) else str(case.answer),
        )
        cases.append(BenchCase(case.question_id, tuple(sessions), (question,), is_tuned=number % 2 == 0))
    return cases


def _space_times(begin_ms: int, messages: Sequence[Said]) -> Iterable[tuple[int, Said]]:
    """Yield messages with times one second apart."""
    return ((begin_ms + _STEP_MS * index, message) for index, message in enumerate(messages))


def _time_ms(text: str, formats: Iterable[str]) -> int:
    for form in formats:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is not a time")


def _read_each(reader: Callable[[bytes], list[BenchCase]]) -> Reader:
    """Return the reader of a benchmark in which each file is independent."""
    return lambda contents: [case for content in contents.values() for case in reader(content)]


LOADERS: dict[str, tuple[tuple[str, ...], Reader]] = {
    "locomo": (("locomo10*.json",), _read_each(_read_locomo)),
    "longmemeval": (("longmemeval_*.json",), _read_each(_read_longmemeval)),
    "longmemeval-v2": (
        ("questions.jsonl", "trajectories.jsonl", "haystacks/lme_v2_*.json"),
        read_trajectories,
    ),
}
"""The files of each benchmark in a folder, and their reader."""
