"""Send one turn's events to the editor as updates: text, thoughts, tool calls with their changes, the plan.

Calls get new ids, because models reuse theirs within a session. This module asks no questions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from acp import (
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import Cost, UsageUpdate

from whet.contract.events import (
    Compaction,
    ConfirmationAsked,
    Event,
    Notice,
    ReasoningDelta,
    Retry,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from whet.contract.messages import Message, Usage
from whet.contract.texts import mark_as_model_question, parse_arguments, round_amount
from whet.contract.tools import tags_of
from whet.editors import tool_calls
from whet.editors.buffers import EditorBuffers
from whet.editors.outbox import Outbox
from whet.editors.tool_calls import Content, Files
from whet.tools.todo import TodoItem
from whet.tools.toolsets.planning import CLARIFY
from whet.visible import visible

_OUTPUT_CHARS = 8_000
_OUTPUT_EVERY_S = 0.2


class ShownCall(msgspec.Struct):
    """A call that the editor shows. `before` has the files that it may change, as they were."""

    id: str
    name: str
    arguments: dict[str, Any]
    before: Files
    output: str = ""
    sent_s: float = 0.0


class Scene(msgspec.Struct, frozen=True):
    """The context of a turn's view.

    `todo` returns the agent's todo list. `usage` returns the context window in tokens and the session's
    cost, which is None if unknown. `result_of` returns the stored result of a call, or None.
    """

    session_id: str
    workspace: Path
    buffers: EditorBuffers
    todo: Callable[[], list[TodoItem]]
    usage: Callable[[], tuple[int, float | None]]
    result_of: Callable[[str], Message | None] = lambda _call_id: None


class EditorTurnView:
    """Shows one turn of a session. `turn_key` distinguishes its calls from those of other turns."""

    def __init__(self, outbox: Outbox, scene: Scene, clock_s: Callable[[], float], turn_key: str) -> None:
        self._outbox = outbox
        self._session_id = scene.session_id
        self._scene = scene
        self._clock_s = clock_s
        self._turn_key = turn_key
        self._calls: dict[str, ShownCall] = {}
        self._count = 0

    def emit(self, event: Event) -> None:
        """Send the update for one event."""
        send = self._outbox.send
        match event:
            case TextDelta():
                send(self._session_id, update_agent_message_text(event.text))
            case ReasoningDelta():
                send(self._session_id, update_agent_thought_text(event.text))
            case ToolStarted():
                self._start_call(event)
            case ToolProgress():
                self._update_call(event)
            case ToolFinished():
                self._finish_call(event)
            case StepFinished():
                self._report_usage(event.usage)
            case _:
                if line := side_note(event):
                    self.think(line)

    def think(self, line: str) -> None:
        """Show a line beside the answer."""
        self._outbox.send(self._session_id, update_agent_thought_text(visible(line) + "\n"))

    def show(self, call_id: str, name: str, arguments: dict[str, Any], content: list[Content]) -> ShownCall:
        """Show a waiting call and return it."""
        call = self._add_call(call_id, name, arguments)
        update = start_tool_call(
            call.id,
            tool_calls.title_of(name, arguments),
            kind=tool_calls.kind_of(name),
            status="pending",
            content=content or None,
            locations=tool_calls.locations(arguments, self._scene.workspace),
            raw_input=arguments or None,
        )
        self._outbox.send(self._session_id, update)
        return call

    def question_call(self, question: str) -> tuple[ShownCall, str]:
        """Return the shown call that asks a question. If it is new, its id, which must be closed, comes
        second."""
        for call in self._calls.values():
            text = str(call.arguments.get("question", "")).strip()
            if "asks" in tags_of(call.name) and mark_as_model_question(text) == question:
                return call, ""
        key = f"question {question}"
        return self.show(key, CLARIFY, {"question": question}, []), key

    def close(self, call_id: str, line: str, *, ok: bool) -> None:
        """End a call that gets no further events."""
        call = self._calls.pop(call_id, None)
        if call is not None:
            status = "completed" if ok else "failed"
            content = [tool_calls.text_content(line)]
            self._outbox.send(self._session_id, update_tool_call(call.id, status=status, content=content))

    def _add_call(self, call_id: str, name: str, arguments: dict[str, Any]) -> ShownCall:
        self._count += 1
        call = ShownCall(f"{self._turn_key}-{self._count}", name, arguments, {})
        self._calls[call_id] = call
        return call

    def _start_call(self, event: ToolStarted) -> None:
        arguments = parse_arguments(event.arguments)
        call = self._calls.get(event.call_id)
        if call is None:
            call = self.show(event.call_id, event.name, arguments, [])
        call.before = tool_calls.files_before(event.name, arguments, self._scene.workspace)
        self._outbox.send(self._session_id, update_tool_call(call.id, status="in_progress"))

    def _update_call(self, event: ToolProgress) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            return
        call.output = (call.output + event.text)[-_OUTPUT_CHARS:]
        if self._clock_s() - call.sent_s >= _OUTPUT_EVERY_S:
            call.sent_s = self._clock_s()
            content = [tool_calls.text_content(call.output)]
            self._outbox.send(self._session_id, update_tool_call(call.id, content=content))

    def _finish_call(self, event: ToolFinished) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            self.show(event.call_id, event.name, parse_arguments(event.arguments), [])
            call = self._calls[event.call_id]
        del self._calls[event.call_id]
        replaced = self._scene.buffers.take_writes() if call.before else {}
        content = tool_calls.changes(call.before, replaced) if event.ok else []
        if not content:
            content = [tool_calls.text_content(call.output or event.preview)]
        if (result := self._scene.result_of(event.call_id)) is not None:
            content += tool_calls.image_contents(result)
        update = update_tool_call(
            call.id,
            status="completed" if event.ok else "failed",
            content=content,
            raw_output={"error": event.error_kind, "exit_code": event.exit_code} if not event.ok else None,
        )
        self._outbox.send(self._session_id, update)
        if "tasks" in tags_of(event.name) and event.ok:
            self._outbox.send(self._session_id, update_plan(tool_calls.plan(self._scene.todo())))

    def _report_usage(self, usage: Usage) -> None:
        """Report the use of the context window after the last request and its answer."""
        window_tokens, cost_usd = self._scene.usage()
        if window_tokens <= 0:
            return
        update = UsageUpdate(
            session_update="usage_update",
            used=usage.total_tokens or usage.prompt_tokens + usage.output_tokens,
            size=window_tokens,
            cost=None if cost_usd is None else Cost(amount=round_amount(cost_usd), currency="USD"),
        )
        self._outbox.send(self._session_id, update)


def side_note(event: Event) -> str:
    """Return a line for an event beside the answer, or ""."""
    match event:
        case Retry():
            return f"The model's server failed ({event.reason}); trying again in {event.wait_s:.0f} s."
        case StreamRestarted():
            return f"The stream broke ({event.reason}): the answer starts over."
        case Compaction():
            return f"Compacted: {event.messages_before} messages became {event.messages_after}."
        case ConfirmationAsked():
            return f"{event.text}, for {event.expires_in_s:.0f} s."
        case Notice():
            return event.text
        case _:
            return ""
