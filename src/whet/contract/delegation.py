"""The interface between tools and helpers. A helper is a session that does a task for another session, in the
foreground or in the background."""

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

    `context` is sent with the task. `background`: its parent does not wait. `worktree`: it works in a git
    working tree of its own. `schema`: a JSON Schema that its answer must match. `budget_usd` and `steps` are
    its limits; 0 means the limit in the settings. `scope` "read": it may not change files or run commands.
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
        """Run a helper and return its result or, if it works in the background, a text that it has begun.
        Cancelling ends a foreground helper. If called again for the same call, the same helper continues."""
        ...


class BackgroundHelpers(Protocol):
    """A session's background helpers, addressed by the names that the session was given."""

    async def list_lines(self, context: ToolContext) -> list[str]:
        """Return one line for each helper of the session."""
        ...

    async def act(
        self, context: ToolContext, name: str, action: ProcessAction, text: str, timeout_s: float
    ) -> ToolOutput:
        """Poll a helper, wait up to `timeout_s` for its end, send it a message, or kill it. If a wait sees
        its end, the changes in its own working tree are merged."""
        ...
