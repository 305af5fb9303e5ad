"""Leave out items of the history that a server refuses, so that the conversation can go on.

Servers refuse a whole request for one picture that they can't read, for a thought whose signature they do
not take (any more), or for too many bytes; without a repair every later request would be refused as well. A
refusal that points to an item leaves out that item. One that points to nothing begins a search of at most
`MAX_REQUESTS` requests: nothing is decided by a vendor's words. The search ends with the first request that
is answered, as that answer is paid for. Its last request speaks all calls and results as plain text, which
every server takes. A conversation that is too long even after a compaction has its longest texts shortened.
After failures that may be an outage, the first request of the search leaves out everything that this server
has not taken before.

What was left out of an answered request is recorded as the live list, like a compaction with the engine
`repair`: a resume, a fork or a review then sends the same bytes. The transcript keeps every message whole.
This module knows no wire format. It is loaded after a refusal only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    Unavailable,
    UnknownModel,
)
from whet.contract.events import Emit, Notice
from whet.contract.messages import ImagePart, Message, TextPart
from whet.contract.texts import plural

MAX_REQUESTS = 6
REFUSED = "[A picture was here. The model's server refused it, so it is left out.]"
TOO_LARGE = "[A picture was here. It is left out, as the request was too large for the model's server.]"
REFUSED_RESULT = "[A result was here. The model's server refused it, so it is left out.]"
AS_TEXT = (
    "(From here on calls and results are shown as text, as the model's server refused them. Call tools as"
    " usual.)"
)
SHORTENED = "[Much is left out here, as the conversation was too long for the model's server.]"
_NAMED_ONE_BY_ONE = 3
_SEARCHED = (400, 422)
_FORBIDDEN = 403
_TOO_LARGE = 413


_THOUGHTS = -1
_RESULT = -2
_CALLS = -3
_LONG = -4
_PARTS = (_THOUGHTS, _RESULT, _CALLS, _LONG)
# A text is long if it is more than twice as long as what is kept of it.
_HEAD_CHARS, _TAIL_CHARS = 1_500, 500


class Item(NamedTuple):
    """A picture by its message and its part; or, in place of the part, the thoughts kept with an answer, the
    text of a tool's result, the calls or the result that are spoken as text, or a long text."""

    message: int
    part: int


Items = frozenset[Item]
_NOTHING: Items = frozenset()


class HistoryRepair:
    """The repair of one request: what is left out of `messages`, from refusal to refusal."""

    def __init__(self, messages: Sequence[Message], taken: int = 0) -> None:
        """`taken`: how many of the messages this server has answered in an earlier request."""
        self._messages = list(messages)
        self._taken = taken
        self._pictures = list(_pictures(messages))
        self._thoughts: Items = frozenset(
            Item(index, _THOUGHTS) for index, message in enumerate(messages) if message.replay is not None
        )
        self._calls: Items = frozenset(
            Item(index, _CALLS)
            for index, message in enumerate(messages)
            if message.tool_calls or message.role == "tool"
        )
        self._left_out: Items = _NOTHING
        self._named: Items = _NOTHING
        self._last_detail = ""
        self._plan: list[Items] | None = None
        self._requests = 0
        self._marker = REFUSED

    def refused(self, error: ProviderError, emit: Emit, *, may_shorten: bool = False) -> dict[int, Message]:
        """Return what the next request shows in place of messages of the history, by their identity; nothing
        if there is nothing (more) to leave out. `may_shorten`: no compaction can make the list smaller."""
        self._requests += 1
        if self._requests > MAX_REQUESTS:
            return {}
        if named := self._named_by(error):
            if self._requests > _NAMED_ONE_BY_ONE:  # it would go on like this: one refusal for each
                named |= next(
                    (kind for kind in (self._thoughts, self._calls) if not named.isdisjoint(kind)),
                    frozenset(self._pictures),
                )
            self._named |= named
            self._left_out = self._named
            return self.replaced()
        if self._plan is None:
            self._plan = self._search(error, may_shorten=may_shorten)
            if self._plan:
                self._requests = 1
                emit(Notice(_search_line(error)))
        if not self._plan:
            return {}
        self._left_out = self._plan.pop(0)
        return self.replaced()

    def replaced(self) -> dict[int, Message]:
        """Return the messages that go out changed, by the identity of the messages of the history."""
        indexes = sorted({item.message for item in self._left_out})
        first = min((item.message for item in self._left_out if item.part == _CALLS), default=-1)
        return {
            id(self._messages[index]): self._without(index, AS_TEXT if index == first else "")
            for index in indexes
        }

    def summary(self) -> str:
        """Return the line for the person about what is left out."""
        pictures = sum(item.part not in _PARTS for item in self._left_out)
        thoughts, results, calls, texts = (
            sum(item.part == kind for item in self._left_out) for kind in _PARTS
        )
        parts = [plural(pictures, "picture")] if pictures else []
        parts += [plural(results, "tool result")] if results else []
        parts += [f"the reasoning kept with {plural(thoughts, 'answer')}"] if thoughts else []
        changes = [f"{' and '.join(parts)} left out"] if parts else []
        changes += [f"{plural(texts, 'long text')} shortened"] if texts else []
        changes += ["tool calls and their results sent as plain text"] if calls else []
        why = "the request was too large" if self._marker is TOO_LARGE else "the model's server refused it"
        return (
            f"{', '.join(changes)} from now on: {why}. The transcript keeps it."
            " The prompt cache begins anew, once."
        )

    def _named_by(self, error: ProviderError) -> Items:
        """Return the items in the part of the request that a refusal points to. The same refusal again means
        that it pointed to something else."""
        is_same = bool(self._named) and error.detail == self._last_detail
        self._last_detail = error.detail
        if is_same:
            self._named = self._left_out = _NOTHING
        if is_same or self._plan is not None or not error.part:
            return _NOTHING
        pictures = [item for item in self._pictures if self._data(item) in error.part]
        named = frozenset(pictures) - self._left_out
        sent = [] if named else _objects(msgspec.json.decode(error.part))
        if not named and _holds_thoughts(sent, self._messages):
            named = self._thoughts - self._left_out
        return named or self._results_in(sent) - self._left_out or self._calls_in(sent) - self._left_out

    def _calls_in(self, sent: Sequence[dict[str, Any]]) -> Items:
        """Return the calls that these objects of a request are, with the results of these calls."""
        ids = _texts_at(sent, "id", "call_id")
        names = _texts_at([part for part in sent if "id" not in part], "name")
        calls_by_item = {item: self._messages[item.message].tool_calls for item in self._calls}
        answers = {
            item
            for item, calls in calls_by_item.items()
            if any(call.id in ids or call.name in names for call in calls)
        }
        call_ids = {call.id for item in answers for call in calls_by_item[item]}
        results = {item for item in self._calls if self._messages[item.message].tool_call_id in call_ids}
        return frozenset(answers | results)

    def _results_in(self, sent: Sequence[dict[str, Any]]) -> Items:
        """Return the tool results that these objects of a request are."""
        parts = [part for part in sent if part.get("type") != "function_call"]  # it has the same id
        ids = _texts_at(parts, "tool_call_id", "tool_use_id", "call_id")
        return frozenset(
            Item(index, _RESULT)
            for index, message in enumerate(self._messages)
            if message.role == "tool" and message.tool_call_id in ids
        )

    def _search(self, error: ProviderError, *, may_shorten: bool) -> list[Items]:
        """Return what to leave out in turn, if a refusal points to nothing of the history."""
        if error.status == _TOO_LARGE or isinstance(error, ContextOverflow):
            self._marker = TOO_LARGE
            wishes = _oldest_first(self._pictures)
            if may_shorten:
                longest = self._long_texts()
                sizes = (1, (len(longest) + 1) // 2, len(longest))
                wishes += [frozenset((*self._pictures, *longest[:size])) for size in sizes]
        elif isinstance(error, Unavailable):
            return self._doubted()
        elif (
            error.status in _SEARCHED
            and isinstance(error, BadRequest)
            and not isinstance(error, UnknownModel)
        ):
            wishes = [*self._suspects(), frozenset(self._pictures) | self._thoughts | self._calls]
        elif _may_be_about_pictures(error) and self._pictures:
            wishes = [frozenset(self._pictures), frozenset(self._pictures) | self._thoughts]
        else:
            return []
        return _within(_distinct(wishes), MAX_REQUESTS)

    def _long_texts(self) -> list[Item]:
        """Return the long texts, the longest first."""
        sizes = {Item(index, _LONG): len(message.text) for index, message in enumerate(self._messages)}
        longest = sorted(sizes, key=lambda item: -sizes[item])
        return [item for item in longest if sizes[item] > 2 * (_HEAD_CHARS + _TAIL_CHARS)]

    def _doubted(self) -> list[Items]:
        """Return what to leave out after failures that may be an outage: first all that this server has not
        taken before, then parts of that. A server that has taken thoughts once takes them."""
        has_taken_thoughts = any(item.message < self._taken for item in self._thoughts)
        pictures = frozenset(item for item in self._pictures if item.message >= self._taken)
        everything = pictures if has_taken_thoughts else pictures | self._thoughts
        if not everything:
            return []
        parts = _distinct(wish & everything for wish in self._suspects())
        return [everything, *_within(parts, MAX_REQUESTS - 1)]

    def _suspects(self) -> list[Items]:
        """Return sets of items by how likely they are at fault. What comes before the last answer was taken
        once, so new pictures are suspected one by one; before that the oldest ones are left out, as servers
        also limit how many there may be."""
        answers = [index for index, message in enumerate(self._messages) if message.role == "assistant"]
        last_answer = answers[-1] if answers else -1
        old = [item for item in self._pictures if item.message < last_answer]
        new = [item for item in self._pictures if item.message > last_answer]
        everything = frozenset(self._pictures) | self._thoughts
        half = (len(new) + 1) // 2
        groups = [[item] for item in reversed(new)] if len(new) <= 3 else [new[half:], new[:half]]
        return [
            frozenset(old[: (len(old) + 3) // 4]),
            *map(frozenset, groups),
            self._thoughts,
            frozenset(old),
            frozenset(self._pictures),
            everything,
        ]

    def _without(self, index: int, note: str) -> Message:
        """Return a message with a note in place of each picture that is left out, or without thoughts, or as
        plain text with `note`."""
        message = self._messages[index]
        if Item(index, _THOUGHTS) in self._left_out:
            message = msgspec.structs.replace(message, replay=None)
        if Item(index, _RESULT) in self._left_out:
            message = msgspec.structs.replace(message, content=REFUSED_RESULT)
        if not isinstance(message.content, str):
            content = [
                TextPart(self._marker) if Item(index, at) in self._left_out else part
                for at, part in enumerate(message.content)
            ]
            message = msgspec.structs.replace(message, content=tuple(content))
        if Item(index, _LONG) in self._left_out:
            message = _shortened(message)
        if Item(index, _CALLS) in self._left_out:
            message = _as_text(message, note)
        return message

    def _data(self, item: Item) -> str:
        part = self._messages[item.message].content[item.part]
        assert isinstance(part, ImagePart)
        return part.data_base64


def _pictures(messages: Sequence[Message]) -> Iterable[Item]:
    for index, message in enumerate(messages):
        if not isinstance(message.content, str):
            for at, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    yield Item(index, at)


def _shortened(message: Message) -> Message:
    """Return a message with the beginning and the end of its texts."""
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=_shorten(message.content), replay=None)
    content = [
        TextPart(_shorten(part.text)) if isinstance(part, TextPart) else part for part in message.content
    ]
    return msgspec.structs.replace(message, content=tuple(content), replay=None)


def _shorten(text: str) -> str:
    if len(text) <= 2 * (_HEAD_CHARS + _TAIL_CHARS):
        return text
    return f"{text[:_HEAD_CHARS]}\n{SHORTENED}\n{text[-_TAIL_CHARS:]}"


def _as_text(message: Message, note: str) -> Message:
    """Return an answer with its calls as text, or a result as the text of a user's message."""
    if message.role == "tool":
        opening = f"[The result of the call of {message.tool_name or 'a tool'}:]"
        if isinstance(message.content, str):
            return Message("user", f"{opening}\n{message.content}")
        return Message("user", (TextPart(opening), *message.content))
    calls = [f"[Called {call.name} with {call.arguments or '{}'}]" for call in message.tool_calls]
    lines = [line for line in (message.text, note, *calls) if line]
    return msgspec.structs.replace(message, content="\n".join(lines), tool_calls=(), replay=None)


def _distinct(wishes: Iterable[Items]) -> list[Items]:
    """Return the sets that hold something, each once."""
    return [wish for wish in dict.fromkeys(wishes) if wish]


def _within(plan: list[Items], count: int) -> list[Items]:
    """Return a plan of at most `count` requests; the last two, which leave out most, stay."""
    return plan if len(plan) <= count else [*plan[: count - 2], *plan[-2:]]


def _may_be_about_pictures(error: ProviderError) -> bool:
    """Return whether a server that takes no pictures, or not these, may have answered with this error."""
    is_refusal = isinstance(error, BadRequest | ModelRefused) and error.status is not None
    return is_refusal or (isinstance(error, AuthRejected) and error.status == _FORBIDDEN)


def _oldest_first(pictures: Sequence[Item]) -> list[Items]:
    """Return a quarter of the pictures, half of them, all but the newest and all, the oldest ones first. One
    at a time would begin a new prefix, and send megabytes in vain, for each picture that is added."""
    count = len(pictures)
    return [frozenset(pictures[:size]) for size in ((count + 3) // 4, (count + 1) // 2, count - 1, count)]


def _holds_thoughts(sent: Sequence[dict[str, Any]], messages: Sequence[Message]) -> bool:
    """Return whether objects of a request came from what a vendor wants back with an answer."""
    for message in messages:
        if message.replay is None:
            continue
        kept: object = msgspec.json.decode(message.replay.blocks_json)
        if isinstance(kept, list):
            if any(block in sent for block in cast("list[object]", kept)):
                return True
        elif isinstance(kept, dict):
            fields = cast("dict[str, object]", kept)
            if any(inner.get(name) == value for name, value in fields.items() for inner in sent):
                return True
    return False


def _texts_at(objects: Iterable[dict[str, Any]], *names: str) -> set[str]:
    """Return the texts under these names; a call's arguments can hold anything there."""
    return {value for part in objects for name in names if isinstance(value := part.get(name), str)}


def _objects(value: object) -> list[dict[str, Any]]:
    """Return every object in a JSON value, itself included."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return [found, *(inner for item in found.values() for inner in _objects(item))]
    if isinstance(value, list):
        return [inner for item in cast("list[object]", value) for inner in _objects(item)]
    return []


def _search_line(error: ProviderError) -> str:
    if error.status == _TOO_LARGE or isinstance(error, ContextOverflow):
        return f"the request is too large; trying it without older pictures and long texts ({error.message})"
    if isinstance(error, Unavailable):
        return (
            "the model's server fails on this request; trying whether it takes it without pictures and kept"
            f" reasoning, in at most {MAX_REQUESTS} requests ({error.message})"
        )
    return (
        f"the model's server refused the request and does not say for which part; trying it without pictures"
        f" and kept reasoning, then with calls as text, in at most {MAX_REQUESTS} requests ({error.message})"
    )
