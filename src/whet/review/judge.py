"""Let a second model check the changes that a review is about to activate: do the quotes support the lesson's
claim?

The program writes a lesson from its sources, so only the first model's interpretation can be wrong:
another person's wish taken as the owner's, a question taken as a rule. The second model is asked once per
review, in a session of its own. Its tokens count as a review's, and a worker that resumes after a crash
finds the answer there. It can only reject, and rejected changes wait for the person. An unreadable answer
changes nothing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session, TurnLimits
from whet.clock import Clock, iso
from whet.contract.errors import NotFound
from whet.contract.events import show_nothing
from whet.contract.messages import Message
from whet.contract.protocols import Gate, ModelLink, NobodyPresent, Provider
from whet.contract.texts import short
from whet.review import wording
from whet.review.budget import MeteredLink
from whet.review.fork import Fork, ForkParts, Inherited, ReviewGate
from whet.review.jobs import ReviewJob
from whet.review.probes import Look
from whet.store import ledger, sessions
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow
from whet.store.sessions import NewSession, SessionRow
from whet.store.transcript import Transcript

_MAX_CLAIMS = 12
_CLAIM_CHARS = 400
_QUOTE_CHARS = 800
_TIMEOUT_S = 120.0
_CHARS_PER_TOKEN = 2.5
_TAKEN_AS = {"memory": "a note", "user": "something about the person"}
_ANSWER = re.compile(r"^\W*NO\W*:(.*)$", re.MULTILINE | re.IGNORECASE)

_log = logging.getLogger("whet.review")


class Checks(msgspec.Struct, frozen=True):
    """The checks of a review's changes: `look` runs read-only commands, `judge` returns the second model
    (None: not configured)."""

    look: Look | None = None
    judge: Callable[[ReviewJob], Provider | None] | None = None


async def find_doubts(
    parts: ForkParts, fork: Fork, task_id: str, provider: Provider, *, by_hand: bool
) -> dict[int, str]:
    """Return the staged rows whose quotes do not support the claim, by id, each with the reason.

    Asks only once; without an answer no row is doubted. Raises StoreError.
    """
    rows = await parts.database.read(lambda db: read_claims(db, task_id))
    numbers = (
        read_refused_numbers(await _ask_judge(parts, fork, provider, write_question(rows), by_hand))
        if rows
        else []
    )
    doubtful = [row for number, row in enumerate(rows, 1) if number in numbers]
    _log.info("review %s: the judge says no to %d of %d", task_id, len(doubtful), len(rows))
    return {row.id: f"another model finds no “{short(row.remark, 90)}” in the quotes" for row in doubtful}


def read_refused_numbers(answer: str) -> list[int]:
    """Return the numbers that an answer rejects: those of its last line that begins with NO:."""
    lines = _ANSWER.findall(answer)
    return [int(number) for number in re.findall(r"\d{1,3}", lines[-1])] if lines else []


def read_claims(connection: apsw.Connection, task_id: str) -> list[LedgerRow]:
    """Return the staged rows of a review for the judge, `_MAX_CLAIMS` at most."""
    rows = ledger.list_task_rows(connection, task_id, ("staged",))
    return [row for row in rows if row.remark and row.after and row.trust != "untrusted"][:_MAX_CLAIMS]


def write_question(rows: Sequence[LedgerRow]) -> str:
    """Return one line of JSON for each claim, so that no text can pass for another claim's number."""
    lines: list[str] = []
    for number, row in enumerate(rows, 1):
        quotes = [f"{quote.role}: {quote.quote}" for quote in row.evidence]
        item = {
            "number": number,
            "taken as": _TAKEN_AS.get(row.item, "") if row.kind == "memory" else f"the procedure {row.item}",
            "claim": row.remark[:_CLAIM_CHARS],
            "quotes": "\n".join(quotes)[:_QUOTE_CHARS],
        }
        if row.kind == "memory":
            item["kept"] = row.after[:_QUOTE_CHARS]
        lines.append(json.dumps(item, ensure_ascii=False))
    return "\n".join(lines)


async def _ask_judge(parts: ForkParts, fork: Fork, provider: Provider, question: str, by_hand: bool) -> str:
    """Return the model's answer, also one from before a crash; an empty string if it did not answer."""
    prompt = wording.read_prompt("judge.md")
    parent = fork.session.log.session
    child = make_side_session(parent, parent.parent_session_id, provider, f"judge-{fork.session.id}", prompt)
    expected = int(len(prompt + question) / _CHARS_PER_TOKEN)
    link = MeteredLink(provider.open(prompt, [], child.id), parts.budget, expected, by_hand=by_hand)
    answer, why_not = await ask_once(
        QuestionParts(parts.database, parts.clock, parts.policy), child, link, question
    )
    if why_not:
        _log.warning("a review's judge gave no answer: %s", why_not)
    return answer


def make_side_session(
    parent: SessionRow, subject_id: str, provider: Provider, id_: str, prompt: str
) -> NewSession:
    """Return a session for asking another model about a session; it counts as a review's."""
    return NewSession(
        id=id_,
        parent_session_id=subject_id,
        kind="review",
        source=parent.source,
        provider=provider.info.provider,
        model=provider.info.model,
        workspace=parent.workspace,
        title=f"{id_.partition('-')[0]} of {parent.title}",
        system_prompt=prompt,
        tools_json="[]",
    )


class QuestionParts(msgspec.Struct, frozen=True):
    """The parts of a process that a single question to a model needs."""

    database: StateDatabase
    clock: Clock
    gate: Gate


async def ask_once(
    parts: QuestionParts, child: NewSession, link: ModelLink, question: str
) -> tuple[str, str]:
    """Ask over `link`, in a session of its own, unless it was asked before. Returns the answer, and the error
    if there is no answer. Raises StoreError."""

    def create(connection: apsw.Connection) -> None:
        try:
            sessions.get(connection, child.id)
        except NotFound:
            sessions.create(connection, child, iso(parts.clock.now()))

    await parts.database.append(create)
    transcript = await Transcript.open(parts.database, child.id, parts.clock)
    session = Session(
        log=transcript,
        link=link,
        context=Inherited([], lambda: link),
        tools={},
        gate=ReviewGate(parts.gate, ()),
        person=NobodyPresent(),
        limits=TurnLimits(1, _TIMEOUT_S),
        clock=parts.clock,
        workspace=Path(child.workspace),
    )
    why_not = ""
    if await transcript.claim_unfinished_turn() is not None:
        why_not = (await run_turn(session, None, show_nothing)).error
    elif not transcript.messages:
        why_not = (await run_turn(session, Message(role="user", content=question), show_nothing)).error
    answer = "\n".join(message.text for message in transcript.messages if message.role == "assistant")
    return answer, why_not
