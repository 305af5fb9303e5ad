"""Run tools inside plugins' functions that were registered by `register_middleware("tool_execution", ...)`.

Such a function receives the call and `next_call`, which runs the tool once, with the arguments that the
gate judged, and returns its text. The function's return value is the result. The call fails if the function
fails, because the function may be a guard.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from whet.contract.errors import PluginError, ToolError
from whet.contract.tools import Handler, Tool, ToolContext, ToolOutput
from whet.plugins.calls import accepted_keywords, attribute_errors, call
from whet.plugins.hooks import Hooks
from whet.plugins.parts import Hook
from whet.plugins.tools import to_output

_SCHEMA = "hermes.middleware.v1"


def add_middleware(tool: Tool, hooks: Hooks) -> Tool:
    """Return the tool with the plugins' functions around each run, the first plugin's outermost."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        facts: dict[str, Any] = {
            "tool_name": tool.name,
            "original_args": copy.deepcopy(arguments),
            "session_id": context.session_id,
            "task_id": context.session_id,
            "turn_id": context.turn_id,
            "tool_call_id": context.call_id,
            "middleware_schema_version": _SCHEMA,
        }
        inner = tool.run
        for hook in reversed(hooks.hooks_named("tool_execution")):
            inner = _wrap_handler(hook, inner, facts)
        return await inner(context, arguments)

    return msgspec.structs.replace(tool, run=run)


def _wrap_handler(hook: Hook, inner: Handler, facts: Mapping[str, Any]) -> Handler:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        single_run = _SingleRun(arguments)
        keywords = {**facts, "args": copy.deepcopy(arguments), "next_call": single_run.next_call}
        task = asyncio.ensure_future(call(hook.function, **accepted_keywords(hook.function, keywords)))
        output: ToolOutput | None = None
        try:
            with attribute_errors(hook.plugin, hook.name):
                await asyncio.wait({task, single_run.asked}, return_when=asyncio.FIRST_COMPLETED)
                if single_run.asked.done():
                    output = await single_run.run_tool(inner(context, arguments))
                result = await task
        except PluginError as error:
            text = f"the plugin {hook.plugin} failed around this call: {error.message}"
            raise ToolError(text if output is None else f"{text} (the tool had run)") from error
        finally:
            single_run.end()
            task.cancel()
        return output if output is not None and result == output.text else to_output(result)

    return run


class _SingleRun:
    """Lets one function run the tool once. The tool runs in the turn's own task, so that a cancel reaches
    it."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._arguments = arguments
        self._judged = copy.deepcopy(dict(arguments))
        self._lock = threading.Lock()
        self._is_used = False
        self._answer: concurrent.futures.Future[str] = concurrent.futures.Future()
        self.asked: asyncio.Future[None] = self._loop.create_future()

    def next_call(self, args: object = None, **more: object) -> Any:
        """Run the tool and return its text, or an awaitable of the text in the event loop's thread.

        Raises RuntimeError for a second call and for arguments that the gate has not judged.
        """
        del more
        with self._lock:
            if self._is_used:
                raise RuntimeError("next_call runs the tool once")
            self._is_used = True
        if args is not None and args != self._judged:
            raise RuntimeError("the gate has judged other arguments: a tool_request can change them before")
        self._loop.call_soon_threadsafe(self._request)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._answer.result()
        return asyncio.wrap_future(self._answer)

    def _request(self) -> None:
        if not self.asked.done():
            self.asked.set_result(None)

    async def run_tool(self, run: Any) -> ToolOutput:
        """Run the tool and pass its text, or its exception, to the waiting caller."""
        try:
            output: ToolOutput = await run
        except BaseException as error:
            self._answer.set_exception(error if isinstance(error, Exception) else RuntimeError("cancelled"))
            raise
        self._answer.set_result(output.text)
        return output

    def end(self) -> None:
        """Raise an error in a caller that still waits."""
        if not self._answer.done():
            self._answer.set_exception(RuntimeError("the call is over"))
        self.asked.cancel()
