"""What tools know of helpers: sessions that do a task for another one, waited for or in the background."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from whet.contract.tools import ToolContext, ToolOutput

HELPER = "helper-"
"""What the names of helpers begin with."""
ProcessAction = Literal["list", "poll", "wait", "write", "kill"]
HelperScope = Literal["parent", "read"]


class HelperWish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a helper is to do, and how. `context` is told to it with the task; `background`: its parent does
    not wait; `worktree`: in a git working tree of its own; `schema`: a JSON Schema that its answer must fit;
    `budget_usd` and `steps`: the most that it may take, 0 for what the settings allow; `scope` read: it
    changes nothing and runs nothing."""

    task: str
    context: str = ""
    background: bool = False
    worktree: bool = False
    schema: dict[str, Any] | None = None
    budget_usd: float = 0.0
    steps: int = 0
    scope: HelperScope = "parent"


class Spawn(Protocol):
    """Has a child session do something under the same gate."""

    async def __call__(self, parent: ToolContext, wish: HelperWish) -> ToolOutput:
        """Give what the helper came to, or where it works in the background that it has begun. A cancel ends
        a helper that is waited for. Asked again for the same call, the same helper goes on."""
        ...


class BackgroundHelpers(Protocol):
    """A session's helpers in the background, by the names that it was told."""

    async def listed(self, context: ToolContext) -> list[str]:
        """Give a line for each helper of the session."""
        ...

    async def look_after(
        self, context: ToolContext, name: str, action: ProcessAction, text: str, timeout_s: float
    ) -> ToolOutput:
        """Do with one what is done with a process: poll it, wait for its end at most so long, write it a
        message, kill it. What it changed in a working tree of its own is merged by a wait after its end."""
        ...
