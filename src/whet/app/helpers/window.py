"""A session's background helpers as its model handles them: list, show, wait, steer, stop."""

from __future__ import annotations

from whet.app.helpers.runs import HelperRuns
from whet.app.helpers.turns import ended_output, title_of
from whet.contract.delegation import ProcessAction
from whet.contract.errors import ToolError
from whet.contract.tools import ToolContext, ToolOutput
from whet.store.helper_rows import HelperRow

_MAX_WAIT_S = 3_600.0


class HelperWindow:
    """Handles the helpers of a program's sessions for the sessions that started them."""

    def __init__(self, helpers: HelperRuns) -> None:
        self._desk = helpers

    async def listed(self, context: ToolContext) -> list[str]:
        """Return a line for each background helper of a session."""
        return [
            self.status_line(row)
            for row in await self._desk.helpers_of(context.session_id)
            if row.wish.background
        ]

    async def find_helper(self, parent_id: str, name: str) -> HelperRow:
        """Return a session's helper by its name. Raises ToolError."""
        rows = await self._desk.helpers_of(parent_id)
        helper = next((row for row in rows if row.name == name), None)
        if helper is None:
            raise ToolError(f"there is no {name}; known: {', '.join(row.name for row in rows) or 'none'}")
        return helper

    def status_line(self, row: HelperRow) -> str:
        """Return a helper's state in one line."""
        return f"{row.name} {self._state(row)}: {title_of(row.wish.task)}"

    def activity_lines(self, row: HelperRow) -> list[str]:
        """Return the last lines of a helper's activity, as far as it ran in this process, and its state."""
        at_work = self._desk.running_helper(row)
        return [*(at_work.lines if at_work is not None else ()), f"[{self.status_line(row)}]"]

    async def look_after(
        self, context: ToolContext, name: str, action: ProcessAction, text: str, timeout_s: float
    ) -> ToolOutput:
        """Show a helper, wait for it, send it a message, or stop it."""
        row = await self.find_helper(context.session_id, name)
        if action == "write":
            return self._steer(row, text)
        if action == "kill":
            return ended_output(await self._desk.stop(row), None)
        if action == "wait":
            row = await self._desk.wait(row, min(timeout_s, _MAX_WAIT_S) if timeout_s > 0 else _MAX_WAIT_S)
            if row.state == "ended":
                return await self._desk.merge_edits(row, ended_output)
        if row.state == "ended":
            return ended_output(row, None)
        return ToolOutput("\n".join(self.activity_lines(row)))

    def _steer(self, row: HelperRow, text: str) -> ToolOutput:
        at_work = self._desk.running_helper(row)
        if at_work is None or at_work.session is None:
            raise ToolError(f"it takes no message now: {self.status_line(row)}")
        at_work.session.steer(text)
        return ToolOutput(f"[{row.name} reads it before its next step]")

    def _state(self, row: HelperRow) -> str:
        """Return how far a helper is, in this process or another."""
        if row.state == "ended":
            return f"has ended ({row.reason})"
        at_work = self._desk.running_helper(row)
        if at_work is None:
            return "runs in another program" if row.owner and not self._desk.is_orphaned(row) else "rests"
        return "works" if at_work.session is not None else "waits for a place"
