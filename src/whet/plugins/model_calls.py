"""Hooks around a session's requests to its model: told of each request, of what streams in, and of its end.

transform_llm_output may change an answer before it is stored; what was streamed by then stays as it was
seen. The hooks of a stream get its text in pieces as they come. It knows no wire format.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import Message, to_dict
from whet.contract.protocols import ModelInfo, ModelLink, ModelReply, StreamItem
from whet.plugins.hooks import Hooks

NAMES = (
    "pre_api_request",
    "post_api_request",
    "api_request_error",
    "on_stream_start",
    "on_stream_delta",
    "on_stream_end",
    "on_interim_message",
    "transform_llm_output",
)


class ModelCallHooks:
    """The hooks around each request of one session. `turn_id` gives the turn under way."""

    def __init__(self, hooks: Hooks, facts: Mapping[str, str], turn_id: Callable[[], str]) -> None:
        self._hooks = hooks
        self._facts = facts
        self._turn_id = turn_id
        self._count = 0

    async def stream(self, link: ModelLink, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream over `link` and tell the hooks."""
        self._count += 1
        facts = self._about(link.info, messages)
        began_s = time.monotonic()
        await self._hooks.tell("pre_api_request", **facts, request_messages=_rows(messages))
        await self._hooks.tell("on_stream_start", **facts)
        try:
            async for item in link.stream(messages):
                if isinstance(item, ModelReply):
                    item = await self._ended(item, facts, began_s)
                elif isinstance(item, (TextDelta, ReasoningDelta)):
                    kind = "text" if isinstance(item, TextDelta) else "reasoning"
                    await self._hooks.tell("on_stream_delta", **facts, delta=item.text, kind=kind)
                yield item
        except ProviderError as error:
            failed = {"error": error.message, "reason": type(error).__name__, **_lasted(began_s)}
            await self._hooks.tell("api_request_error", **facts, **failed)
            await self._hooks.tell(
                "on_stream_end", **facts, final_text="", finished=False, error=error.message
            )
            raise

    async def _ended(self, reply: ModelReply, facts: Mapping[str, Any], began_s: float) -> ModelReply:
        text, calls = reply.message.text, reply.message.tool_calls
        await self._hooks.tell("on_stream_end", **facts, final_text=text, finished=True, error=None)
        await self._hooks.tell(
            "post_api_request",
            **facts,
            **_lasted(began_s),
            finish_reason="tool_calls" if calls else "stop" if reply.stop == "end" else "length",
            response_model=reply.model,
            usage=msgspec.to_builtins(reply.usage),
            assistant_message=to_dict(reply.message),
            assistant_content_chars=len(text),
            assistant_tool_call_count=len(calls),
        )
        if calls:
            if text:
                await self._hooks.tell("on_interim_message", **facts, text=text, already_streamed=True)
            return reply
        changed = await self._hooks.replace("transform_llm_output", "response_text", text, **facts)
        if changed == text or not changed:
            return reply
        # The vendor's own form of the answer says something else now.
        message = msgspec.structs.replace(reply.message, content=changed, replay=None)
        return msgspec.structs.replace(reply, message=message)

    def _about(self, info: ModelInfo, messages: Sequence[Message]) -> dict[str, Any]:
        return {
            **self._facts,
            "task_id": self._facts.get("session_id", ""),
            "turn_id": self._turn_id(),
            "surface": self._facts.get("platform", ""),
            "model": info.model,
            "provider": info.provider,
            "iteration": self._count,
            "api_call_count": self._count,
            "api_request_id": f"{self._turn_id()}.{self._count}",
            "message_count": len(messages),
        }


def _lasted(began_s: float) -> dict[str, float]:
    return {"api_duration": time.monotonic() - began_s}


def _rows(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [to_dict(row) for row in messages]
