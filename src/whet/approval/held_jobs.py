"""No job of a session changes a file between a person's look at a command that would run outside the sandbox,
and its end.

The session's commands in sandboxes are stopped. If another one starts in between, the command is refused.
The files of the workspace are compared as well: another session or program may have changed one that the
command runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.approval.paths import stamp_files
from whet.approval.person_request import GateCase, preview_changes
from whet.contract.changes import TextChange
from whet.contract.events import Emit, Notice
from whet.contract.protocols import Decision, GateCall
from whet.log import mask
from whet.visible import visible_line

if TYPE_CHECKING:  # importing it takes time, and most turns run no command
    from whet.approval.confined import JailGate

_CHANGED = "{subject} changed while the question was open. Call it again."
_MAX_PATH_CHARS = 200


class CallContent(msgspec.Struct, frozen=True):
    """What a call would use: the description of a foreign tool, and the state of each file by its path."""

    description: str = ""
    files: dict[str, str] = {}


def explain_change(shown: CallContent, current: CallContent) -> str:
    """Return why a call is refused whose content changed while a person decided, or an empty string if it is
    the same. Of changed files, the first is named and the others are counted."""
    if shown.description != current.description:
        return _CHANGED.format(subject="The tool")
    paths = sorted(path for path, _ in shown.files.items() ^ current.files.items())
    paths = list(dict.fromkeys(paths))
    if not paths:
        return ""
    subject = visible_line(mask(paths[0]), _MAX_PATH_CHARS)
    if len(paths) > 1:
        subject += f" and {len(paths) - 1} more {'file' if len(paths) == 2 else 'files'}"
    return _CHANGED.format(subject=f"The command may run {subject}, which")


class HeldJobs:
    """Stops what runs in sandboxes for the time of a question. Without `jails`, nothing runs in one.

    `root_of` returns the session that a person talks to.
    """

    def __init__(self, jails: Callable[[], JailGate] | None, root_of: Callable[[str], str]) -> None:
        self._jails, self._root_of = jails, root_of
        self._was_used = False

    async def stop(self, case: GateCase, emit: Emit) -> None:
        """Stop what could change files under a call that will run outside the sandbox."""
        if self._jails is None or case.jailed is None or not case.jailed.leaves:
            return
        self._was_used = True
        root = self._root_of(case.call.session_id)
        if line := await self._jails().stop_jobs(case.call, lambda other: self._root_of(other) == root):
            emit(Notice(line, must_show=True))

    async def preview(self, case: GateCase, emit: Emit) -> tuple[TextChange, ...]:
        """Stop what could change files, and return the changes that a call would write. Raises ToolError."""
        await self.stop(case, emit)
        return await preview_changes(case.call)

    async def decide(self, call: GateCall, judge: Callable[[], Awaitable[Decision]]) -> Decision:
        """Let `judge` decide on a call, and let continue what was stopped for it, unless it runs now.

        Then the tool does so, and in any case the end of the turn.
        """
        runs = False
        try:
            decision = await judge()
            runs = decision.verdict == "allow"
            return decision
        finally:
            if self._was_used and self._jails is not None:
                resume = partial(self._jails().resume_jobs, call.session_id, call.call.id)
                task = asyncio.current_task()
                if runs and task is not None:
                    task.add_done_callback(lambda _: resume())
                else:
                    resume()


async def read_content(case: GateCase) -> CallContent:
    """Return the present description of a foreign tool, or the state of the files that a command may run.

    Of a command that would leave the sandbox, these are all that its text and their texts name, and unless it
    only reads, all files of the workspace but data; of others, only the scripts that its text names."""
    call = case.call
    if call.tool.content is not None:
        return CallContent(call.tool.content())
    if "command" not in call.tool.tags:
        return CallContent()
    from whet.shell.reading import read  # noqa: PLC0415  50 ms of CPU: tree-sitter

    folder = os.path.join(call.workspace, str(call.arguments.get("workdir") or ""))
    texts = [str(call.arguments.get(name) or "") for name in ("command", "stdin")]
    reading = read(texts[0])
    names = {word for part in reading.parts for word in part.scripts}
    stamps: dict[str, str] = {}
    if case.jailed is not None and case.jailed.leaves:
        from whet.approval.run_files import find_run_files  # noqa: PLC0415  for few questions
        from whet.approval.tree_stamps import may_run_files, stamp_tree  # noqa: PLC0415  for few questions

        paths = await asyncio.to_thread(find_run_files, Path(call.workspace), texts, Path(folder))
        names.update(map(str, paths))
        if may_run_files(reading) or texts[1]:
            stamps = await asyncio.to_thread(stamp_tree, call.workspace, case.scope)
    return CallContent(files=stamps | stamp_files(folder, names))
