"""Claude Agent SDK: tool calls that its own rules don't allow wait for a person in the confirmation service.

pip install whet-agent claude-agent-sdk

ClaudeAgentOptions(can_use_tool=ask_person(ConfirmClient()))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from whet.confirm.client import ConfirmationRefused, ConfirmClient, ConfirmOptions

Answer = PermissionResultAllow | PermissionResultDeny


def ask_person(
    client: ConfirmClient, timeout_s: int = 300
) -> Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[Answer]]:
    """Return a `can_use_tool` that allows exactly what a person approved."""
    options = ConfirmOptions(requester="claude-agent-sdk", timeout_s=timeout_s)

    async def can_use_tool(tool: str, arguments: dict[str, Any], _: ToolPermissionContext) -> Answer:
        try:
            await client.confirm(f"tool:{tool}", f"The agent calls {tool}", arguments, options)
        except ConfirmationRefused as error:
            return PermissionResultDeny(message=f"not confirmed: {error.message}")
        return PermissionResultAllow(updated_input=arguments)

    return can_use_tool
