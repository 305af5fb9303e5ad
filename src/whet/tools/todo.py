"""The `todo` tool: the model's list of work in a session.

Each result holds the whole list, and replaying the calls' arguments rebuilds it, so resuming needs only
the transcript. Lists are kept per session and bounded. Transcripts are read elsewhere.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from whet.contract.errors import BadInput
from whet.contract.texts import NOT_JSON, flat, from_json

MAX_ITEMS = 50
MAX_ITEM_CHARS = 300
_MAX_ID_CHARS = 40
_MAX_SESSIONS = 1000

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_MARKS: dict[Status, str] = {"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}


class TodoItem(msgspec.Struct, frozen=True):
    """One item. When merging, the content or the status of an existing item may be omitted."""

    id: str = ""
    content: str = ""
    status: Status | None = None


class _Arguments(msgspec.Struct, frozen=True):
    items: list[TodoItem] | None = None
    merge: bool = False


class TodoLists(msgspec.Struct):
    """The lists of active sessions, by session id. The least recently used are dropped."""

    _lists: OrderedDict[str, list[TodoItem]] = msgspec.field(default_factory=OrderedDict[str, list[TodoItem]])

    def get(self, session_id: str) -> list[TodoItem]:
        """Return a session's list, or an empty list."""
        return list(self._lists.get(session_id, ()))

    def update(self, session_id: str, items: Iterable[TodoItem], *, merge: bool) -> list[TodoItem]:
        """Replace a session's list, or change and add items by id. Raises BadInput and then changes
        nothing."""
        old = self.get(session_id) if merge else []
        new = _merge(old, items)
        self._lists[session_id] = new
        self._lists.move_to_end(session_id)
        while len(self._lists) > _MAX_SESSIONS:
            self._lists.popitem(last=False)
        return list(new)

    def restore(self, session_id: str, calls: Iterable[str]) -> list[TodoItem]:
        """Rebuild a session's list from the argument texts of its successful todo calls, oldest first."""
        self._lists.pop(session_id, None)
        for arguments in calls:
            with suppress(*NOT_JSON, BadInput):  # that call was refused when it was made, too
                call = from_json(arguments, _Arguments, strict=False)
                if call.items is not None:
                    self.update(session_id, call.items, merge=call.merge)
        return self.get(session_id)


def format_list(items: list[TodoItem]) -> str:
    """Format a list for the model: mark, id, content, and the counts."""
    if not items:
        return "The list is empty."
    lines = [f"[{_MARKS[item.status or 'pending']}] {item.id}: {item.content}" for item in items]
    done = sum(item.status in ("completed", "cancelled") for item in items)
    return "\n".join([*lines, f"{done} of {len(items)} done"])


def _merge(old: list[TodoItem], new_items: Iterable[TodoItem]) -> list[TodoItem]:
    by_id = {item.id: item for item in old}
    for item in new_items:
        key = flat(item.id) or _free_id(by_id)
        before = by_id.get(key, TodoItem())
        content = flat(item.content) or before.content
        if not content:
            raise BadInput(f"todo: item {key} has no content")
        if len(content) > MAX_ITEM_CHARS or len(key) > _MAX_ID_CHARS:
            raise BadInput(f"todo: item {key[:_MAX_ID_CHARS]} is longer than {MAX_ITEM_CHARS} characters")
        by_id[key] = TodoItem(key, content, item.status or before.status or "pending")
    if len(by_id) > MAX_ITEMS:
        raise BadInput(f"todo: {len(by_id)} items; at most {MAX_ITEMS}. Drop finished ones or join some")
    return list(by_id.values())


def _free_id(used: Iterable[str]) -> str:
    names = set(used)
    return next(str(n) for n in itertools.count(1) if str(n) not in names)
