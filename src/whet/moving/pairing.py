"""Puts a foreign transcript into this store's order: each answer, then the results of its calls.

Results may be missing, twice, before their call or of no call at all; whatever comes, what goes out has
exactly one result for each call. It does not know where a transcript is from.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec

from whet.contract.messages import Message, ToolCall
from whet.store.bulk import PastMessage

MISSING = "No result of this call was recorded."


class PairedMessages(msgspec.Struct, frozen=True):
    """The messages in order; `sources[i]` is the index that message i had, -1 for a result that was made up.
    `left_out` counts results without a call and answers without content."""

    messages: tuple[PastMessage, ...]
    sources: tuple[int, ...]
    left_out: int


def pair(messages: Sequence[PastMessage]) -> PairedMessages:
    """Order `messages` and give each call its result."""
    results: dict[str, deque[int]] = defaultdict(deque)
    for index, said in enumerate(messages):
        if said.message.role == "tool":
            results[said.message.tool_call_id].append(index)
    ordered, sources, left_out = list[PastMessage](), list[int](), 0
    for index, said in enumerate(messages):
        message = said.message
        if message.role == "tool":
            continue
        if message.role == "assistant" and not message.tool_calls and not message.content:
            left_out += 1
            continue
        ordered.append(said)
        sources.append(index)
        for call in message.tool_calls:
            found = results[call.id].popleft() if results[call.id] else -1
            ordered.append(_missing(call, said.at_ms) if found < 0 else _named(messages[found], call))
            sources.append(found)
    left_out += sum(len(rest) for rest in results.values())
    return PairedMessages(tuple(ordered), tuple(sources), left_out)


def live_from(first: int, paired: PairedMessages) -> tuple[int, ...] | None:
    """Give the indices of what a model saw that saw only what came from message `first` on; None for all."""
    if not first:
        return None
    begin = next((at for at, source in enumerate(paired.sources) if source >= first), len(paired.sources))
    while begin < len(paired.sources) and paired.messages[begin].message.role == "tool":
        begin += 1  # a result stands after its call, which was summarised away
    return tuple(range(begin, len(paired.sources)))


def _missing(call: ToolCall, at_ms: int) -> PastMessage:
    message = Message(role="tool", content=MISSING, tool_call_id=call.id, tool_name=call.name, is_error=True)
    return PastMessage(message, at_ms, error_kind="interrupted")


def _named(said: PastMessage, call: ToolCall) -> PastMessage:
    if said.message.tool_name:
        return said
    return msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, tool_name=call.name))
