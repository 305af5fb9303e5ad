"""Choose the messages that stay word for word in a compaction: the beginning and the end of the conversation.

An answer with tool calls and their results form one group that is never split. The person's last message and
the last answer that they saw always stay; if they are in the middle, they are taken out of it.
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
    """The parts of a list. `middle` will be compacted; `kept` was taken out of it and follows the summary."""

    head: ChatRows
    middle: ChatRows
    kept: ChatRows
    tail: ChatRows


def pair_results(rows: ChatRows) -> ChatRows:
    """Return the rows with each call directly followed by its result. Late results are moved, missing ones
    get a placeholder, and results without a call are dropped."""
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
    groups: list[ChatRows] = []
    for row in rows:
        if row.get("role") == "tool" and groups:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def split(rows: ChatRows, limits: KeepLimits) -> Split:
    """Split a paired list into head, middle, kept rows and tail."""
    groups = split_groups(rows)
    begin = _find_head_end(groups, limits)
    end = _find_tail_begin(groups, begin, limits.tail_tokens)
    while begin and begin >= end:
        begin -= 1  # the tail takes precedence over the head
    head = [row for group in groups[:begin] for row in group]
    tail = [row for group in groups[end:] for row in group]
    between = [row for group in groups[begin:end] for row in group]
    last_user = next((row for row in reversed(between) if row.get("role") == "user"), None)
    last_reply = next((row for row in reversed(between) if chat.is_reply(row)), None)
    if any(row.get("role") == "user" for row in tail):
        last_user = None
    if any(map(chat.is_reply, tail)):
        last_reply = None
    kept = [row for row in between if row is last_user or row is last_reply]
    middle = [row for row in between if row is not last_user and row is not last_reply]
    return Split(head, middle, kept, tail)


def _find_head_end(groups: list[ChatRows], limits: KeepLimits) -> int:
    """Return the number of groups at the head, which begins with a person's message and never ends with
    one."""
    if groups[0][0].get("role") != "user":
        return 0
    end = messages = tokens = 0
    while end < len(groups) and messages < limits.head_messages:
        tokens += chat.estimate(groups[end])
        if tokens > limits.head_tokens:
            break
        messages += len(groups[end])
        end += 1
    while end and groups[end - 1][-1].get("role") == "user":
        end -= 1
    return end


def _find_tail_begin(groups: list[ChatRows], begin: int, budget_tokens: int) -> int:
    """Return the index of the tail's first group: as many groups as fit the budget, and always the last."""
    index = len(groups) - 1
    tokens, messages = chat.estimate(groups[index]), len(groups[index])
    while index > begin:
        group_tokens = chat.estimate(groups[index - 1])
        allowed = budget_tokens * _STRETCH if messages < _TAIL_MESSAGES_MIN else budget_tokens
        if tokens + group_tokens > allowed:
            break
        tokens += group_tokens
        messages += len(groups[index - 1])
        index -= 1
    return index
