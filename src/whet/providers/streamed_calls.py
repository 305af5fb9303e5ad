"""Join the streamed pieces of the tool calls in one Chat Completions answer.

Servers number pieces by index, by id or by order. Some repeat the name in each piece, the arguments so far,
or all arguments at the end. The pieces are first joined as OpenAI's are. Only if the result is not a JSON
object, it is read as such a repetition, so a correct answer is never changed.

Loaded with the first call of an answer. Does no I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from whet.contract.texts import is_object
from whet.late import late_pattern
from whet.providers.wire import join_pieces

_JSON = json.JSONDecoder(strict=False)
_TAGS = late_pattern(r"(?:\s|</?[\w|｜:▁]+>|<\|[\w|]*\|>)*")
_PAIR = late_pattern(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


class FinishedCall(msgspec.Struct, frozen=True):
    """A call with all its pieces. `id` is empty if the server sent none."""

    id: str
    name: str
    arguments: str
    extra: bytes


class _Slot:
    """One tool call while its pieces arrive."""

    __slots__ = ("extra", "id", "name", "pieces")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.pieces: list[str] = []
        self.extra = b""

    def is_complete(self) -> bool:
        return bool(self.pieces) and self.pieces[-1].endswith("}") and is_object("".join(self.pieces))

    def add_name(self, name: str) -> None:
        """Add a piece of the name, or the whole name again. Names end before the arguments begin."""
        if name.startswith(self.name):
            self.name = name
        elif not any(self.pieces):
            self.name += name

    def key(self) -> tuple[object, ...]:
        return (self.id, self.name, "".join(self.pieces)) if self.id else (self,)

    def finish(self) -> FinishedCall:
        written = join_pieces([self.name])
        name = read_name(written)
        arguments = read_arguments(self.pieces)
        if arguments == "{}" and (pairs := _PAIR.findall(written)):
            arguments = json.dumps(dict(pairs), separators=(",", ":"))
        return FinishedCall(join_pieces([self.id]), name, arguments, self.extra)


class StreamedCalls:
    """The calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def add(self, index: int | None, call_id: str, name: str, arguments: str | None, extra: bytes) -> None:
        """Add a piece of a call. `arguments` is None if it has none, `extra` the vendor's own JSON."""
        slot = self._find_slot(index, call_id, name)
        if slot is None or _begins_another(slot, call_id, name, arguments):
            slot = _Slot(call_id)
            self._slots.append(slot)
            if index is not None:
                self._by_index[index] = slot
        slot.id = slot.id or call_id
        slot.add_name(name)
        slot.extra = extra or slot.extra
        if arguments is not None:
            slot.pieces.append(arguments)

    def finish(self) -> list[FinishedCall]:
        """Return the calls. If a server sent the same event twice, its call is returned once."""
        slots = {slot.key(): slot for slot in self._slots if slot.name or slot.pieces}
        return [slot.finish() for slot in slots.values()]

    def _find_slot(self, index: int | None, call_id: str, name: str) -> _Slot | None:
        if index is None:
            return self._find_id(call_id) if call_id else self._slots[-1] if self._slots else None
        slot = self._by_index.get(index)
        if slot is None and self._slots and not name and not call_id:
            return self._slots[-1]  # without name and id it can't begin a call, so its index is wrong
        if slot is not None and call_id and not name and call_id != slot.id:
            return self._find_id(call_id) or slot  # several calls may share an index
        return slot

    def _find_id(self, call_id: str) -> _Slot | None:
        return next((slot for slot in reversed(self._slots) if slot.id == call_id), None)


def _begins_another(slot: _Slot, call_id: str, name: str, arguments: str | None) -> bool:
    """Return whether a piece begins a new call instead of continuing the one of its index, id or order.

    Some servers send several complete calls with index 0, or with the same id. Others repeat the name, or
    make up another id, in each piece of one call.
    """
    if not name:
        return False
    is_other = bool(call_id and slot.id and call_id != slot.id)
    if slot.is_complete():
        return is_other or bool(arguments)
    continues = slot.pieces and name == slot.name and not (arguments or "").lstrip().startswith("{")
    return is_other and not continues


def read_name(text: str) -> str:
    """Return a tool's name without remains of the model's notation that the server's parser left in it."""
    name = re.sub(r":\d+\Z", "", text.partition("<")[0].strip())
    return re.split(r"[.:]", name)[-1] or text


def read_arguments(pieces: Sequence[str]) -> str:
    """Join the pieces of a call's arguments. If the result is not a JSON object, repetitions are removed. If
    it still is not, it is returned as sent, for the model to see."""
    text = join_pieces(pieces)
    if not text.strip() or text.strip() in ("null", "None"):
        return "{}"
    if is_object(text):
        return text
    return _read_growing(pieces) or _read_repeated(text) or text


def _read_growing(pieces: Sequence[str]) -> str:
    """Read pieces that each contain all arguments so far. Returns "" if they don't give an object."""
    whole = ""
    for piece in pieces:
        whole = piece if piece.startswith(whole) else whole + piece
    return whole if is_object(whole) else ""


def _read_repeated(text: str) -> str:
    """Read an object that is repeated, follows an empty one, is followed by tags, or is a JSON string.
    Returns "" for anything else."""
    values: list[Any] = []
    at = 0
    while at < len(text):
        at = _TAGS.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess] it matches nothing, too
        if at == len(text):
            break
        try:
            value, at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            return ""
        values.append(value)
    if len(values) == 1 and isinstance(values[0], str):
        return values[0] if is_object(values[0]) else ""
    objects = [value for value in values if value != {}] or values[:1]
    is_one = bool(objects) and isinstance(objects[0], dict) and all(value == objects[0] for value in objects)
    # not msgspec: lone surrogates stay escaped, as they were sent
    return json.dumps(objects[0], separators=(",", ":")) if is_one else ""
