"""Messages as an engine sees them, and what it gives back as messages again.

An engine sees OpenAI chat dicts whose content is always text; a row that it keeps, as the same object or
as an equal copy, is the same `Message` again, with its images, its replay and its place in the store.
What it gives back may be anything: `read_back` takes nothing on trust.
"""

from __future__ import annotations

import json
import operator
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from whet.context.tokens import message_tokens
from whet.contract.context_engine import ChatRow
from whet.contract.messages import ImagePart, Message, from_dict, sent_content, to_dict

Fingerprint = tuple[str, str, str, str]


class BadEngineRows(Exception):
    """An engine returned something that is no list of chat messages."""


def engine_row(message: Message) -> ChatRow:
    """Give the chat dict of a message with its content as text; an image is a word in brackets."""
    row = to_dict(message)
    if not isinstance(row["content"], str):
        content = sent_content(message)
        assert not isinstance(content, str)
        row["content"] = "\n".join(
            f"[image {part.media_type}]" if isinstance(part, ImagePart) else part.text for part in content
        )
    return row


def fingerprint(row: ChatRow) -> Fingerprint:
    """Give what makes two rows the same message; keys that an engine adds for itself don't count."""
    content, calls = row.get("content"), row.get("tool_calls")
    return (
        str(row.get("role")),
        content if isinstance(content, str) else repr(content or ""),
        str(row.get("tool_call_id") or ""),
        repr(calls) if calls else "",
    )


def extends(known: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Say whether `messages` begins with the very objects of `known`."""
    return len(known) <= len(messages) and all(map(operator.is_, known, messages))


class EngineRows:
    """A growing transcript as rows; each message is converted once, and its row stays the same object."""

    def __init__(self) -> None:
        self.sources: list[Message] = []
        self.rows: list[ChatRow] = []
        self.sizes: list[int] = []
        self.tokens = 0

    def sync(self, messages: Sequence[Message], seqs: Sequence[int] = ()) -> bool:
        """Follow the transcript; rows of the common beginning stay. True where known ones are gone.

        `seqs` are the messages' numbers in the store, 0 where there is none: a row has its own as `_seq`,
        so that an engine can say where something is to be found again.
        """
        cut = not extends(self.sources, messages)
        if cut:
            same = 0
            for known, message in zip(self.sources, messages, strict=False):
                if known is not message:
                    break
                same += 1
            del self.sources[same:], self.rows[same:], self.sizes[same:]
            self.tokens = sum(self.sizes)
        for index in range(len(self.sources), len(messages)):
            row = engine_row(messages[index])
            if index < len(seqs) and seqs[index]:
                row["_seq"] = seqs[index]
            self._add(row, messages[index])
        return cut

    def adopt(self, rows: Sequence[ChatRow], messages: Sequence[Message]) -> None:
        """Take what an engine returned, row by row, as the new beginning."""
        self.sources, self.rows, self.sizes, self.tokens = [], [], [], 0
        for row, message in zip(rows, messages, strict=True):
            self._add(row, message)

    def restore(self, prints: Sequence[Fingerprint]) -> None:
        """Replace the rows that an engine has changed in place since `prints` were taken."""
        for index, row in enumerate(self.rows):
            if fingerprint(row) != prints[index]:
                self.rows[index] = engine_row(self.sources[index])

    def prints(self) -> list[Fingerprint]:
        """Give every row's fingerprint, to see later what an engine has changed."""
        return [fingerprint(row) for row in self.rows]

    def _add(self, row: ChatRow, message: Message) -> None:
        size = message_tokens(message)
        self.sources.append(message)
        self.rows.append(row)
        self.sizes.append(size)
        self.tokens += size


def read_back(
    rows: Sequence[ChatRow], sources: Sequence[Message], prints: Sequence[Fingerprint], returned: object
) -> tuple[list[ChatRow], list[Message]] | None:
    """Give what an engine returned as rows and messages; None where it changed nothing.

    Raises Unreadable where it is no list, is empty, or holds a row that can't be read.
    """
    if not isinstance(returned, list):
        raise BadEngineRows(f"it returned {type(returned).__name__}, not a list")
    if not returned:
        raise BadEngineRows("it returned an empty list")
    by_id = {id(row): index for index, row in enumerate(rows)}
    by_print: dict[Fingerprint, deque[int]] = {}
    for index, known in enumerate(prints):
        by_print.setdefault(known, deque()).append(index)
    kept: list[ChatRow] = []
    messages: list[Message] = []
    last = -1
    for item in cast("list[object]", returned):
        if not isinstance(item, dict):
            raise BadEngineRows(f"it returned a row of {type(item).__name__}")
        row = cast("ChatRow", item)
        mark = fingerprint(row)
        found = by_id.get(id(row))
        if found is None or prints[found] != mark:
            found = _next_equal(by_print.get(mark), last)
        if found is None:
            messages.append(_parse(row))
        else:
            last = found
            messages.append(sources[found])
        kept.append(row)
    return None if _same(messages, sources) else (kept, messages)


def _same(messages: Sequence[Message], sources: Sequence[Message]) -> bool:
    return len(messages) == len(sources) and all(map(operator.is_, messages, sources))


def _next_equal(candidates: deque[int] | None, last: int) -> int | None:
    while candidates:
        index = candidates.popleft()
        if index > last:
            return index
    return None


def _parse(row: ChatRow) -> Message:
    plain: dict[str, Any] = dict(row)
    if plain.get("role") in ("system", "developer"):
        plain["role"] = "user"  # the frozen system prompt is the only one; what an engine adds is context
    try:
        calls: list[Any] = [_call(call) for call in plain.get("tool_calls") or ()]
        plain["tool_calls"] = calls if plain["role"] == "assistant" else ()
        message = from_dict(plain)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadEngineRows(f"it returned a row that is no chat message ({error})") from error
    return msgspec.structs.replace(message, tool_call_id="") if message.role != "tool" else message


def _call(call: Any) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call.get("id") or "", "function": {"name": function["name"], "arguments": text}}
