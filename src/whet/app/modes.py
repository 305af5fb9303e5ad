"""The modes of a session decide what runs without a question: ask, plan or auto, for every interface."""

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
    """Set the mode from the next call on. Whether a session plans is stored with it; the other modes are
    those of the whole process. Returns lines for the person: the commands that run on when it plans."""
    if (mode == "plan") != services.gate.get().plans.has(session_id):
        await planning.set_planning(services, session_id, mode == "plan")
    if mode == "ask" or mode == "auto" or mode == "deny":
        services.gate.get().set_mode(mode)
    return planning.list_running(services) if mode == "plan" else []
