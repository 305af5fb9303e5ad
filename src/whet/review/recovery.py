"""Whether a turn got round a failure: a call failed, and the same tool, called differently, worked.

Mending a file and running the same command again is ordinary work and teaches nothing about the command, so
a failed call that succeeds unchanged later is no recovery. Reading about (ls, grep) and text edits that did
not match don't count either. It sees calls and results only, no model and no store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whet.contract.texts import NOT_JSON
from whet.store.reviews import TurnCall

_FAILURES = frozenset({"exit", "failed", "timeout", "bad_input"})
# Their failures are about a text or a path that the model had wrong, not about how the work is done.
_PLAIN = frozenset({"read_file", "write_file", "patch", "search_files", "todo", "memory", "skill_manage"})
_LOOKING = frozenset(
    {"ls", "cat", "head", "tail", "grep", "rg", "find", "pwd", "echo", "which", "type", "wc", "tree", "file"}
    | {"stat", "env", "printenv", "man", "test", "[", "diff", "sort"}
)
_NEAR = 6


def recovered(calls: Sequence[TurnCall]) -> bool:
    """Say whether a failure was got round in these calls, which stand in the order they were asked for."""
    doing = [call for call in calls if call.name not in _PLAIN and not _is_looking(call)]
    for at, failed in enumerate(doing):
        if failed.error_kind not in _FAILURES:
            continue
        later = [call for call in doing[at + 1 :] if call.name == failed.name and not call.error_kind]
        unchanged = any(call.arguments == failed.arguments for call in later)
        near = doing[at + 1 : at + 1 + _NEAR]
        if not unchanged and any(call in near for call in later):
            return True
    return False


def _is_looking(call: TurnCall) -> bool:
    """Whether a command only looks around, as far as its first word tells."""
    try:
        arguments: Any = msgspec.json.decode(call.arguments or "{}")
    except NOT_JSON:
        return False
    command = arguments.get("command") if isinstance(arguments, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(command, str):
        return False
    words = command.rsplit("&&", 1)[-1][:400].split(maxsplit=1)
    return bool(words) and words[0] in _LOOKING
