"""Make any list of messages valid for every provider, on the wire copy only.

Whatever an engine, a plugin or an import produced, the list that comes out opens with a user message,
answers each tool call exactly once and right after it, has unique call ids, and ends with something to
answer (DESIGN P3). Rows that are already right come out as the same objects, and feeding more rows never
changes what came out before, so that the wire prefix holds (P4). It does not know any wire format.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec

from whet.contract.messages import Message, TextPart, ToolCall

NO_RESULT = "No result of this call was recorded."
OPENING = "(The conversation goes on.)"
GO_ON = "(Go on.)"
EMPTY = "(empty message)"


class Repairer:
    """Repairs a growing list; each row is looked at once."""

    def __init__(self) -> None:
        self.rows: list[Message] = []
        self._open: dict[str, str] = {}
        self._results: dict[str, Message] = {}
        self._order: list[str] = []
        self._seen: set[str] = set()

    def feed(self, message: Message) -> None:
        """Take the next row of the transcript."""
        if message.role == "tool":
            self._take_result(message)
            return
        self.close()
        if message.role == "assistant":
            self._take_assistant(message)
        else:
            self.rows.append(
                msgspec.structs.replace(message, content=EMPTY) if _is_empty(message) else message
            )

    def close(self) -> None:
        """Write the results of the last calls, in the calls' order, with a stand-in for each missing one."""
        for call_id in self._order:
            result = self._results.get(call_id)
            if result is None:
                name = self._open[call_id]
                result = Message(
                    role="tool", content=NO_RESULT, tool_call_id=call_id, tool_name=name, is_error=True
                )
            self.rows.append(result)
        self._open, self._results, self._order = {}, {}, []

    def _take_result(self, message: Message) -> None:
        # A result is known by the id its call had before ids were made unique: the last such call is open.
        for call_id in self._order:
            original = call_id.rsplit("#", 1)[0]
            if message.tool_call_id in (call_id, original) and call_id not in self._results:
                if call_id != message.tool_call_id:
                    message = msgspec.structs.replace(message, tool_call_id=call_id)
                self._results[call_id] = message
                break
        if self._order and len(self._results) == len(self._order):
            self.close()

    def _take_assistant(self, message: Message) -> None:
        if not message.tool_calls and _is_empty(message):
            return
        if not self.rows:
            self.rows.append(Message(role="user", content=OPENING))
        elif self.rows[-1].role == "assistant":
            self.rows.append(Message(role="user", content=GO_ON))
        if message.tool_calls:
            message = self._with_unique_ids(message)
        self.rows.append(message)

    def _with_unique_ids(self, message: Message) -> Message:
        calls: list[ToolCall] = []
        for call in message.tool_calls:
            call_id, number = call.id or "call", 1
            while call_id in self._seen:
                number += 1
                call_id = f"{call.id or 'call'}#{number}"
            self._seen.add(call_id)
            self._open[call_id] = call.name
            self._order.append(call_id)
            calls.append(call if call_id == call.id else msgspec.structs.replace(call, id=call_id))
        if all(new is old for new, old in zip(calls, message.tool_calls, strict=True)):
            return message
        # A replay holds the old ids, so the vendor's own form can't be sent any more.
        return msgspec.structs.replace(message, tool_calls=tuple(calls), replay=None)


def _is_empty(message: Message) -> bool:
    if isinstance(message.content, str):
        return not message.content
    return not any(not isinstance(part, TextPart) or part.text for part in message.content)


def finished(rows: Sequence[Message]) -> Sequence[Message]:
    """Give `rows` with a last row that a model can answer."""
    if not rows or rows[-1].role == "assistant":
        return [*rows, Message(role="user", content=GO_ON if rows else OPENING)]
    return rows


class RepairedList:
    """The repaired form of a list that grows; rows that went out stay the same objects."""

    def __init__(self) -> None:
        self._repairer = Repairer()
        self._fed: list[Message] = []

    def of(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Give `messages` repaired; a list that was replaced (undo, compaction) is repaired anew."""
        fed = self._fed
        if len(fed) > len(messages) or not all(map(operator.is_, fed, messages)):
            self._repairer, self._fed = Repairer(), []
        for message in messages[len(self._fed) :]:
            self._repairer.feed(message)
            self._fed.append(message)
        self._repairer.close()
        return finished(self._repairer.rows)


def repair(messages: Sequence[Message]) -> Sequence[Message]:
    """Give a list that every provider accepts; valid input comes back with the same objects."""
    repairer = Repairer()
    for message in messages:
        repairer.feed(message)
    repairer.close()
    return finished(repairer.rows)
