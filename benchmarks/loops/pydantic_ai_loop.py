"""The same loop as a pydantic-ai agent with one tool, streaming. Not durable.

Run as: python pydantic_ai_loop.py BASE_URL STEPS
"""

import asyncio
import json
import resource
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from benchmarks.loops.peak import peak_mb


async def main(base_url: str, steps: int) -> None:
    provider = OpenAIProvider(base_url=base_url, api_key="practice")
    await provider.client.models.list()  # connect and load what is loaded late
    model = OpenAIChatModel(f"practice-steps-{steps}", provider=provider)
    agent = Agent(model, system_prompt="You are a test.")

    @agent.tool_plain
    def noop() -> str:
        """Do nothing."""
        return "ok"

    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    calls = 0
    limits = UsageLimits(request_limit=None)
    async with agent.iter("go", usage_limits=limits) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                calls += 1
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = usage.ru_utime + usage.ru_stime - cpu
    print(json.dumps({"calls": calls, "loop_cpu_s": spent, "rss_mb": peak_mb()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
