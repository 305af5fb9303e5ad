"""List the files, commands and addresses in a session's tool calls.

They are derived from a call's name and its arguments, by the usual argument names, so that tools of plugins
count too. The module also reads the state that opening a session needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Literal, cast

import apsw
import msgspec

from whet.contract.texts import NOT_JSON
from whet.store import rows, sessions

Kind = Literal["changed", "read", "command", "url"]
_PATHS = ("path", "file_path", "filename", "file", "paths", "files", "source", "destination", "target_file")
_COMMANDS = ("command", "cmd")
_URLS = ("url", "urls", "uri")
_CHANGES = re.compile(r"write|edit|patch|create|delete|remove|move|rename|replace|append|insert|save", re.I)
_DIFF_PATH = re.compile(
    r"^(?:\+\+\+|---|\*\*\* (?:Update|Add|Delete) File:|rename (?:from|to)) (?:[ab]/)?([^\t\n]+)", re.M
)
_DIFFS = ("diff", "patch", "input")


class TouchedItem(msgspec.Struct, frozen=True):
    """A file, command or address in a call."""

    kind: Kind
    value: str


class TrailStep(msgspec.Struct, frozen=True):
    """An item of a stored call, with the number of the message that requested the call, and a command's exit
    code."""

    seq: int
    item: TouchedItem
    exit_code: int | None


def read_trail(
    connection: apsw.Connection, session_id: str, kinds: Collection[Kind], before: int, limit: int
) -> tuple[list[TrailStep], int]:
    """Return about `limit` items of a session's calls, newest first and each once, and the next `before`.

    Only messages numbered below `before` are read, all if it is 0. The returned number is 0 at the end.
    Raises NotFound.
    """
    key = sessions.key_of(connection, session_id)
    first, _ = rows.ids_of(key)
    top = before if 0 < before < rows.SEQ_LIMIT else rows.SEQ_LIMIT
    seen_items: set[TouchedItem] = set()
    steps: list[TrailStep] = []
    for id_, extra in connection.execute(
        "SELECT id, extra FROM messages WHERE id >= ? AND id < ? AND role = ? AND extra IS NOT NULL"
        " ORDER BY id DESC",
        (first, first + top, rows.ASSISTANT),
    ):
        seq = id_ & (rows.SEQ_LIMIT - 1)
        if len(steps) >= limit:
            return steps, seq + 1
        for position, call in enumerate(rows.unpack(rows.ASSISTANT, "", extra).tool_calls):
            for item in find_touched_items(call.name, call.arguments):
                if item.kind in kinds and item not in seen_items:
                    seen_items.add(item)
                    code = _exit_code(connection, key, seq + 1 + position) if item.kind == "command" else None
                    steps.append(TrailStep(seq, item, code))
    return steps, 0


def select_arguments(connection: apsw.Connection, session_id: str, tool: str) -> Callable[[], list[str]]:
    """Query the arguments of a session's successful calls of `tool`, and return the function that reads them.

    They come oldest first, without undone turns, but with calls that a compaction has replaced.
    """
    calls = connection.execute(
        "SELECT c.position, m.role, m.content, m.extra FROM tool_calls c"
        f" JOIN messages m ON m.id = (c.session << {rows.SEQ_BITS}) + c.seq - 1 - c.position"
        " WHERE c.session = (SELECT key FROM sessions WHERE id = ?) AND c.name = ? AND c.finished IS NOT NULL"
        " AND c.error_kind = '' AND c.turn NOT IN"
        " (SELECT t.number FROM turns t WHERE t.session = c.session AND t.undone <> '') ORDER BY c.seq",
        (session_id, tool),
    )
    return lambda: [rows.unpack(*message).tool_calls[int(at)].arguments for at, *message in calls]


def list_arguments(connection: apsw.Connection, session_id: str, tool: str) -> list[str]:
    """Return what `select_arguments` reads."""
    return select_arguments(connection, session_id, tool)()


class OpeningState(msgspec.Struct, frozen=True):
    """The data besides messages that opening a session needs.

    `prime` is the JSON of the examples that it was started with, `profile` the person whose memory it uses.
    `arguments` are those of its calls of one tool.
    """

    prompt: str
    tools_json: str
    prime: str
    profile: str
    is_planning: bool
    has_helpers: bool
    arguments: list[str]


def select_opening_state(
    connection: apsw.Connection, session_id: str, tool: str
) -> Callable[[], OpeningState]:
    """Query the state of a session to open, and return the function that reads it, which raises NotFound."""
    select = sessions.select_columns(
        connection,
        "(SELECT text FROM frozen_texts f WHERE f.id = system_text),"
        " (SELECT text FROM frozen_texts f WHERE f.id = tools_text),"
        " (SELECT text FROM frozen_texts f WHERE f.id = prime_text), profile,"
        " planning, EXISTS (SELECT 1 FROM helpers WHERE parent = sessions.id)",
        session_id,
    )
    arguments = select_arguments(connection, session_id, tool)

    def read() -> OpeningState:
        *texts, profile, is_planning, has_helpers = select()
        prompt, tools_json, prime = (text or "" for text in texts)
        flags = bool(is_planning), bool(has_helpers)
        return OpeningState(prompt, tools_json, prime, profile, *flags, arguments())

    return read


def _exit_code(connection: apsw.Connection, key: int, seq: int) -> int | None:
    sql = "SELECT exit_code FROM tool_calls WHERE session = ? AND seq = ?"
    return rows.read_value(connection, sql, key, seq)


def find_touched_items(name: str, arguments: str) -> list[TouchedItem]:
    """Return the items of a call in order, each once. The list is empty if the arguments can't be read."""
    try:
        decoded = msgspec.json.decode(arguments)
    except NOT_JSON:
        return []
    if not isinstance(decoded, dict):
        return []
    items: list[TouchedItem] = []
    changes = _CHANGES.search(name) is not None
    for key, value in cast("dict[str, Any]", decoded).items():
        items += _items_of_argument(key, value, changes=changes)
    return list(dict.fromkeys(items))


def _items_of_argument(key: str, value: Any, *, changes: bool) -> list[TouchedItem]:
    texts = [text.strip() for text in _list_texts(value) if text.strip()]
    if key in _PATHS:
        return [TouchedItem("changed" if changes else "read", text) for text in texts if "\n" not in text]
    if key in _COMMANDS:
        return [TouchedItem("command", text) for text in texts]
    if key in _URLS:
        return [TouchedItem("url", text) for text in texts]
    if key in _DIFFS and changes:
        return [
            TouchedItem("changed", path.strip())
            for text in texts
            for path in _DIFF_PATH.findall(text)
            if path.strip() != "/dev/null"
        ]
    return []


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in _list_texts(item)]
    return []
