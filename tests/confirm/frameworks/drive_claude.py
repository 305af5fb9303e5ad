"""Run Claude Code by its SDK, by a scripted model; its shell command waits for a person."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_approval import ask_person
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

from whet.confirm.client import ConfirmClient


async def main(folder: str) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "go"}}

    async with ConfirmClient() as client:
        options = ClaudeAgentOptions(can_use_tool=ask_person(client), cwd=folder, setting_sources=[])
        async with ClaudeSDKClient(options) as agent:
            await agent.query(prompts())
            async for _ in agent.receive_response():
                continue


asyncio.run(main(sys.argv[1]))
