"""Let a second model mark the sentences of an answer that the turn's receipt does not support.

Off unless `judge.answers` is set. After a turn with effects it makes one model call, stored as a separate
session; the call costs as much as a review and counts against the caps. It only marks: answer, receipt and
goal do not change. If the model can't be asked, the receipt says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from whet.agent.session import Session, TurnObserver, receipt_of
from whet.clock import Clock
from whet.contract.errors import WhetError
from whet.contract.events import TurnEnd
from whet.contract.protocols import Gate, ModelLink, Provider
from whet.contract.receipts import TurnReceipt
from whet.log import mask
from whet.review import wording
from whet.review.judge import QuestionParts, ask_once, make_side_session, read_refused_numbers
from whet.store import facts
from whet.store.database import StateDatabase

_MAX_SENTENCES = 40
_SENTENCE_CHARS = 300
_MIN_CHARS = 8
_MAX_ROWS = 60
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$", re.DOTALL | re.MULTILINE)
_LIST_MARK = re.compile(r"^\s*(?:[-*+>#]+|\d+[.)])\s+")
_ENDS = re.compile(r"(?<=[.!?])[\"'”’)*_]*\s+(?=[\"'“‘(*_]*[A-Z\d])")


class MarkingParts(msgspec.Struct, frozen=True):
    """The parts of a process that marking needs. `connect` returns the judging model; `cap_link` checks a
    session's calls on a link against the caps."""

    database: StateDatabase
    clock: Clock
    gate: Gate
    connect: Callable[[], Provider]
    cap_link: Callable[[ModelLink, str], ModelLink]


class MarkingObserver(TurnObserver):
    """Checks each answer of one session against its receipt."""

    def __init__(self, parts: MarkingParts) -> None:
        self._parts = parts

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Store the marked sentences with the turn."""
        if end.reason != "answered" or session.log.session.kind != "chat":
            return
        key, turn = session.log.live.key, session.log.live.last_turn
        receipt, answer_sentences = receipt_of(session, turn), split_sentences(end.text)
        if receipt is None or not answer_sentences:
            return
        marked, why_not = await self._ask_judge(session, end.turn_id, receipt, answer_sentences)
        if marked or why_not:
            await self._parts.database.write(
                lambda db: facts.store_marks(
                    db, (key, turn), [answer_sentences[number - 1] for number in marked], why_not
                )
            )

    async def _ask_judge(
        self, session: Session, turn_id: str, receipt: TurnReceipt, answer_sentences: list[str]
    ) -> tuple[list[int], str]:
        """Return the numbers of the marked sentences, or the reason why the model could not be asked."""
        parts, parent = self._parts, session.log.session
        try:
            provider = parts.connect()
        except WhetError as error:
            return [], error.message
        async with aclosing(provider):
            prompt = wording.read_prompt("marks.md")
            child = make_side_session(parent, parent.id, provider, f"marks-{turn_id}", prompt)
            link = parts.cap_link(provider.open(prompt, [], child.id), child.id)
            call_parts = QuestionParts(parts.database, parts.clock, parts.gate)
            answer, why_not = await ask_once(call_parts, child, link, _question(receipt, answer_sentences))
        numbers = [number for number in read_refused_numbers(answer) if 0 < number <= len(answer_sentences)]
        return numbers, why_not


def split_sentences(text: str) -> list[str]:
    """Return up to forty sentences of an answer, without code and list marks."""
    pieces: list[str] = []
    for line in _FENCED.sub("", text).splitlines():
        pieces += [piece.strip() for piece in _ENDS.split(_LIST_MARK.sub("", line))]
    return [piece[:_SENTENCE_CHARS] for piece in pieces if len(piece) >= _MIN_CHARS][:_MAX_SENTENCES]


def _question(receipt: TurnReceipt, answer_sentences: list[str]) -> str:
    """Return the receipt and each sentence as lines of JSON, so that a sentence can't imitate another one's
    number."""
    lines: list[object] = [{"receipt": [receipt.line, *receipt.rows[:_MAX_ROWS]]}]
    lines += [{"number": number, "sentence": sentence} for number, sentence in enumerate(answer_sentences, 1)]
    return mask("\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
