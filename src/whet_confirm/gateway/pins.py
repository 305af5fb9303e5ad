"""The accepted definitions of an MCP server's tools: name, description, schemas.

The definitions of the first run are accepted. If a tool is added or changed later, its calls wait for a
person, whose approval also accepts the new definition. Until then the client sees only accepted texts. There
is one file for each server. Changes are durable when `accept` returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.paths import lock_folder, read_small, replace_file
from whet.contract.errors import ConfigError, StoreUnwritable
from whet_confirm.canonical import canonical

_NEW = "New, and accepted by no person yet. Its definition is listed once a person has approved a call."


class ToolChange(msgspec.Struct, frozen=True):
    """A definition that was not accepted: as it was (empty for a new tool) and as it is."""

    before: str
    after: str


class ToolPins:
    """The definitions that were accepted, and those that the server has listed since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = self._read()
        self._is_first_run = stored is None
        self._accepted = stored or {}
        self._listed: dict[str, str] = {}

    def observe(self, result: dict[str, Any]) -> dict[str, Any] | None:
        """Record the tools of an answer to tools/list. In the first run, accept those that are new.

        Returns the answer for the client, or None if it is unchanged. In it, a changed tool has its accepted
        definition, and a new one only its name.
        """
        if not isinstance(items := result.get("tools"), list):
            return None
        shown: list[object] = []
        listed: dict[str, str] = {}
        is_changed = False
        new: dict[str, str] = {}
        for item in cast("list[object]", items):
            shown.append(item)
            tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
            if not isinstance(name := tool.get("name"), str):
                continue
            text = canonical(tool).decode()
            if self._is_first_run and name not in self._accepted:
                self._accepted[name] = new[name] = text
            if text != self._accepted.get(name):
                shown[-1], is_changed = self._visible_tool(name), True
            if listed.get(name, "") in ("", self._accepted.get(name)):  # if listed twice, keep the change
                listed[name] = text
        self._listed |= listed
        if new:
            self._store(new)
        return result | {"tools": shown} if is_changed else None

    def _visible_tool(self, name: str) -> dict[str, Any]:
        if accepted := self._accepted.get(name):
            return msgspec.json.decode(accepted, type=dict[str, Any])
        return {"name": name, "description": _NEW, "inputSchema": {"type": "object"}}

    def find_change(self, tool: str) -> ToolChange | None:
        """Return how a tool differs from its accepted definition, or None.

        In the first run, before the tools are listed, no tool differs.
        """
        accepted = self._accepted.get(tool, "")
        listed = self._listed.get(tool, accepted)
        if listed == accepted and (accepted or self._is_first_run):
            return None
        return ToolChange(accepted, listed)

    def accept(self, tool: str, change: ToolChange) -> None:
        """Accept a definition that a person has approved. Raises ConfigError if it can't be stored."""
        if change.after:
            self._accepted[tool] = change.after
            self._store({tool: change.after})

    def _read(self) -> dict[str, str] | None:
        if (text := read_small(self._path)) is None:
            return None
        try:
            return msgspec.json.decode(text, type=dict[str, str]) if text else {}
        except msgspec.DecodeError as error:
            hint = "delete it to accept the tools as they are now"
            raise ConfigError(f"{self._path} can't be read: {error}", hint=hint) from error

    def _store(self, new: dict[str, str]) -> None:
        """Add definitions to the file, which other gateways of the same server may have changed."""
        try:
            with lock_folder(self._path.parent):
                self._accepted |= self._read() or {}
                self._accepted |= new
                replace_file(self._path, msgspec.json.encode(self._accepted).decode(), mode=0o600)
        except StoreUnwritable as error:
            raise ConfigError(error.message, hint=error.hint) from error
