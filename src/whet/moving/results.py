"""How a foreign call ended, as far as its result says so: exit codes, success and error fields.

Only fields count, not words: a page about errors is no error. It does not know whose tools these were.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from whet.contract.texts import NOT_JSON

_EXIT = re.compile(r"\A(?:Exit code:? |Process exited with code )(-?\d+)\b")


class Ending(msgspec.Struct, frozen=True):
    """`error_kind` is empty on success, else "exit" or "failed" (as in ToolOutput)."""

    error_kind: str = ""
    exit_code: int | None = None


def ending_of(text: str, *, is_error: bool = False) -> Ending:
    """Read a result's text."""
    if found := _EXIT.match(text):
        return _exited(int(found[1]), is_error)
    if text.startswith("{"):
        try:
            parsed: Any = msgspec.json.decode(text)
        except NOT_JSON:
            parsed = None
        if isinstance(parsed, dict):
            return _from_fields(cast(dict[str, object], parsed), is_error)
    return Ending("failed" if is_error else "")


def _from_fields(fields: dict[str, object], is_error: bool) -> Ending:
    code = fields.get("exit_code")
    metadata = fields.get("metadata")
    if code is None and isinstance(metadata, dict):
        code = cast(dict[str, object], metadata).get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return _exited(code, is_error or bool(fields.get("error")))
    failed = is_error or fields.get("success") is False or bool(fields.get("error"))
    return Ending("failed" if failed else "")


def _exited(code: int, is_error: bool) -> Ending:
    return Ending("exit" if code else "failed" if is_error else "", code)
