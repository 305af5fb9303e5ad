"""The toolset `file`: read, write, change and search the files of the workspace."""

# ruff: noqa: PLC0415 - a module that does the work is imported when its tool is first called

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from whet.contract.changes import TextChange
from whet.contract.tools import ToolContext, ToolOutput
from whet.lanes import ToolPool
from whet.sandbox.path_rules import PathRules
from whet.tools.signature import UNSENT, Toolset, tool_method

if TYPE_CHECKING:
    from whet.tools.paths import FileAccess

PATCH = "patch"


class FileTools(Toolset, frozen=True):
    """Tools that stay in the call's workspace and the `allowed` folders.

    `ripgrep` is the program's name. If it is None or the program is not installed, the built-in search is
    used. No tool reads or changes what the `rules` protect; a search from above leaves out the folder `home`.
    """

    toolset: ClassVar[str] = "file"
    pool: ToolPool
    allowed: Sequence[Path] = ()
    ripgrep: str | None = "rg"
    rules: PathRules = PathRules()
    home: Path | None = None

    @property
    def _access(self) -> FileAccess:
        from whet.tools.paths import FileAccess

        return FileAccess(self.allowed, self.rules)

    def plan_write(self, ctx: ToolContext, given: dict[str, Any]) -> tuple[TextChange, ...]:
        """Return the change that a call of `write_file` would make."""
        from whet.tools.files import plan_replacement

        return (plan_replacement(ctx, given["path"], given["content"], self._access),)

    def plan_patch(self, ctx: ToolContext, given: dict[str, Any]) -> tuple[TextChange, ...]:
        """Return the changes that a call of `patch` would make."""
        from whet.tools.patch import Replacement, plan_changes

        strings = Replacement(
            given.get("old_string", ""), given.get("new_string"), given.get("replace_all", False)
        )
        return plan_changes(ctx, given.get("path", ""), strings, given.get("diff", ""), self._access)

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=30)
    def read_file(
        self,
        ctx: ToolContext,
        path: str,
        offset: Annotated[int, msgspec.Meta(ge=1)] = 1,
        limit: Annotated[int, msgspec.Meta(ge=1)] = 500,
        *,
        stop: threading.Event,
    ) -> ToolOutput:
        """Read a text file's lines as number|text, or an image; list a folder."""
        from whet.tools.files import read

        return read(ctx, path, (offset, limit), self._access, stop)

    @tool_method(effects={"write"}, timeout_s=30, plan=plan_write)
    def write_file(self, ctx: ToolContext, path: str, content: str, *, stop: threading.Event) -> ToolOutput:
        """Create or replace a whole file and its folders."""
        from whet.tools.files import replace

        return replace(ctx, path, content, self._access, stop)

    @tool_method(effects={"write"}, timeout_s=30, plan=plan_patch)
    def patch(  # noqa: PLR0913 - the parameters are the model's arguments
        self,
        ctx: ToolContext,
        path: str = "",
        old_string: str = "",
        new_string: str | None = None,
        replace_all: bool = False,
        diff: str = "",
        *,
        stop: threading.Event,
    ) -> ToolOutput:
        """Replace old_string, unique in path, or apply a unified diff."""
        from whet.tools.patch import Replacement, edit

        strings = Replacement(old_string, new_string, replace_all)
        return edit(ctx, path, strings, diff, self._access, stop)

    @tool_method(effects={"read"}, parallel=True, repeatable=True, timeout_s=60)
    async def search_files(  # noqa: PLR0913 - the parameters are the model's arguments
        self,
        ctx: ToolContext,
        pattern: Annotated[str, "regex; for names a glob"],
        path: str = "",
        target: Literal["content", "names"] = "content",
        glob: str = "",
        limit: Annotated[int, msgspec.Meta(ge=1), UNSENT] = 100,
        offset: Annotated[int, msgspec.Meta(ge=0)] = 0,
    ) -> str:
        """Search files' contents or names, but for hidden and .gitignored files."""
        from whet.tools.paths import resolve
        from whet.tools.search import Query, search

        home = self.home and self.home.resolve()
        is_above = home is not None and (ctx.workspace / path).resolve() in home.parents

        def is_protected(file: str) -> bool:
            if is_above and home is not None and (ctx.workspace / file).resolve().is_relative_to(home):
                return True
            return self.rules.find(file, ctx.workspace, writes=False) != ""

        is_filtered = is_above or bool(self.rules.rules)
        query = Query(pattern, target == "names", glob, limit, offset, is_protected if is_filtered else None)
        return await search(resolve(path or ".", ctx.workspace, self.allowed), query, self.ripgrep)
