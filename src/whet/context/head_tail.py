"""Chooses the messages that stay word for word: the first ones, once, and the end of the conversation.

`pair_results` puts a list in order first; nothing else here changes a row. An answer with tool calls and
their results form one group that is never split. The person's last message and the last answer they saw
always stay; if they are in the middle, they are taken out of it. This module knows nothing of summaries.
"""

from __future__ import annotations

from typing import NamedTuple

from whet.context import rows as chat
from whet.contract.context_engine import ChatRow, ChatRows

_TAIL_MESSAGES_MIN = 3
_STRETCH = 1.5


class KeepLimits(NamedTuple):
    """How much may stay: messages and tokens at the head, tokens at the end."""

    head_messages: int
    head_tokens: int
    tail_tokens: int


class Split(NamedTuple):
    """A list in its parts.

    `head`, `middle` (to be compacted), `kept` (taken out of the middle, placed after the summary) and
    `tail`.
    """

    head: ChatRows
    middle: ChatRows
    kept: ChatRows
    tail: ChatRows


def pair_results(rows: ChatRows) -> ChatRows:
    """Return the rows with each call directly followed by its result.

    Late results are moved, missing ones are replaced by a placeholder, and results without a call are left
    out. Unchanged rows stay the same objects.
    """
    results: dict[str, list[tuple[int, ChatRow]]] = {}
    for index, row in enumerate(rows):
        if row.get("role") == "tool":
            results.setdefault(str(row.get("tool_call_id") or ""), []).append((index, row))
    fixed: ChatRows = []
    for index, row in enumerate(rows):
        if row.get("role") == "tool":
            continue
        fixed.append(row)
        for call in chat.calls_of(row):
            fixed.append(_take_result(results.get(call.id, []), index, call))
    return fixed


def _take_result(pending: list[tuple[int, ChatRow]], after: int, call: chat.RowCall) -> ChatRow:
    while pending and pending[0][0] < after:
        pending.pop(0)
    if pending:
        return pending.pop(0)[1]
    text = "No result of this call was recorded."
    return {
        "role": "tool",
        "tool_call_id": call.id,
        "name": call.name,
        "tool_name": call.name,
        "content": text,
    }


def split_groups(rows: ChatRows) -> list[ChatRows]:
    """Split a paired list into groups that must stay together."""
    pieces: list[ChatRows] = []
    for row in rows:
        if row.get("role") == "tool" and pieces:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    return pieces


def split(rows: ChatRows, limits: KeepLimits) -> Split:
    """Split a paired list into head, middle, kept rows and tail."""
    pieces = split_groups(rows)
    begin = _head_end(pieces, limits)
    end = _tail_begin(pieces, begin, limits.tail_tokens)
    while begin and begin >= end:
        begin -= 1  # the tail wins over the head
    head = [row for piece in pieces[:begin] for row in piece]
    tail = [row for piece in pieces[end:] for row in piece]
    between = [row for piece in pieces[begin:end] for row in piece]
    anchors = _anchors(rows)
    anchor_ids = {id(row) for row in anchors} - {id(row) for row in (*head, *tail)}
    kept_rows = [row for row in between if id(row) in anchor_ids]
    return Split(head, [row for row in between if id(row) not in anchor_ids], kept_rows, tail)


def _anchors(rows: ChatRows) -> list[ChatRow]:
    """Return the last message of the person and the last answer to one."""
    last_user = next((row for row in reversed(rows) if row.get("role") == "user"), None)
    last_reply = next((row for row in reversed(rows) if chat.is_reply(row)), None)
    return [row for row in (last_user, last_reply) if row is not None]


def _head_end(pieces: list[ChatRows], limits: KeepLimits) -> int:
    """Return the number of groups at the head, which begins with a person's message and never ends with
    one."""
    if pieces[0][0].get("role") != "user":
        return 0
    end = messages = tokens = 0
    while end < len(pieces) and messages < limits.head_messages:
        tokens += chat.estimate(pieces[end])
        if tokens > limits.head_tokens:
            break
        messages += len(pieces[end])
        end += 1
    while end and pieces[end - 1][-1].get("role") == "user":
        end -= 1
    return end


def _tail_begin(pieces: list[ChatRows], begin: int, budget: int) -> int:
    """Walk back from the end while the budget lasts. The last group always belongs to the tail."""
    at = len(pieces) - 1
    tokens, messages = chat.estimate(pieces[at]), len(pieces[at])
    while at > begin:
        size = chat.estimate(pieces[at - 1])
        allowed = budget * _STRETCH if messages < _TAIL_MESSAGES_MIN else budget
        if tokens + size > allowed:
            break
        tokens += size
        messages += len(pieces[at - 1])
        at -= 1
    return at
