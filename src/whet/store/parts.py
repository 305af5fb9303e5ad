"""Split a stored conversation into parts to show: a person's messages, the answers, and calls with results.

The terminal, the page, editors and exports all show these parts, and each draws them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import apsw
import msgspec

from whet.contract.brought_text import drop_marks, unwrap_pastes
from whet.contract.messages import ImagePart, Message, ToolCall
from whet.contract.texts import NOT_JSON, argument_text, from_json, subject_of
from whet.late import late_pattern
from whet.question import Row, parse_row
from whet.store import replay, rows
from whet.store.replay import CallFacts, ReplayEntry

RAN = "I ran this here myself:"
"""The line above the output of a command that the person ran, which is sent with their next message."""
_ATTACHED = late_pattern(rf"\n\n(?:<(?:skill|command)(?: name=|-[0-9a-f]{{16}}>)|{RAN}\n)")
_DIFFS, _WRITTEN = ("diff", "patch"), ("content", "new_string", "old_string")


class PersonPart(msgspec.Struct, frozen=True):
    """A message of the person.

    In `typed`, tags mark pasted text. `attached` is the text that was sent with it: a skill, a prompt file,
    or the output of a command.
    """

    typed: str
    attached: str
    images: tuple[ImagePart, ...]

    def text(self, fold: Callable[[str], str] = str) -> str:
        """Return the typed text, with each paste replaced by `fold` of it."""
        return drop_marks(unwrap_pastes(self.typed, fold))


class AnswerPart(msgspec.Struct, frozen=True):
    """A text of the model, in Markdown, and its visible reasoning."""

    text: str
    reasoning: str


class CallPart(msgspec.Struct, frozen=True):
    """A call. `result` and `facts` are None until it has ended."""

    call: ToolCall
    result: Message | None = None
    facts: CallFacts | None = None

    @property
    def state(self) -> Literal["open", "failed", "done"]:
        """Whether the call has ended, and how."""
        return "open" if self.result is None else "failed" if self.result.is_error else "done"


ConversationPart = PersonPart | AnswerPart | CallPart


class CallText(msgspec.Struct, frozen=True):
    """The arguments of a call: its subject, the diff rows of the text that it writes, and all others by
    name."""

    subject: str
    rows: tuple[Row, ...]
    others: tuple[tuple[str, str], ...]


def list_parts(messages: Sequence[Message], facts: Sequence[CallFacts | None] = ()) -> list[ConversationPart]:
    """Return the parts of messages, in order. `facts`, if given, has one item for each message."""
    parts: list[ConversationPart] = []
    open_calls: dict[str, int] = {}
    for at, message in enumerate(messages):
        if message.role == "user":
            parts.append(read_person(message))
        elif message.role == "assistant":
            if message.text or message.reasoning:
                parts.append(AnswerPart(message.text, message.reasoning))
            for call in message.tool_calls:
                open_calls[call.id] = len(parts)
                parts.append(CallPart(call))
        elif (number := open_calls.pop(message.tool_call_id, None)) is not None:
            call_part = parts[number]
            assert isinstance(call_part, CallPart)
            parts[number] = CallPart(call_part.call, message, facts[at] if facts else None)
    return parts


def list_entry_parts(entries: Sequence[ReplayEntry]) -> list[ConversationPart]:
    """Return the parts of stored messages, with the outcomes of their calls."""
    return list_parts([entry.message for entry in entries], [entry.call for entry in entries])


def read_parts(connection: apsw.Connection, session_id: str) -> list[ConversationPart]:
    """Return the parts of a session without undone turns. Raises NotFound."""
    entries = replay.list_entries(connection, session_id, 1, rows.SEQ_LIMIT)
    turns = replay.list_turns(connection, session_id, 0, rows.SEQ_LIMIT)
    undone = {number for number, turn in turns.items() if turn.is_undone}
    return list_entry_parts([entry for entry in entries if entry.turn not in undone])


def list_calls(parts: Iterable[ConversationPart]) -> list[CallPart]:
    """Return the calls among parts."""
    return [part for part in parts if isinstance(part, CallPart)]


def read_person(message: Message) -> PersonPart:
    """Return a message of the person as a part."""
    typed = typed_text(message.text)
    return PersonPart(typed, message.text[len(typed) :].strip(), message.images)


def typed_text(text: str) -> str:
    """Return a message's text without the skill, prompt file or command output that was sent with it."""
    match = _ATTACHED.search(text)
    return text[: match.start()] if match else text


def read_call(call: ToolCall, show: Callable[[str], str] = str) -> CallText:
    """Return the arguments of a call for a person to read. `show` masks and cuts the text that it writes.

    Arguments that are not a JSON object become one text without a name.
    """
    try:
        values = from_json(call.arguments or "{}", dict[str, object])
    except NOT_JSON:
        return CallText("", (), (("", call.arguments),))
    written: list[Row] = []
    others: list[tuple[str, str]] = []
    for name, value in values.items():
        if name in _DIFFS and isinstance(value, str) and "\n" in value:
            written += map(_diff_row, show(value).strip("\n").split("\n"))
        elif name in _WRITTEN and isinstance(value, str):
            sign = "-" if name == "old_string" else "+"
            written += [parse_row(sign + line) for line in show(value).removesuffix("\n").split("\n")]
        else:
            others.append((name, argument_text(value)))
    return CallText(subject_of(values), tuple(written), tuple(others))


def last_turn(parts: Sequence[ConversationPart]) -> Sequence[ConversationPart]:
    """Return the parts from the person's last message on, or all of them if there is none."""
    starts = [at for at, part in enumerate(parts) if isinstance(part, PersonPart) and part.typed]
    return parts[starts[-1] :] if starts else parts


def last_exchange(parts: Sequence[ConversationPart], fold: Callable[[str], str] = str) -> tuple[str, str]:
    """Return the person's last message and the last answer to it, each empty if it is missing."""
    turn = last_turn(parts)
    first = turn[0] if turn else None
    answers = [part.text for part in turn if isinstance(part, AnswerPart) and part.text]
    question = first.text(fold) if isinstance(first, PersonPart) else ""
    return question, answers[-1] if answers else ""


def _diff_row(line: str) -> Row:
    return Row("file", line) if line.startswith(("--- ", "+++ ")) else parse_row(line)
