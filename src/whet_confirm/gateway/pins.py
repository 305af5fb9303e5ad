"""The accepted definitions of an MCP server's tools: name, description, schemas.

The definitions of the first run are accepted. A tool that comes later, or that changes, is held until a
person has approved a call of it as it is now. Stored as one file for each server; durable when `accept`
returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.paths import read_small, replace_file
from whet.contract.errors import ConfigError
from whet_confirm.canonical import canonical

_MAX_TOOLS = 5_000


class ToolChange(msgspec.Struct, frozen=True):
    """A definition that was not accepted: as it was (empty for a new tool) and as it is."""

    before: str
    after: str


class ToolPins:
    """The definitions that were accepted, and those that the server has listed since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = read_small(path)
        self._is_first_run = text is None
        try:
            self._accepted = msgspec.json.decode(text, type=dict[str, str]) if text else {}
        except msgspec.DecodeError as error:
            hint = "delete it to accept the tools as they are now"
            raise ConfigError(f"{path} can't be read: {error}", hint=hint) from error
        self._listed: dict[str, str] = {}

    def observe(self, result: object) -> None:
        """Note the tools of an answer to tools/list. In the first run, accept those that are new."""
        tools: object = cast("dict[str, Any]", result).get("tools") if isinstance(result, dict) else None
        for item in cast("list[object]", tools)[:_MAX_TOOLS] if isinstance(tools, list) else []:
            tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
            if isinstance(name := tool.get("name"), str):
                self._listed[name] = canonical(tool).decode()
        if self._is_first_run and (new := {n: t for n, t in self._listed.items() if n not in self._accepted}):
            self._accepted |= new
            self._store()

    def find_change(self, tool: str) -> ToolChange | None:
        """Return how a tool differs from what was accepted, or None. In the first run, before any list, no
        tool is known, and none differs."""
        accepted = self._accepted.get(tool, "")
        listed = self._listed.get(tool, accepted)
        if listed == accepted and (accepted or self._is_first_run):
            return None
        return ToolChange(accepted, listed)

    def accept(self, tool: str, change: ToolChange) -> None:
        """Accept a definition that a person has approved."""
        if change.after:
            self._accepted[tool] = change.after
            self._store()

    def _store(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._path, msgspec.json.encode(self._accepted).decode(), mode=0o600)
