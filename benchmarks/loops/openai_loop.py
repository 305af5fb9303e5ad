"""A loop on the official openai SDK, streaming. Not durable.

Run as: python openai_loop.py BASE_URL STEPS
"""

import asyncio
import json
import resource
import sys

from openai import AsyncOpenAI

from benchmarks.loops.peak import peak_mb

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "noop",
            "description": "Do nothing.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]


async def main(base_url: str, steps: int) -> None:
    client = AsyncOpenAI(base_url=base_url, api_key="practice")
    messages: list[dict] = [
        {"role": "system", "content": "You are a test."},
        {"role": "user", "content": "go"},
    ]
    calls = 0
    await client.models.list()  # connect and load what is loaded late
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    while True:
        stream = await client.chat.completions.create(
            model=f"practice-steps-{steps}", messages=messages, tools=TOOLS, stream=True
        )
        text, tool_calls = "", []
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    if part.id:
                        function = {"name": part.function.name, "arguments": part.function.arguments or ""}
                        tool_calls.append({"id": part.id, "type": "function", "function": function})
                    else:
                        tool_calls[-1]["function"]["arguments"] += part.function.arguments or ""
        calls += 1
        message = {"role": "assistant", "content": text}
        if tool_calls:
            message["tool_calls"] = tool_calls
        messages.append(message)
        if not tool_calls:
            break
        for call in tool_calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = usage.ru_utime + usage.ru_stime - cpu
    print(json.dumps({"calls": calls, "loop_cpu_s": spent, "rss_mb": peak_mb()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
