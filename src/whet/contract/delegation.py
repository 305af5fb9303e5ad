"""The interface between tools and helpers: sessions that do a task for another one, in the foreground or the
background."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from whet.contract.tools import ToolContext, ToolOutput

HELPER = "helper-"
"""The prefix of helpers' names."""
ProcessAction = Literal["list", "poll", "wait", "write", "kill"]
HelperScope = Literal["parent", "read"]


class HelperWish(msgspec.Struct, frozen=True, omit_defaults=True):
    """The task of a helper and how to run it.

    `context` is sent to it with the task. `background`: its parent does not wait. `worktree`: it works in
    a git working tree of its own. `schema`: a JSON Schema that its answer must fit. `budget_usd` and
    `steps` are its limits, 0 for those of the settings. `scope` "read": it changes nothing and runs
    nothing.
    """

    task: str
    context: str = ""
    background: bool = False
    worktree: bool = False
    schema: dict[str, Any] | None = None
    budget_usd: float = 0.0
    steps: int = 0
    scope: HelperScope = "parent"


class Spawn(Protocol):
    """Runs a task in a child session under the same gate."""

    async def __call__(self, parent: ToolContext, wish: HelperWish) -> ToolOutput:
        """Return the helper's result or, if it works in the background, that it has begun. Cancelling ends a
        helper that is waited for. If called again for the same call, the same helper continues."""
        ...


class BackgroundHelpers(Protocol):
    """A session's background helpers, addressed by the names that the session was given."""

    async def list_lines(self, context: ToolContext) -> list[str]:
        """Return one line for each helper of the session."""
        ...

    async def act(
        self, context: ToolContext, name: str, action: ProcessAction, text: str, timeout_s: float
    ) -> ToolOutput:
        """Act on a helper as on a process: poll it, wait up to `timeout_s` for its end, send it a message, or
        kill it. A wait that sees its end merges the changes in its own working tree."""
        ...
