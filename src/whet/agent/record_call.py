"""Record one call: store its start and result, and show both once they are stored.

From a tool's output this module makes the text for the model, the stored facts and the event for the person.
An event is shown only after its commit.
"""

from __future__ import annotations

import msgspec

from whet.agent.plan_call import PlannedCall, RunnableCall
from whet.agent.repeated_calls import note_repetition, read_last_change
from whet.agent.session import Session, StoppedCall
from whet.contract.changes import FileEdit
from whet.contract.events import Emit, Event, ToolFinished, ToolProgress, ToolStarted
from whet.contract.messages import Message, TextPart
from whet.contract.protocols import Gate
from whet.contract.tools import Tool, ToolOutput, clip
from whet.question import list_edits
from whet.store.transcript import TurnRecord

_MAX_ARGUMENT_CHARS = 4_000
_SHOWN_CHARS = 400
_MAX_PRINTED_CHARS = 60_000
_ANSWER_CUT = (
    "\n[Whet: your answer reached its output limit before this call was complete. Write less at once.]"
)


class CallRecord:
    """The record of a planned call: whether its start is stored, and the events that wait until it is."""

    def __init__(self, session: Session, turn: TurnRecord, item: PlannedCall, emit: Emit) -> None:
        self._session, self._turn, self._item = session, turn, item
        self.gate: Gate = session.gate
        self._is_stored = False
        self._is_shown = False
        self._emit = emit
        self._held: list[Event] = []
        self._printed = ""

    async def store_start(self) -> None:
        """Store the start, then show it."""
        await self._session.log.store_call_start(self._turn, self._item.open_call, self._item.decided_by)
        self._is_stored = True
        self._show_start()

    def show_progress(self, text: str) -> None:
        """Show live text of the call, or hold it until the start has been shown."""
        self._printed = (self._printed + text)[-_MAX_PRINTED_CHARS:]
        event = ToolProgress(self._item.open_call.call.id, text)
        if self._is_shown:
            self._emit(event)
        else:
            self._held.append(event)

    def keep_stopped(self, duration_s: float) -> None:
        """Keep what the call had printed when it was stopped, for its result."""
        call_id = self._item.open_call.call.id
        self._session.stopped[call_id] = StoppedCall(self._printed, duration_s)

    async def finish(self, output: ToolOutput, duration_s: float) -> None:
        """Store the result, with the start if that is not stored yet; then report it to the gate and show
        it."""
        item, call, question = self._item, self._item.open_call.call, self._item.question
        text = clip(output.text, question.tool.output_cap_chars if question else 2_000)
        if output.error_kind == "bad_input" and self._turn.cut_step == self._turn.steps:
            text += _ANSWER_CUT
        changes = tuple(change for change in output.changes if not change.is_empty)
        output = msgspec.structs.replace(output, changes=changes)
        clipped = msgspec.structs.replace(output, text=text)
        text = note_repetition(
            self._session.log.messages,
            call.id,
            clipped,
            duration_s,
            self._turn.steps,
            lambda: read_last_change(self._session, self._turn),
        )
        content = (TextPart(text), *output.images) if output.images else text
        result = Message(
            role="tool",
            content=content,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=output.is_error,
            origin=output.origin,
        )
        edits = list_edits(output.changes)
        if question is not None and self._has_effects(question.tool, output):
            output = add_facts(self._session, (question.tool, question.arguments), output, edits)
        is_run = isinstance(item, RunnableCall)
        await self._session.log.store_call_result(
            self._turn,
            item.open_call,
            result,
            output=output,
            duration_s=duration_s,
            decided_by=item.decided_by if is_run and not self._is_stored else "",
        )
        if is_run:
            self._show_start()
        if question is not None and (item.decided_by == "service" or output.error_kind == "interrupted"):
            await self._session.gate.report(question, output, self._emit)
        shown, shown_arguments = _shown_text(item, text, output.error_kind)
        self._emit(
            ToolFinished(
                call.id,
                call.name,
                duration_s,
                output.error_kind,
                output.exit_code,
                shown,
                shown_arguments,
                edits,
            )
        )

    def _show_start(self) -> None:
        """Show the start once, followed by the events that waited for it."""
        if not self._is_shown:
            self._is_shown = True
            call, ran = self._item.open_call.call, self._item.open_call.ran
            for event in (ToolStarted(call.id, call.name, ran or call.arguments), *self._held):
                self._emit(event)

    def _has_effects(self, tool: Tool, output: ToolOutput) -> bool:
        # an interrupted call may have run before the crash
        may_have_run = isinstance(self._item, RunnableCall) or output.error_kind == "interrupted"
        return may_have_run and bool(output.changes or tool.effects - {"read"})


def add_facts(
    session: Session,
    ran: tuple[Tool, dict[str, object]],
    output: ToolOutput,
    edits: tuple[FileEdit, ...] = (),
) -> ToolOutput:
    """Return the output with the facts to store of its call. `ran` is the tool and arguments that ran."""
    from whet.agent.facts import derive_facts  # noqa: PLC0415 - 2 ms, and most calls only read

    facts = derive_facts(*ran, output, edits, session.workspace)
    return msgspec.structs.replace(output, facts=facts) if facts else output


def note_changed_arguments(ran: str, text: str) -> str:
    """Prefix a result with the arguments that ran, for a model that wrote different ones."""
    ran = clip(ran, _MAX_ARGUMENT_CHARS)
    return f"[The person changed this call before allowing it. These arguments ran: {ran}]\n{text}"


def _shown_text(item: PlannedCall, text: str, error_kind: str) -> tuple[str, str]:
    """Return a result's text for the person, and the call's arguments if its start was not shown."""
    # A failing command ends with its error; the beginning of other outputs says most.
    shown = text[-_SHOWN_CHARS:] if error_kind == "exit" else text[:_SHOWN_CHARS]
    if isinstance(item, RunnableCall):
        return shown, ""
    return item.notice or shown, item.open_call.call.arguments
