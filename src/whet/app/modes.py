"""Read and set the mode of a session (ask, plan, auto), which decides which calls run without a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.app import planning
from whet.config.permission_settings import ApprovalMode

if TYPE_CHECKING:
    from whet.app.services import Services

MODES = ("ask", "plan", "auto")
ABOUT = {
    "ask": "ask before edits, and before commands leave the sandbox",
    "plan": "only read, and make a plan for you to approve",
    "auto": "ask only before what is dangerous",
    "deny": "deny whatever would be asked",
}


def read_mode(services: Services, session_id: str) -> str:
    """Return a session's current mode."""
    gate = services.gate.get()
    return "plan" if gate.plans.has(session_id) else gate.mode


async def set_mode(services: Services, session_id: str, mode: ApprovalMode | str) -> list[str]:
    """Set the mode from the next call on. Plan mode is stored with the session; the other modes apply to the
    whole process. Returns a line for each command that continues to run in plan mode."""
    if (mode == "plan") != services.gate.get().plans.has(session_id):
        await planning.set_planning(services, session_id, mode == "plan")
    if mode == "ask" or mode == "auto" or mode == "deny":
        services.gate.get().set_mode(mode)
    return await planning.list_running(services, session_id) if mode == "plan" else []
