"""Run an agent with a tool that needs approval, by a scripted model; print what the tool did."""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai_agents_approval import run_with_approvals

from whet.confirm.client import ConfirmClient


class Scripted(Model):
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        outputs = [item for item in input if isinstance(item, dict) and "output" in item]
        if outputs:
            text = ResponseOutputText(type="output_text", text=str(outputs[0]["output"]), annotations=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse([message], Usage(), None)
        call = ResponseFunctionToolCall(
            id="f",
            type="function_call",
            call_id=sys.argv[1],
            name="delete",
            arguments=json.dumps({"path": "/srv/old"}),
        )
        return ModelResponse([call], Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


async def main() -> None:
    set_tracing_disabled(True)
    async with ConfirmClient() as client:
        result = await run_with_approvals(
            Agent(name="cleaner", tools=[delete], model=Scripted()), "go", client
        )
    print(result.final_output)


asyncio.run(main())
