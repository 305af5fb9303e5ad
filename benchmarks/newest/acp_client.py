"""Runs in the ACP SDK's environment: `acp_client.py COMMAND PROMPT` asks an agent once and prints its text.

It allows what the agent asks for. It imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from typing import Any

import acp


class Client:
    """Print the agent's text, and allow its calls once."""

    def on_connect(self, conn: Any) -> None:
        """Do nothing."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Print a piece of the answer."""
        if update.session_update == "agent_message_chunk":
            print(update.content.text, end="", flush=True)

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        """Allow the call once."""
        option = next(option for option in options if option.kind == "allow_once")
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return acp.RequestPermissionResponse(outcome=outcome)


async def main() -> None:
    """Start the agent, open a session in the current folder, and send the prompt."""
    program, *arguments = shlex.split(sys.argv[1])
    client: Any = Client()
    async with acp.spawn_agent_process(client, program, *arguments, env=dict(os.environ)) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        await agent.prompt(prompt=[acp.text_block(sys.argv[2])], session_id=session.session_id)


asyncio.run(main())
