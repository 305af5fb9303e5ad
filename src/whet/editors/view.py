"""One turn's events as updates for the editor: text, thoughts, tool calls with their changes, the plan.

A call has an id of its own here, since models use theirs twice in a session. It asks nobody anything.
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

from whet.contract.events import (
    Compaction,
    ConfirmationAsked,
    Event,
    Notice,
    ReasoningDelta,
    Retry,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from whet.editors import tool_calls
from whet.editors.outbox import Outbox
from whet.editors.tool_calls import Content, Files
from whet.tools.todo import Item
from whet.visible import visible

_OUTPUT_CHARS = 8_000
_EVERY_S = 0.2


class Shown(msgspec.Struct):
    """A call that the editor knows of. `before`: the files that it may change, as they were."""

    id: str
    name: str
    arguments: dict[str, Any]
    before: Files
    output: str = ""
    sent_s: float = 0.0


class TurnView:
    """Shows one turn of one session."""

    def __init__(
        self,
        outbox: Outbox,
        session_id: str,
        workspace: Path,
        todo: Callable[[], list[Item]],
        clock_s: Callable[[], float],
        turn_key: str,
    ) -> None:
        self._outbox = outbox
        self._session_id = session_id
        self._workspace = workspace
        self._todo = todo
        self._clock_s = clock_s
        self._turn_key = turn_key
        self._calls: dict[str, Shown] = {}
        self._count = 0

    def emit(self, event: Event) -> None:
        """Take one event."""
        put = self._outbox.put
        match event:
            case TextDelta():
                put(self._session_id, update_agent_message_text(event.text))
            case ReasoningDelta():
                put(self._session_id, update_agent_thought_text(event.text))
            case ToolStarted():
                self._started(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                self._finished(event)
            case _:
                if line := aside(event):
                    self.think(line)

    def think(self, line: str) -> None:
        """Show a line beside the answer."""
        self._outbox.put(self._session_id, update_agent_thought_text(visible(line) + "\n"))

    def show(self, call_id: str, name: str, arguments: dict[str, Any], content: list[Content]) -> Shown:
        """Show a call that waits, and give what is known of it."""
        shown = self._known(call_id, name, arguments)
        update = start_tool_call(
            shown.id,
            tool_calls.title_of(name, arguments),
            kind=tool_calls.kind_of(name),
            status="pending",
            content=content or None,
            locations=tool_calls.locations(arguments, self._workspace),
            raw_input=arguments or None,
        )
        self._outbox.put(self._session_id, update)
        return shown

    def close(self, call_id: str, line: str, *, ok: bool) -> None:
        """End a call of which no more will be heard."""
        shown = self._calls.pop(call_id, None)
        if shown is not None:
            status = "completed" if ok else "failed"
            content = [tool_calls.said(line)]
            self._outbox.put(self._session_id, update_tool_call(shown.id, status=status, content=content))

    def files(self, name: str, arguments: dict[str, Any]) -> Files:
        """Read the files that a call may change."""
        return tool_calls.files_before(name, arguments, self._workspace)

    def _known(self, call_id: str, name: str, arguments: dict[str, Any]) -> Shown:
        self._count += 1
        shown = Shown(f"{self._turn_key}-{self._count}", name, arguments, {})
        self._calls[call_id] = shown
        return shown

    def _started(self, event: ToolStarted) -> None:
        arguments = tool_calls.arguments_of(event.arguments)
        shown = self._calls.get(event.call_id)
        if shown is None:
            shown = self.show(event.call_id, event.name, arguments, [])
        shown.before = self.files(event.name, arguments)
        self._outbox.put(self._session_id, update_tool_call(shown.id, status="in_progress"))

    def _progress(self, event: ToolProgress) -> None:
        shown = self._calls.get(event.call_id)
        if shown is None:
            return
        shown.output = (shown.output + event.text)[-_OUTPUT_CHARS:]
        if self._clock_s() - shown.sent_s >= _EVERY_S:
            shown.sent_s = self._clock_s()
            content = [tool_calls.said(shown.output)]
            self._outbox.put(self._session_id, update_tool_call(shown.id, content=content))

    def _finished(self, event: ToolFinished) -> None:
        shown = self._calls.get(event.call_id)
        if shown is None:
            self.show(event.call_id, event.name, tool_calls.arguments_of(event.arguments), [])
            shown = self._calls[event.call_id]
        del self._calls[event.call_id]
        content = tool_calls.changes(shown.before) if event.ok else []
        if not content:
            content = [tool_calls.said(shown.output or event.preview)]
        update = update_tool_call(
            shown.id,
            status="completed" if event.ok else "failed",
            content=content,
            raw_output={"error": event.error_kind, "exit_code": event.exit_code} if not event.ok else None,
        )
        self._outbox.put(self._session_id, update)
        if event.name == "todo" and event.ok:
            self._outbox.put(self._session_id, update_plan(tool_calls.plan(self._todo())))


def aside(event: Event) -> str:
    """Say in a line what happened beside the answer; empty where there is nothing to say."""
    match event:
        case Retry():
            return f"The model's server failed ({event.reason}); trying again in {event.wait_s:.0f} s."
        case StreamRestarted():
            return f"The stream broke ({event.reason}): the answer begins anew."
        case Compaction():
            return f"Compacted: {event.messages_before} messages became {event.messages_after}."
        case ConfirmationAsked():
            where = event.page_url or "the confirmation service"
            return f"{event.action} waits for a human's decision at {where}, for {event.expires_in_s:.0f} s."
        case Notice():
            return event.text
        case _:
            return ""
