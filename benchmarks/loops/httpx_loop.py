"""A bare loop on httpx: the floor of what an async HTTP client costs. Not durable, no errors handled.

Run as: python httpx_loop.py BASE_URL STEPS
"""

import asyncio
import json
import resource
import sys

import httpx

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
    messages: list[dict] = [
        {"role": "system", "content": "You are a test."},
        {"role": "user", "content": "go"},
    ]
    calls = 0
    async with httpx.AsyncClient(timeout=60) as client:
        await client.get(f"{base_url}/models")  # connect and load what is loaded late
        cpu = start()
        while True:
            body = {"model": f"practice-steps-{steps}", "messages": messages, "tools": TOOLS, "stream": True}
            text, tool_calls = "", []
            async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    for choice in json.loads(line[6:])["choices"]:
                        delta = choice["delta"]
                        text += delta.get("content") or ""
                        for part in delta.get("tool_calls") or []:
                            if part.get("id"):
                                tool_calls.append(
                                    {"id": part["id"], "type": "function", "function": {**part["function"]}}
                                )
                            else:
                                tool_calls[-1]["function"]["arguments"] += part["function"]["arguments"]
            calls += 1
            message = {"role": "assistant", "content": text}
            if tool_calls:
                message["tool_calls"] = tool_calls
            messages.append(message)
            if not tool_calls:
                break
            for call in tool_calls:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
        report(cpu, calls)


def start() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def report(cpu: float, calls: int) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = usage.ru_utime + usage.ru_stime - cpu
    print(json.dumps({"calls": calls, "loop_cpu_s": spent, "rss_mb": peak_mb()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
