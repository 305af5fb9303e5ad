"""A gate for a team's guests: they may run commands only in a sandbox, because all of them share the
worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from whet.contract.events import ApprovalDecided, Emit
from whet.contract.protocols import Decision, Gate, GateCall
from whet.contract.tools import ToolOutput

if TYPE_CHECKING:
    from whet.sandbox.status import EngineStatus

_REASON = (
    "A guest's commands run only where they are confined, and this worker confines none ({why}), so nothing"
    " was run. Do it without commands, or say that the administrator has to set sandbox.mode or"
    " sandbox.backend."
)


class GuestGate:
    """Denies a guest's commands if no sandbox confines them; other calls are decided by `gate`. `status`
    returns the state of this worker's sandbox."""

    def __init__(self, gate: Gate, status: Callable[[], EngineStatus]) -> None:
        self._gate = gate
        self._status = status

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide, as the Gate contract requires."""
        if "execute" not in call.tool.effects:
            return await self._gate.decide(call, emit)
        status = self._status()
        if status.holds:
            return await self._gate.decide(call, emit)
        reason = _REASON.format(why=status.line)
        emit(ApprovalDecided(call.call.id, "deny", "rule", reason))
        return Decision("deny", "rule", reason)

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Pass the result on to the gate."""
        await self._gate.report(call, output, emit)
