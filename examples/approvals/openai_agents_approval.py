"""OpenAI Agents SDK: tools with `needs_approval=True` wait for a person in the confirmation service.

pip install whet-agent openai-agents
"""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, Runner, RunResult
from agents.items import ToolApprovalItem

from whet.confirm.client import ConfirmationRefused, ConfirmClient, ConfirmOptions


async def run_with_approvals(agent: Agent[Any], text: str, client: ConfirmClient) -> RunResult:
    """Run an agent to its end; the model reads why a call was refused."""
    result = await Runner.run(agent, text)
    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            if refusal := await _ask(item, client):
                state.reject(item, rejection_message=refusal)
            else:
                state.approve(item)
        result = await Runner.run(agent, state)
    return result


async def _ask(item: ToolApprovalItem, client: ConfirmClient) -> str:
    """Return why a call may not run, or an empty string."""
    arguments = json.loads(item.arguments or "{}")
    options = ConfirmOptions(requester=item.agent.name, idempotency_key=str(item.call_id or ""))
    try:
        await client.confirm(f"tool:{item.name}", f"The agent calls {item.name}", arguments, options)
    except ConfirmationRefused as error:
        return f"not confirmed: {error.message}"
    return ""
