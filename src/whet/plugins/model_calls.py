"""Call plugins' hooks around model requests: at the start, for each piece of streamed text, and at the end.

`ModelCallHooks` serves the requests of a session's turns, `SideCallHooks` those beside them.
transform_llm_output may change an answer before it is stored; text that was streamed before stays as shown.
This module is independent of wire formats.
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
_CHARS_A_TOKEN = 4


class ModelCallHooks:
    """The hooks around each request of one session. `turn_id` returns the current turn."""

    def __init__(self, hooks: Hooks, facts: Mapping[str, str], turn_id: Callable[[], str]) -> None:
        self._hooks = hooks
        self._facts = facts
        self._turn_id = turn_id
        self._count = 0

    async def stream(self, link: ModelLink, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream over `link` and call the hooks."""
        self._count += 1
        facts = self._request_facts(link.info, messages)
        began_s = time.monotonic()
        await self._hooks.call_all("pre_api_request", **facts, request_messages=_to_rows(messages))
        await self._hooks.call_all("on_stream_start", **facts)
        try:
            async for item in link.stream(messages):
                if isinstance(item, ModelReply):
                    item = await self._finish_stream(item, facts, began_s)
                elif isinstance(item, (TextDelta, ReasoningDelta)):
                    kind = "text" if isinstance(item, TextDelta) else "reasoning"
                    await self._hooks.call_all("on_stream_delta", **facts, delta=item.text, kind=kind)
                yield item
        except ProviderError as error:
            failed = {"error": error.message, "reason": type(error).__name__, **_duration_facts(began_s)}
            await self._hooks.call_all("api_request_error", **facts, **failed)
            await self._hooks.call_all(
                "on_stream_end", **facts, final_text="", finished=False, error=error.message
            )
            raise

    async def _finish_stream(self, reply: ModelReply, facts: Mapping[str, Any], began_s: float) -> ModelReply:
        text, calls = reply.message.text, reply.message.tool_calls
        await self._hooks.call_all("on_stream_end", **facts, final_text=text, finished=True, error=None)
        await self._hooks.call_all(
            "post_api_request",
            **facts,
            **_duration_facts(began_s),
            finish_reason=_finish_reason(reply),
            response_model=reply.model,
            usage=_describe_usage(reply),
            assistant_message=to_dict(reply.message),
            assistant_content_chars=len(text),
            assistant_tool_call_count=len(calls),
        )
        if calls:
            if text:
                await self._hooks.call_all("on_interim_message", **facts, text=text, already_streamed=True)
            return reply
        changed = await self._hooks.replace("transform_llm_output", "response_text", text, **facts)
        if changed == text or not changed:
            return reply
        # The vendor's own form of the answer no longer matches.
        message = msgspec.structs.replace(reply.message, content=changed, replay=None)
        return msgspec.structs.replace(reply, message=message)

    def _request_facts(self, info: ModelInfo, messages: Sequence[Message]) -> dict[str, Any]:
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


class SideCallHooks:
    """The hooks around requests beside the turns: summaries, and plugins' own model requests."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._count = 0
        self._is_calling = False

    async def stream(
        self, task: str, link: ModelLink, messages: Sequence[Message]
    ) -> AsyncIterator[StreamItem]:
        """Stream over `link` and call the hooks. `task` names the request's purpose."""
        self._count += 1
        rows = _to_rows(messages)
        facts: dict[str, Any] = {
            "aux_task": task,
            "api_request_id": f"aux-{self._count}",
            "model": link.info.model,
            "provider": link.info.provider,
            "message_count": len(rows),
            "approx_input_tokens": sum(len(message.text) for message in messages) // _CHARS_A_TOKEN,
        }
        began_s = time.monotonic()
        body = {"model": link.info.model, "messages": rows}
        await self._call_hooks("pre_auxiliary_call", **facts, request_messages=rows, request={"body": body})
        facts |= {"finish_reason": None, "usage": None, "response": None, "error": None}
        try:
            async for item in link.stream(messages):
                if isinstance(item, ModelReply):
                    usage = _describe_usage(item)
                    facts |= {"finish_reason": _finish_reason(item), "usage": usage}
                    facts["response"] = {"assistant_message": to_dict(item.message), "usage": usage}
                yield item
        except ProviderError as error:
            facts["error"] = error.message
            raise
        finally:
            await self._call_hooks("post_auxiliary_call", **facts, **_duration_facts(began_s))

    async def _call_hooks(self, hook: str, **facts: Any) -> None:
        """Call a hook, unless a hook is running: its own requests would call it again without end."""
        if self._is_calling:
            return
        self._is_calling = True
        try:
            await self._hooks.call_all(hook, **facts)
        finally:
            self._is_calling = False


def _finish_reason(reply: ModelReply) -> str:
    return "tool_calls" if reply.message.tool_calls else "stop" if reply.stop == "end" else "length"


def _describe_usage(reply: ModelReply) -> dict[str, Any]:
    """Return a reply's tokens under our names and under those that Hermes' plugins read."""
    usage = reply.usage
    more = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    return {**msgspec.to_builtins(usage), **more}


def _duration_facts(began_s: float) -> dict[str, float]:
    return {"api_duration": time.monotonic() - began_s}


def _to_rows(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [to_dict(row) for row in messages]
