"""Reviews of the cases: the text that a review's model reads of each, and the replies that were recorded.

`python -m benchmarks.outcomes dump FILE.jsonl FOLDER` writes one prompt for each case, in an order and under
names that tell nothing of its label. A model's replies belong into a file of JSON lines beside the cases,
`strangers.replies.jsonl` for `strangers.jsonl`: `{"id": ..., "reply": ...}`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.config.schema import ReviewSettings
from whet.contract.messages import Message, ToolCall
from whet.memory.sources import StoredText, read_sources
from whet.review import wording
from whet.review.correction import find_correction
from whet.review.digest import digest
from whet.review.pointed_outcomes import Verified, read_pointers, verify_pointers
from whet.review.triggers import count
from whet.store.calls import UNMARKED, StoredCall, UserWords
from whet.store.reviews import Counters, ReviewedTurn, TurnCall

if TYPE_CHECKING:
    from benchmarks.outcomes import OutcomeCase

Item = StoredCall | UserWords
_NO_TURN = ReviewedTurn((), (), 0)
_TOKENS = 24_000
_ALLOWED = ("memory", "skills_list", "skill_view", "skill_manage", "read_file", "search_files")


def case_id(case: OutcomeCase) -> str:
    """Return a name that depends on the steps of a case only."""
    return hashlib.sha256(msgspec.json.encode(case.steps)).hexdigest()[:10]


def write_messages(items: list[Item]) -> list[StoredText]:
    """Return the items of a case as stored messages."""
    stored: list[StoredText] = []
    seq = 0
    for item in items:
        if isinstance(item, UserWords):
            seq += 1
            message = Message("user", item.text)
            stored.append(StoredText(seq, item.turn, message))
            continue
        call = ToolCall(f"c{item.seq}", item.name, item.arguments)
        text, is_error = item.result or "", bool(item.error_kind)
        result = Message("tool", text, tool_call_id=call.id, tool_name=item.name, is_error=is_error)
        stored.append(StoredText(item.asked_seq, item.turn, Message("assistant", tool_calls=(call,))))
        stored.append(StoredText(item.seq, item.turn, result))
        seq = item.seq
    return stored


def write_prompt(items: list[Item]) -> str:
    """Return the message that a review's model reads of a case, as an excerpt."""
    text = digest([row.message for row in write_messages(items)], _TOKENS)
    opening = wording.review_message(("memory", "skill"), "", _ALLOWED, is_brief=True, has_calls=True)
    return f"{wording.TITLE}\n\n{text}\n\n{opening}"


def point(items: list[Item], reply: str) -> Verified:
    """Set what the reply of a review, which read all calls, points at, as far as the case proves it."""
    calls = [item for item in items if isinstance(item, StoredCall)]
    verified = verify_pointers(read_pointers([reply]), calls, read_sources(write_messages(items)))
    for call in calls:
        call.pointed = verified.outcomes.get(call.seq, UNMARKED)
    return verified


def is_reviewed_at_once(items: list[Item]) -> bool:
    """Return whether one of the case's turns calls for a review by itself, under shipped settings. The others
    are read with the day's looks at their conversation or folder."""
    turns = [_read_turn(items, number) for number in range(1, items[-1].turn + 1)]
    counters = Counters()
    for turn, before in zip(turns, [_NO_TURN, *turns], strict=False):
        corrects = turn is not turns[0] and bool(
            find_correction(turn.said[0], turn.calls, before.calls, "\n".join(before.said))
        )
        counters = count(counters, turn, ReviewSettings(), corrects=corrects)
    return bool(counters.reasons)


def _read_turn(items: list[Item], number: int) -> ReviewedTurn:
    mine = [item for item in items if item.turn == number]
    said = tuple(item.text for item in mine if isinstance(item, UserWords))
    turn_calls = tuple(
        TurnCall(item.step, item.name, item.arguments, item.error_kind, item.result or "")
        for item in mine
        if isinstance(item, StoredCall)
    )
    return ReviewedTurn(said, turn_calls, 0)


def read_replies(path: Path) -> dict[str, str]:
    """Return the recorded replies by the ids of their cases; empty if there are none."""
    if not path.exists():
        return {}
    lines = path.read_text("utf-8").splitlines()
    rows = [msgspec.json.decode(line, type=dict[str, str]) for line in lines if line.strip()]
    return {row["id"]: row["reply"] for row in rows if "id" in row}
