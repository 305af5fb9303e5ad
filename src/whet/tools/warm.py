"""What `warm_session` is asked, and how its answer is written: as JSON. What is done is handed in."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from whet.contract.tools import ToolOutput

Action = Literal["build", "list", "load", "delete"]


class WarmRequest(msgspec.Struct, frozen=True):
    """What the model asked for."""

    action: Action
    name: str = ""
    description: str = ""
    apply: bool = False


def answer(found: dict[str, Any]) -> ToolOutput:
    """Give what was done as the model reads it; `error` says that it failed."""
    error = found.get("error")
    row = {"success": not error, **found, "error": error}
    return ToolOutput(msgspec.json.encode(row).decode(), error_kind="failed" if error else "")
