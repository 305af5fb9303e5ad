"""Reads a client's messages to an MCP server so strictly that no server can read them differently.

JSON readers differ about doubled keys, `Method` for `method`, and bytes after a value. A message with any of
these is refused, because the server might find a call in it that the gateway did not.
"""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from whet_confirm.http.wire import DECODER

LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
"""Makes the client read the list of tools again."""
_MESSAGE_FIELDS = frozenset(("jsonrpc", "id", "method", "params"))
_CALL_FIELDS = frozenset(("name", "arguments"))


class AmbiguousMessage(ValueError):
    """Raised for a message that two readers could understand differently."""


class HeldCall(msgspec.Struct, frozen=True):
    """A call of a tool.

    `id` is that of its answer (None: no answer is expected). `progress_token` identifies its progress (None:
    the client does not follow it).
    """

    tool: str
    arguments: dict[str, Any]
    id: object
    progress_token: int | str | None = None


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the message of a line, or None for an empty line. Raises AmbiguousMessage."""
    if not line.strip():
        return None
    try:
        value: object = DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise AmbiguousMessage(f"not clear JSON: {str(error)[:100]}") from error
    if isinstance(value, list):
        raise AmbiguousMessage("several messages in one: send them one by one")
    if not isinstance(value, dict):
        raise AmbiguousMessage("not a JSON-RPC message")
    message = cast("dict[str, Any]", value)
    _check_names(message, _MESSAGE_FIELDS)
    return message


def read_call(message: dict[str, Any]) -> HeldCall | None:
    """Return the tool call that a message makes, or None. Raises AmbiguousMessage."""
    if message.get("method") != "tools/call":
        return None
    params: object = message.get("params")
    if not isinstance(params, dict):
        raise AmbiguousMessage("tools/call without params")
    fields = cast("dict[str, Any]", params)
    _check_names(fields, _CALL_FIELDS)
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        raise AmbiguousMessage("tools/call without a name, or with arguments that are not an object")
    return HeldCall(name, cast("dict[str, Any]", arguments or {}), message.get("id"), _find_token(fields))


def _find_token(params: dict[str, Any]) -> int | str | None:
    meta: object = params.get("_meta")
    token: object = cast("dict[str, Any]", meta).get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, int | str) and not isinstance(token, bool) else None


def id_key(request_id: object) -> str:
    """Return an id as text: 1 and "1" are different ids."""
    return json.dumps(request_id)


def encode_refusal(request_id: object, text: str) -> bytes:
    """Return the answer to a call that is not run, as a line. The model reads the text."""
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result}) + b"\n"


def encode_progress(token: int | str, number: int) -> bytes:
    """Return the line that tells the client for the `number`th time that a call waits for a person.

    Progress must increase. Servers begin with 0, so this stays below.
    """
    params = {"progressToken": token, "progress": -1 / number, "message": "waiting for a person's approval"}
    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return msgspec.json.encode(message) + b"\n"


def encode_error(line: bytes, text: str) -> bytes:
    """Return the answer to a line that can't be read, as a line.

    It has the line's id if that is certain, so that the client does not wait forever.
    """
    error = {"code": -32700, "message": f"the gateway does not pass this on: {text}"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": _find_id(line), "error": error}) + b"\n"


def _find_id(line: bytes) -> int | str | None:
    """Return the only id of a message, or None (JSON-RPC 2.0, section 5)."""
    try:
        members: object = json.loads(line, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    pairs = cast("tuple[tuple[str, Any], ...]", members) if isinstance(members, tuple) else ()
    ids = [value for name, value in pairs if name.casefold() == "id"]
    return ids[0] if len(ids) == 1 and isinstance(ids[0], int | str) else None


def _check_names(fields: dict[str, Any], known: frozenset[str]) -> None:
    """Raise AmbiguousMessage for a name that differs from a known one only in upper and lower case."""
    for name in fields:
        if name not in known and name.casefold() in known:
            raise AmbiguousMessage(f"{name!r} is spelled unlike {name.casefold()!r}")
