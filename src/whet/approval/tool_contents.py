"""The contents of foreign tools that have lasting permissions: what their servers said of them then.

A server can change a tool's description, arguments and claims at any time. A permission by name holds for
the tool as it was when it was allowed; a changed one is asked about again, with the difference.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.approval.policy import GatePolicy, Ruling
from whet.config.paths import lock_folder, replace_file
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.contract.tools import Tool, clip

if TYPE_CHECKING:
    from whet.approval.person_request import GateCase

_FILE = "accepted-tools.json"
_MAX_SESSIONS = 1_000
_LINE_CHARS = 600
_MAX_CHANGES = 20
_UNREADABLE = "what was allowed can't be read"


class AcceptedContents:
    """The accepted contents by the tools' full names, in a file of the home, and those of single sessions."""

    def __init__(self, whet_home: Path) -> None:
        self._path = whet_home / "mcp" / _FILE
        self._of_sessions: OrderedDict[tuple[str, str], str] = OrderedDict()

    def recheck(self, session_id: str, case: GateCase, policy: GatePolicy, ruling: Ruling) -> Ruling:
        """Return the ruling, or a question if a rule or a grant allows a foreign tool that has changed since.
        What the mode allows without a rule stays allowed."""
        is_auto = policy.mode == "auto" and case.action.level == "normal"
        if ruling.verdict != "allow" or not ruling.by_rule or is_auto or case.call.tool.content is None:
            return ruling
        change = self._describe_change(case.call.tool, session_id)
        if not change:
            return ruling
        lasting = case.action.level == "normal"
        asked = policy.judge(case.action, (), change)
        return msgspec.structs.replace(asked, lasting=lasting, change=change)

    def _describe_change(self, tool: Tool, session_id: str) -> str:
        """Return how a permitted tool differs from the one that was accepted; empty if it does not, and for a
        tool that is no longer offered: its call fails.

        A tool that is permitted by a rule alone is accepted at its first use.
        """
        content = tool.content() if tool.content is not None else ""
        if not content:
            return ""
        if self._of_sessions.get((session_id, tool.name)) == content:
            return ""
        contents = self._read()
        if contents is None:
            return _UNREADABLE
        accepted = contents.get(tool.name)
        if accepted is None:
            self.accept_all({tool.name: content})
        return "" if accepted in (None, content) else _difference(accepted, content)

    def accept(self, tool: Tool, session_id: str, *, lasting: bool) -> None:
        """Accept a tool as it is now, for a session or for good."""
        if tool.content is None:
            return
        self._of_sessions[session_id, tool.name] = content = tool.content()
        while len(self._of_sessions) > _MAX_SESSIONS:
            self._of_sessions.popitem(last=False)
        if lasting:
            self.accept_all({tool.name: content})

    def accept_all(self, contents: dict[str, str]) -> None:
        """Accept contents by the tools' full names, for good; not in a home that can't be written: there each
        tool is asked about again, or accepted at its next first use."""
        with suppress(WhetError), lock_folder(self._path.parent):
            if (accepted := self._read()) is not None:  # an unreadable file stays: all tools are asked about
                text = msgspec.json.encode({**accepted, **contents}).decode()
                replace_file(self._path, text, mode=0o600)

    def _read(self) -> dict[str, str] | None:
        """Return the accepted contents, or None if the file can't be read."""
        try:
            return from_json(self._path.read_bytes(), dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, *NOT_JSON):
            return None


def _difference(before: str, now: str) -> str:
    old_lines, new_lines = dict.fromkeys(before.splitlines()), dict.fromkeys(now.splitlines())
    changes = [
        *(f"- {clip(line.strip(), _LINE_CHARS)}" for line in old_lines if line not in new_lines),
        *(f"+ {clip(line.strip(), _LINE_CHARS)}" for line in new_lines if line not in old_lines),
    ]
    if len(changes) > _MAX_CHANGES:
        changes[_MAX_CHANGES:] = [f"and {len(changes) - _MAX_CHANGES} more lines"]
    return f"its server changed it since you allowed it: {'; '.join(changes) or 'the order of its arguments'}"
