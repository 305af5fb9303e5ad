"""Call a tool as dispatch does, and read what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.tools.running import context
from whet.contract.errors import ToolError
from whet.contract.tools import ToolOutput
from whet.lanes import ToolPool
from whet.tools.registry import Registry
from whet.tools.toolsets.files import FileTools


class Desk:
    """The file tools over one workspace."""

    def __init__(
        self,
        workspace: Path,
        *,
        allowed: Sequence[Path] = (),
        ripgrep: str | None = "rg",
        workers: int = 2,
        home: Path | None = None,
    ) -> None:
        self.workspace = workspace
        self.pool = ToolPool(workers)
        self.registry = Registry(FileTools(self.pool, allowed=allowed, ripgrep=ripgrep, home=home))

    async def acall(self, name: str, **arguments: object) -> ToolOutput:
        return await self.registry.get(name).run(context(self.workspace), arguments)

    def call(self, name: str, **arguments: object) -> ToolOutput:
        return asyncio.run(self.acall(name, **arguments))

    def text(self, name: str, **arguments: object) -> str:
        return self.call(name, **arguments).text

    def error(self, name: str, **arguments: object) -> ToolError:
        try:
            output = self.call(name, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(f"{name} went well: {output.text}")
