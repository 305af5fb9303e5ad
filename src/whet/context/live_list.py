"""The live list of one session: the messages to send, valid for every provider, and the next request's size.

Whatever an engine, a plugin or an import has changed, the list that is sent begins with a user message,
answers each tool call exactly once and directly after it, has unique call ids, and ends with a row that the
model can answer. Adding rows never changes rows that were sent before, so the wire prefix stays stable. The
server's token count is used if there is one; newer rows are estimated, and the estimate is scaled by its last
error. This module calls no engine and knows no wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from whet.context.rows import EngineRows
from whet.contract.context_engine import ChatRow
from whet.contract.errors import ProviderError
from whet.contract.events import Emit
from whet.contract.messages import Message, TextPart, ToolCall, Usage
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.context.repair import HistoryRepair

NO_RESULT = "No result of this call was recorded."
OPENING = "(The conversation goes on.)"
GO_ON = "(Go on.)"
EMPTY = "(empty message)"
EMPTY_RESULT = "(no output)"


class LiveList:
    """Follows a transcript. `fixed_tokens` precede its messages in every request."""

    def __init__(self, log: Transcript, fixed_tokens: int) -> None:
        self.rows: EngineRows = EngineRows()
        self.replaced: dict[int, Message] = {}
        """The messages that are sent instead of refused ones, by the identity of those, until the repair is
        recorded."""
        self.repair: HistoryRepair | None = None
        self._log = log
        self._fixed_tokens = fixed_tokens
        self._wire = RepairedList()
        self._counted_tokens = 0  # the server's count of the request that had `_sent_rows` rows
        self._sent_rows = 0
        self._answered_rows = 0  # rows of the last request that this model answered
        self._scale = 1.0

    @property
    def is_counted(self) -> bool:
        """Whether a server has counted a beginning of this list."""
        return bool(self._counted_tokens) and self._sent_rows <= len(self.rows.sizes)

    def add_fixed_tokens(self, tokens: int) -> None:
        """Add this many tokens to the fixed part of every request."""
        self._fixed_tokens += tokens

    def follow(self, messages: Sequence[Message] | None = None) -> bool:
        """Take over the transcript's messages. Returns True if earlier ones were removed."""
        current = self._log.messages if messages is None else messages
        return self.rows.sync(current, self._log.live.seqs)

    def copy(self) -> list[ChatRow]:
        """Return a new list of the same row objects."""
        return list(self.rows.rows)

    def outgoing(self) -> Sequence[Message]:
        """Return the messages for the next request, valid for every server, and count them as sent."""
        self._sent_rows = len(self.rows.rows)
        sources = self.rows.sources
        if self.replaced:
            sources = [self.replaced.get(id(message), message) for message in sources]
        return self._wire.update(sources)

    def leave_out(self, refusal: ProviderError, emit: Emit, *, shorten: bool) -> bool:
        """Leave an item that the server may have refused out of the next request. Returns False if there is
        no such item."""
        if self.repair is None:
            from whet.context.repair import HistoryRepair  # noqa: PLC0415 - most requests are not refused

            self.repair = HistoryRepair(self.rows.sources, self._answered_rows)
        self.replaced = self.repair.choose_replacements(refusal, emit, may_shorten=shorten)
        if not self.replaced:
            self.repair = None
        return bool(self.replaced)

    def forget_answered(self) -> None:
        """Forget which items the model has accepted, because another model answers from now on."""
        self._answered_rows = 0

    def forget_repair(self) -> None:
        """Send the items that were left out again."""
        self.repair, self.replaced = None, {}

    def tokens(self) -> int:
        """Return the estimated size of the next request, in tokens."""
        if self.is_counted:
            return self._counted_tokens + int(sum(self.rows.sizes[self._sent_rows :]) * self._scale)
        return self.scale_tokens(self.rows.tokens)

    def sent_tokens(self) -> int:
        """Return the estimated size of the last request, in tokens."""
        return self.scale_tokens(self._sent_rows_tokens())

    def scale_tokens(self, messages_tokens: int) -> int:
        """Return the size of a request whose messages have that many estimated tokens."""
        return int((self._fixed_tokens + messages_tokens) * self._scale)

    def note_usage(self, usage: Usage) -> int:
        """Record the server's count of the last request and return it, or the estimate if the server sent no
        count."""
        estimate = self._fixed_tokens + self._sent_rows_tokens()
        self._counted_tokens, self._answered_rows = usage.prompt_tokens, self._sent_rows
        if usage.prompt_tokens and estimate:
            self._scale = min(max(usage.prompt_tokens / estimate, 0.25), 4.0)
        return usage.prompt_tokens or estimate

    def _sent_rows_tokens(self) -> int:
        return self.rows.tokens - sum(self.rows.sizes[self._sent_rows :])

    def adopt(self, rows: Sequence[ChatRow]) -> None:
        """Continue from a list that an engine returned and the transcript recorded."""
        self.rows.adopt(rows, self._log.messages)
        self._counted_tokens = self._sent_rows = self._answered_rows = 0


class Repairer:
    """Repairs a growing list, row by row, so that every provider accepts it."""

    def __init__(self) -> None:
        self.rows: list[Message] = []
        self._open: dict[str, str] = {}
        self._results: dict[str, Message] = {}
        self._order: list[str] = []
        self._seen: set[str] = set()

    def feed(self, message: Message) -> None:
        """Add the next row of the transcript."""
        if message.role == "tool":
            self._add_result(message)
            return
        self.close()
        if message.role == "assistant":
            self._add_assistant(message)
        else:
            self.rows.append(
                msgspec.structs.replace(message, content=EMPTY) if _is_empty(message) else message
            )

    def close(self) -> None:
        """Add the results of the last calls in the calls' order, with a placeholder for each missing one."""
        for call_id in self._order:
            result = self._results.get(call_id)
            if result is None:
                name = self._open[call_id]
                result = Message(
                    role="tool", content=NO_RESULT, tool_call_id=call_id, tool_name=name, is_error=True
                )
            self.rows.append(result)
        self._open, self._results, self._order = {}, {}, []

    def _add_result(self, message: Message) -> None:
        if _is_empty(message):  # some servers refuse an empty result
            message = msgspec.structs.replace(message, content=EMPTY_RESULT)
        # A result has the id that its call had before ids were made unique.
        for call_id in self._order:
            original = call_id.rsplit("#", 1)[0]
            if message.tool_call_id in (call_id, original) and call_id not in self._results:
                if call_id != message.tool_call_id:
                    message = msgspec.structs.replace(message, tool_call_id=call_id)
                self._results[call_id] = message
                break
        if self._order and len(self._results) == len(self._order):
            self.close()

    def _add_assistant(self, message: Message) -> None:
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
        if tuple(calls) == message.tool_calls:
            return message
        # The replay (the vendor's own form) contains the old ids, so it can't be sent any more.
        return msgspec.structs.replace(message, tool_calls=tuple(calls), replay=None)


def _is_empty(message: Message) -> bool:
    if isinstance(message.content, str):
        return not message.content
    return not any(not isinstance(part, TextPart) or part.text for part in message.content)


def ensure_answerable(rows: Sequence[Message]) -> Sequence[Message]:
    """Return the rows, with a user message added if they do not end with a row that a model can answer."""
    if not rows or rows[-1].role == "assistant":
        return [*rows, Message(role="user", content=GO_ON if rows else OPENING)]
    return rows


class RepairedList:
    """The repaired form of a growing list. Rows that were sent stay the same objects."""

    def __init__(self) -> None:
        self._repairer = Repairer()
        self._fed: list[Message] = []

    def update(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages repaired. If earlier messages have changed (undo, compaction), all are repaired
        again."""
        if list(messages[: len(self._fed)]) != self._fed:
            self._repairer, self._fed = Repairer(), []
        for message in messages[len(self._fed) :]:
            self._repairer.feed(message)
            self._fed.append(message)
        self._repairer.close()
        return ensure_answerable(self._repairer.rows)


def repair(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a list that every provider accepts. Valid rows are returned as the same objects."""
    return RepairedList().update(messages)
