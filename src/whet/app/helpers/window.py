"""Let a session's model list, poll, await, steer and stop the session's background helpers."""

from __future__ import annotations

from whet.app.helpers.runs import HelperRuns
from whet.app.helpers.turns import ended_output, title_of
from whet.contract.delegation import ProcessAction
from whet.contract.errors import ToolError
from whet.contract.tools import ToolContext, ToolOutput
from whet.store.helper_rows import HelperRow

_MAX_WAIT_S = 3_600.0


class HelperWindow:
    """The helpers of a program, as the sessions that started them may use them."""

    def __init__(self, helpers: HelperRuns) -> None:
        self._helpers = helpers

    async def list_lines(self, context: ToolContext) -> list[str]:
        """Return a line for each background helper of a session."""
        return [
            self.status_line(row)
            for row in await self._helpers.helpers_of(context.session_id)
            if row.wish.background
        ]

    async def find_helper(self, parent_id: str, name: str) -> HelperRow:
        """Return a session's helper by its name. Raises ToolError."""
        rows = await self._helpers.helpers_of(parent_id)
        helper = next((row for row in rows if row.name == name), None)
        if helper is None:
            raise ToolError(f"there is no {name}; known: {', '.join(row.name for row in rows) or 'none'}")
        return helper

    def status_line(self, row: HelperRow) -> str:
        """Return a helper's state and task in one line."""
        return f"{row.name} {self._state(row)}: {title_of(row.wish.task)}"

    def activity_lines(self, row: HelperRow) -> list[str]:
        """Return the last lines of a helper's activity if it runs in this process, and its state."""
        helper = self._helpers.running_helper(row)
        return [*(helper.lines if helper is not None else ()), f"[{self.status_line(row)}]"]

    async def act(
        self, context: ToolContext, name: str, action: ProcessAction, text: str, timeout_s: float
    ) -> ToolOutput:
        """Poll a helper, wait for it, send it a message, or stop it. Raises ToolError."""
        row = await self.find_helper(context.session_id, name)
        if action == "write":
            return self._steer(row, text)
        if action == "kill":
            return ended_output(await self._helpers.stop(row), None)
        if action == "wait":
            row = await self._helpers.wait(row, min(timeout_s, _MAX_WAIT_S) if timeout_s > 0 else _MAX_WAIT_S)
            if row.state == "ended":
                return await self._helpers.merge_edits(row, ended_output)
        if row.state == "ended":
            return ended_output(row, None)
        return ToolOutput("\n".join(self.activity_lines(row)))

    def _steer(self, row: HelperRow, text: str) -> ToolOutput:
        helper = self._helpers.running_helper(row)
        if helper is None or helper.session is None:
            raise ToolError(f"it takes no message now: {self.status_line(row)}")
        helper.session.steer(text)
        return ToolOutput(f"[{row.name} reads it before its next step]")

    def _state(self, row: HelperRow) -> str:
        if row.state == "ended":
            return f"has ended ({row.reason})"
        helper = self._helpers.running_helper(row)
        if helper is None:
            return "runs in another program" if row.owner and not self._helpers.is_orphaned(row) else "rests"
        return "works" if helper.session is not None else "waits for a place"
