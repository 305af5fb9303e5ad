"""Leave out items of the history that a server refuses, so that the conversation can continue.

Servers refuse a whole request because of one picture that they can't read, reasoning whose signature they do
not accept, or too many bytes. Without a repair they would refuse every later request too. If a refusal points
to an item, that item is left out. If it points to nothing, a search of at most `MAX_REQUESTS` requests
begins; it does not depend on a vendor's error messages. The search ends with the first request that is
answered. Its last request shows all calls and results as plain text, which every server accepts. If the
conversation is too long even after a compaction, its longest texts are shortened. After failures that may be
an outage, the first request of the search leaves out everything that this server has not accepted before.

The list that was answered is recorded like a compaction, with the engine name `repair`, so that a resume, a
fork or a review sends the same bytes. The transcript keeps the original messages. This module knows no wire
format, and is loaded only after a refusal.
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
# A text is long if it has more than twice as many characters as are kept of it.
_HEAD_CHARS, _TAIL_CHARS = 1_500, 500


class Item(NamedTuple):
    """An item of the history, by the index of its message. `part` is the index of a picture in the message,
    or one of `_PARTS`: the reasoning kept with an answer (thoughts), the text of a tool's result, the calls
    or results to show as text, or a long text."""

    message: int
    part: int


Items = frozenset[Item]
_NOTHING: Items = frozenset()


class HistoryRepair:
    """The repair of one request. Each refusal changes which items of `messages` are left out."""

    def __init__(self, messages: Sequence[Message], answered_count: int = 0) -> None:
        """`answered_count` is how many of the messages were in a request that this server has answered."""
        self._messages = list(messages)
        self._answered_count = answered_count
        self._pictures = list(_find_pictures(messages))
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
        self._request_count = 0
        self._marker = REFUSED

    def choose_replacements(
        self, error: ProviderError, emit: Emit, *, may_shorten: bool = False
    ) -> dict[int, Message]:
        """Return the messages that the next request shows instead of those of the history, by the identity of
        these. Empty if nothing else can be left out. `may_shorten`: a compaction can't make the list smaller.
        """
        self._request_count += 1
        if self._request_count > MAX_REQUESTS:
            return {}
        if named := self._find_named(error):
            if self._request_count > _NAMED_ONE_BY_ONE:  # leave out all of a kind, not one for each refusal
                if not named.isdisjoint(self._thoughts):
                    named |= self._thoughts
                elif not named.isdisjoint(self._calls):
                    named |= self._calls
                else:
                    named |= frozenset(self._pictures)
            self._named |= named
            self._left_out = self._named
            return self.build_replacements()
        if self._plan is None:
            self._plan = self._plan_search(error, may_shorten=may_shorten)
            if self._plan:
                self._request_count = 1
                emit(Notice(_search_line(error)))
        if not self._plan:
            return {}
        self._left_out = self._plan.pop(0)
        return self.build_replacements()

    def build_replacements(self) -> dict[int, Message]:
        """Return the changed messages, by the identity of the messages of the history."""
        first = min((item.message for item in self._left_out if item.part == _CALLS), default=-1)
        return {
            id(self._messages[index]): self._change_message(index, AS_TEXT if index == first else "")
            for index in sorted({item.message for item in self._left_out})
        }

    def summary(self) -> str:
        """Return the line for the person about the items that are left out."""
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

    def _find_named(self, error: ProviderError) -> Items:
        """Return the items in the part of the request that a refusal points to. If the same refusal comes
        again, they were not at fault, and none are returned."""
        is_same = bool(self._named) and error.detail == self._last_detail
        self._last_detail = error.detail
        if is_same:
            self._named = self._left_out = _NOTHING
        if is_same or self._plan is not None or not error.part:
            return _NOTHING
        pictures = [item for item in self._pictures if self._picture_data(item) in error.part]
        if named := frozenset(pictures) - self._left_out:
            return named
        objects = _list_objects(msgspec.json.decode(error.part))
        if _holds_thoughts(objects, self._messages) and (named := self._thoughts - self._left_out):
            return named
        return self._find_results(objects) - self._left_out or self._find_calls(objects) - self._left_out

    def _find_calls(self, objects: Sequence[dict[str, Any]]) -> Items:
        """Return the calls that are among these objects of a request, with their results."""
        ids = _collect_texts(objects, "id", "call_id")
        names = _collect_texts([part for part in objects if "id" not in part], "name")
        calls_by_item = {item: self._messages[item.message].tool_calls for item in self._calls}
        answers = {
            item
            for item, calls in calls_by_item.items()
            if any(call.id in ids or call.name in names for call in calls)
        }
        call_ids = {call.id for item in answers for call in calls_by_item[item]}
        results = {item for item in self._calls if self._messages[item.message].tool_call_id in call_ids}
        return frozenset(answers | results)

    def _find_results(self, objects: Sequence[dict[str, Any]]) -> Items:
        """Return the tool results that are among these objects of a request."""
        parts = [part for part in objects if part.get("type") != "function_call"]  # it has the same id
        ids = _collect_texts(parts, "tool_call_id", "tool_use_id", "call_id")
        return frozenset(
            Item(index, _RESULT)
            for index, message in enumerate(self._messages)
            if message.role == "tool" and message.tool_call_id in ids
        )

    def _plan_search(self, error: ProviderError, *, may_shorten: bool) -> list[Items]:
        """Return the sets of items to leave out, one per request, if a refusal points to no item."""
        pictures = frozenset(self._pictures)
        is_bad_request = isinstance(error, BadRequest) and not isinstance(error, UnknownModel)
        if error.status == _TOO_LARGE or isinstance(error, ContextOverflow):
            self._marker = TOO_LARGE
            candidates = _split_oldest_first(self._pictures)
            if may_shorten:
                longest = self._list_long_texts()
                sizes = (1, (len(longest) + 1) // 2, len(longest))
                candidates += [pictures.union(longest[:size]) for size in sizes]
        elif isinstance(error, Unavailable):
            return self._plan_outage_search()
        elif error.status in _SEARCHED and is_bad_request:
            candidates = [*self._rank_suspects(), pictures | self._thoughts | self._calls]
        elif _may_be_about_pictures(error) and pictures:
            candidates = [pictures, pictures | self._thoughts]
        else:
            return []
        return _limit(_distinct(candidates), MAX_REQUESTS)

    def _list_long_texts(self) -> list[Item]:
        """Return the long texts, the longest first."""
        sizes = {Item(index, _LONG): len(message.text) for index, message in enumerate(self._messages)}
        longest = sorted(sizes, key=lambda item: -sizes[item])
        return [item for item in longest if sizes[item] > 2 * (_HEAD_CHARS + _TAIL_CHARS)]

    def _plan_outage_search(self) -> list[Items]:
        """Return the sets to leave out after failures that may be an outage: first all items that this server
        has not accepted before, then parts of these. If it has accepted thoughts once, it accepts others."""
        has_accepted_thoughts = any(item.message < self._answered_count for item in self._thoughts)
        pictures = frozenset(item for item in self._pictures if item.message >= self._answered_count)
        everything = pictures if has_accepted_thoughts else pictures | self._thoughts
        if not everything:
            return []
        parts = _distinct(suspects & everything for suspects in self._rank_suspects())
        return [everything, *_limit(parts, MAX_REQUESTS - 1)]

    def _rank_suspects(self) -> list[Items]:
        """Return sets of items, the likeliest to be at fault first.

        The oldest pictures come first, because servers limit how many there may be. Pictures after the last
        answer come one by one, because the server has not accepted them yet.
        """
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

    def _change_message(self, index: int, note: str) -> Message:
        """Return a message without the items that are left out. `note` is added to calls shown as text."""
        message = self._messages[index]
        if Item(index, _THOUGHTS) in self._left_out:
            message = msgspec.structs.replace(message, replay=None)
        if Item(index, _RESULT) in self._left_out:
            message = msgspec.structs.replace(message, content=REFUSED_RESULT)
        if not isinstance(message.content, str):
            content = [
                TextPart(self._marker) if Item(index, part_index) in self._left_out else part
                for part_index, part in enumerate(message.content)
            ]
            message = msgspec.structs.replace(message, content=tuple(content))
        if Item(index, _LONG) in self._left_out:
            message = _shorten_message(message)
        if Item(index, _CALLS) in self._left_out:
            message = _to_text(message, note)
        return message

    def _picture_data(self, item: Item) -> str:
        part = self._messages[item.message].content[item.part]
        assert isinstance(part, ImagePart)
        return part.data_base64


def _find_pictures(messages: Sequence[Message]) -> Iterable[Item]:
    for index, message in enumerate(messages):
        if not isinstance(message.content, str):
            for part_index, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    yield Item(index, part_index)


def _shorten_message(message: Message) -> Message:
    """Return a message with only the beginning and the end of its long texts."""
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


def _to_text(message: Message, note: str) -> Message:
    """Return an answer with its calls as text, or a result as the text of a user's message."""
    if message.role == "tool":
        opening = f"[The result of the call of {message.tool_name or 'a tool'}:]"
        if isinstance(message.content, str):
            return Message("user", f"{opening}\n{message.content}")
        return Message("user", (TextPart(opening), *message.content))
    calls = [f"[Called {call.name} with {call.arguments or '{}'}]" for call in message.tool_calls]
    lines = [line for line in (message.text, note, *calls) if line]
    return msgspec.structs.replace(message, content="\n".join(lines), tool_calls=(), replay=None)


def _distinct(sets: Iterable[Items]) -> list[Items]:
    """Return the sets without empty ones and duplicates."""
    return [items for items in dict.fromkeys(sets) if items]


def _limit(plan: list[Items], count: int) -> list[Items]:
    """Return at most `count` sets of a plan, including the last two, which leave out most."""
    return plan if len(plan) <= count else [*plan[: count - 2], *plan[-2:]]


def _may_be_about_pictures(error: ProviderError) -> bool:
    """Return whether a server that does not accept the pictures may have answered with this error."""
    is_refusal = isinstance(error, BadRequest | ModelRefused) and error.status is not None
    return is_refusal or (isinstance(error, AuthRejected) and error.status == _FORBIDDEN)


def _split_oldest_first(pictures: Sequence[Item]) -> list[Items]:
    """Return the oldest quarter of the pictures, the oldest half, all but the newest, and all. Leaving out
    one at a time would send megabytes in vain, and change the prefix with each picture that is added."""
    count = len(pictures)
    return [frozenset(pictures[:size]) for size in ((count + 3) // 4, (count + 1) // 2, count - 1, count)]


def _holds_thoughts(objects: Sequence[dict[str, Any]], messages: Sequence[Message]) -> bool:
    """Return whether objects of a request contain the replay data of an answer."""
    for message in messages:
        if message.replay is None:
            continue
        replay: object = msgspec.json.decode(message.replay.blocks_json)
        if isinstance(replay, list):
            if any(block in objects for block in cast("list[object]", replay)):
                return True
        elif isinstance(replay, dict):
            fields = cast("dict[str, object]", replay)
            if any(part.get(name) == value for name, value in fields.items() for part in objects):
                return True
    return False


def _collect_texts(objects: Iterable[dict[str, Any]], *names: str) -> set[str]:
    """Return the texts under these keys. Other values are ignored: a call's arguments can hold anything."""
    return {value for part in objects for name in names if isinstance(value := part.get(name), str)}


def _list_objects(value: object) -> list[dict[str, Any]]:
    """Return every object in a JSON value, including the value itself."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return [fields, *(inner for item in fields.values() for inner in _list_objects(item))]
    if isinstance(value, list):
        return [inner for item in cast("list[object]", value) for inner in _list_objects(item)]
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
