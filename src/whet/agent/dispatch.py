"""Gate the calls of one reply in order, run those that are allowed, and store each start and result at once.

A tool failure becomes a result that the model reads; only store failures leave this module. It is one of
the few modules that may catch everything. It knows no tool by name and no policy.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from whet.agent.interruption import TurnClock, finish_shielded
from whet.agent.session import CallRound, Session, TurnObserver, shell_folder
from whet.contract.changes import FileEdit, TextChange, call_digest, changes_digest
from whet.contract.errors import BadInput, StoreError, ToolError
from whet.contract.events import Emit, Event, ToolFinished, ToolProgress, ToolStarted
from whet.contract.messages import Message, TextPart, ToolCall
from whet.contract.protocols import CallPreview, Decision, GateCall
from whet.contract.receipts import CallEffects
from whet.contract.texts import NOT_JSON
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip
from whet.question import edits_of
from whet.store.transcript import OpenCall, TurnRecord

log: logging.Logger = logging.getLogger("whet.dispatch")
_REPEATS_ALLOWED = 3
_AT_ONCE_S = 0.02
_EDITED_CHARS = 4_000

INTERRUPTED = (
    "Interrupted: the program stopped while this call was running, so its outcome is unknown. "
    "It was not run again. Check what it did before you repeat it."
)


_GONE = ToolOutput(
    "Nothing was run: the folder that the last command ended in is gone. The next begins in the workspace.",
    error_kind="failed",
    facts=msgspec.json.encode(CallEffects(folder="")).decode(),
)


class RunnableCall(msgspec.Struct, frozen=True):
    """A call that the gate allowed. The tool runs with the arguments of `question`: the person may have
    changed them."""

    open_call: OpenCall
    question: GateCall
    decision: Decision

    @property
    def decided_by(self) -> str:
        """Return who allowed the call."""
        return self.decision.decided_by


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call whose output is known without running it. `question` is the gate's question, or None if the
    call names no tool or its arguments can't be read. `notice` is the text that a person reads instead
    of the output."""

    open_call: OpenCall
    output: ToolOutput
    question: GateCall | None = None
    decided_by: str = "rule"
    notice: str = ""


PlannedCall = RunnableCall | AnsweredCall


async def dispatch(session: Session, turn: TurnRecord, emit: Emit, clock: TurnClock) -> None:
    """Store exactly one result for every open call of the last reply. Calls whose tools may overlap run
    together; results are stored in the model's order."""
    open_calls = session.log.open_calls(turn)
    planned: list[PlannedCall] = []
    for open_call in open_calls:
        tool = session.tools.get(open_call.call.name)
        if tool is not None and (
            tool.tags & {"edits"} or ("command" in tool.tags and _runs_commands(planned))
        ):
            # The person sees what this call would write and where it starts, so the calls before it must have
            # finished.
            await _run_all(session, turn, planned, emit, clock)
            planned = []
        planned.append(await _plan(session, turn, open_call, emit, clock))
    await _run_all(session, turn, planned, emit, clock)
    session.log.live.fold_results()


async def _run_all(
    session: Session, turn: TurnRecord, planned: Sequence[PlannedCall], emit: Emit, clock: TurnClock
) -> None:
    observations = await _notify_observers(session, turn, planned, emit)
    try:
        for batch in _batches(planned):
            if len(batch) == 1:  # a task costs more than most calls that it would run
                await _run_one(session, turn, batch[0], emit, clock)
                continue
            try:
                async with asyncio.TaskGroup() as group:
                    for item in batch:
                        group.create_task(_run_one(session, turn, item, emit, clock))
            except* StoreError as errors:
                raise errors.exceptions[0] from None
    finally:
        for observer, token in reversed(observations):
            if token is not None:
                await finish_shielded(observer.after_calls(session, token, emit))


async def _notify_observers(
    session: Session, turn: TurnRecord, planned: Sequence[PlannedCall], emit: Emit
) -> list[tuple[TurnObserver, object]]:
    """Notify the observers before the calls run, and return each observer with its token for
    `after_calls`."""
    running = [item for item in planned if isinstance(item, RunnableCall)]
    if not running:
        return []
    calls = CallRound(turn.number, running[0].open_call.step, [item.question.tool for item in running])
    return [(observer, await observer.before_calls(session, calls, emit)) for observer in session.observers]


def _batches(planned: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Split the calls in the model's order: neighbours that may overlap together, every other call alone."""
    batches: list[list[PlannedCall]] = []
    overlapping = False
    for item in planned:
        parallel = isinstance(item, AnsweredCall) or item.question.tool.parallel
        if overlapping and parallel:
            batches[-1].append(item)
        else:
            batches.append([item])
        overlapping = parallel
    return batches


async def _plan(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, clock: TurnClock
) -> PlannedCall:
    call = open_call.call
    tool = session.tools.get(call.name)
    if tool is None:
        return AnsweredCall(
            open_call, ToolOutput(_unknown_tool(session, call.name), error_kind="unknown_tool")
        )
    try:
        tool, arguments = resolve_tool(session, tool, arguments_of(call))
    except ToolError as error:
        return AnsweredCall(open_call, _error_output(error))
    placed = _add_shell_folder(session, open_call, tool, arguments)
    if placed is None:
        return AnsweredCall(open_call, _GONE)
    written, (open_call, arguments) = call.arguments, placed
    call = open_call.call
    context = _context(session, turn, open_call, emit, clock)
    question = GateCall(
        session.id,
        call,
        tool,
        arguments,
        str(session.workspace),
        context.key,
        _previewer(tool, context),
        context.turn_id,
    )
    if open_call.started and not tool.repeatable:
        return AnsweredCall(open_call, ToolOutput(INTERRUPTED, error_kind="interrupted"), question)
    if _fails_repeatedly(session.log.messages, call.name, written):
        text = f"This exact call failed {_REPEATS_ALLOWED} times in a row and was not run again. Change it."
        return AnsweredCall(open_call, ToolOutput(text, error_kind="failed"), question)
    try:
        decision = await _decide(session, question, emit, clock)
    except ToolError as error:
        return AnsweredCall(open_call, _error_output(error), question)
    if decision.verdict != "allow":
        denied = ToolOutput(decision.reason or "Denied.", error_kind="denied")
        return AnsweredCall(open_call, denied, question, decision.decided_by, decision.told)
    if decision.arguments is not None:
        question = msgspec.structs.replace(question, arguments=decision.arguments)
        ran = msgspec.json.encode(decision.arguments).decode()
        open_call = msgspec.structs.replace(open_call, ran=ran)
    return RunnableCall(open_call, question, decision)


def arguments_of(call: ToolCall) -> dict[str, object]:
    """Return a call's arguments. Raises BadInput if they are not a JSON object."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
        if not isinstance(arguments, dict):
            raise msgspec.DecodeError("arguments must be a JSON object")
        return cast("dict[str, object]", arguments)
    except NOT_JSON as error:
        raise BadInput(
            f"The arguments are not a JSON object ({error}). Nothing was run."
            f" You wrote: {clip(call.arguments, 300)}"
        ) from None


def resolve_tool(
    session: Session, tool: Tool, arguments: dict[str, object]
) -> tuple[Tool, dict[str, object]]:
    """Return the tool and arguments that a call stands for, which are the ones that gate, hooks and person
    see. Raises ToolError if the session does not have that tool."""
    if tool.stands_for is None:
        return tool, arguments
    name, arguments_given = tool.stands_for(arguments)
    target = session.tools.get(name)
    if target is None or target.stands_for is not None:
        raise BadInput(f"{name} can't be called in this session")
    return target, arguments_given


def _runs_commands(planned: Sequence[PlannedCall]) -> bool:
    return any(isinstance(item, RunnableCall) and "command" in item.question.tool.tags for item in planned)


def _add_shell_folder(
    session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]
) -> tuple[OpenCall, dict[str, object]] | None:
    """Add the shell's current folder to a command that names no folder, so that what is judged, shown and
    hashed is what runs. Return None if that folder no longer exists."""
    if "command" not in tool.tags or arguments.get("workdir") or not (folder := shell_folder(session.log)):
        return open_call, arguments
    if not open_call.started and not (session.workspace / folder).is_dir():
        return None
    arguments = {**arguments, "workdir": folder}
    if tool.name == open_call.call.name:  # a call through another tool has it in its own arguments
        written = msgspec.json.encode(arguments).decode()
        call = msgspec.structs.replace(open_call.call, arguments=written)
        open_call = msgspec.structs.replace(open_call, call=call)
    return open_call, arguments


def _previewer(tool: Tool, context: ToolContext) -> CallPreview:
    async def preview(arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        if tool.check is not None:
            tool.check(arguments)
        return await tool.preview(context, arguments) if tool.preview is not None else ()

    return preview


async def _decide(session: Session, question: GateCall, emit: Emit, clock: TurnClock) -> Decision:
    with clock.paused():
        try:
            return await session.gate.decide(question, emit)
        except ToolError:
            raise  # the call itself is invalid: the model reads why, and no one was asked
        except Exception as error:
            log.exception("the gate failed")
            return Decision("deny", "rule", f"The approval gate failed ({error}), so nothing was run.")


async def _run_one(
    session: Session, turn: TurnRecord, item: PlannedCall, emit: Emit, clock: TurnClock
) -> None:
    call, question = item.open_call.call, item.question
    begun: _RunningCall | None = None
    if isinstance(item, AnsweredCall):
        output, duration_s = item.output, 0.0
    else:
        begun = _RunningCall(session, turn, item, emit)
        began_s = session.clock.monotonic_s() - clock.paused_s
        try:
            output = await _run_stored(begun, clock)
        except asyncio.CancelledError:
            if item.decided_by == "service":
                cut = ToolOutput("It was stopped while it ran.", error_kind="interrupted")
                await finish_shielded(session.gate.report(item.question, cut, emit))
            raise
        duration_s = max(0.0, session.clock.monotonic_s() - clock.paused_s - began_s)
    text = clip(output.text, question.tool.output_cap_chars if question else 2_000)
    content = (TextPart(text), *output.images) if output.images else text
    result = Message(
        role="tool", content=content, tool_call_id=call.id, tool_name=call.name, is_error=output.is_error
    )
    edits = edits_of(output.changes)
    if question is not None and _has_effects(begun, question, output):
        output = add_facts(session, (question.tool, question.arguments), output, edits)
    is_unstored = begun is not None and not begun.is_stored
    await session.log.call_finished(
        turn,
        item.open_call,
        result,
        output=output,
        duration_s=duration_s,
        decided_by=item.decided_by if is_unstored else "",
    )
    if begun is not None:
        begun.tell()
    if question is not None and (item.decided_by == "service" or output.error_kind == "interrupted"):
        await session.gate.report(question, output, emit)
    # A failing command explains itself at its end; other outputs begin with what matters.
    preview = text[-400:] if output.error_kind == "exit" else text[:400]
    shown_arguments = ""
    if isinstance(item, AnsweredCall):
        preview, shown_arguments = item.notice or preview, call.arguments
    emit(
        ToolFinished(
            call.id,
            call.name,
            duration_s,
            output.error_kind,
            output.exit_code,
            preview,
            shown_arguments,
            edits,
        )
    )


def _has_effects(begun: _RunningCall | None, question: GateCall, output: ToolOutput) -> bool:
    # an interrupted call may have run before the crash
    if begun is None and output.error_kind != "interrupted":
        return False
    return bool(output.changes or question.tool.effects - {"read"})


def add_facts(
    session: Session,
    ran: tuple[Tool, dict[str, object]],
    output: ToolOutput,
    edits: tuple[FileEdit, ...] = (),
) -> ToolOutput:
    from whet.agent.facts import call_facts  # noqa: PLC0415 - 2 ms, and most calls only read

    facts = call_facts(*ran, output, edits, session.workspace)
    return msgspec.structs.replace(output, facts=facts) if facts else output


async def _run_shown(item: RunnableCall, context: ToolContext) -> ToolOutput:
    """Run a call if it is still what the person was shown. Note in the output if its arguments were
    changed."""
    question, decision, ran = item.question, item.decision, item.open_call.ran
    if decision.digest:
        try:
            changes = await question.preview(question.arguments) if question.preview else ()
        except ToolError as error:
            return _error_output(error)
        if (
            call_digest(question.tool.name, question.arguments, question.workspace, changes)
            != decision.digest
        ):
            return ToolOutput(
                "The file changed after the person was shown what would be written, so nothing was written."
                " Read it and call again; the person is asked again.",
                error_kind="denied",
            )
    output = await _run_tool(question.tool, question.arguments, context)
    return msgspec.structs.replace(output, text=note_changed_arguments(ran, output.text)) if ran else output


def note_changed_arguments(ran: str, text: str) -> str:
    """Prefix a result with the arguments that ran, for a model that wrote different ones."""
    ran = clip(ran, _EDITED_CHARS)
    return f"[The person changed this call before allowing it. These arguments ran: {ran}]\n{text}"


class _RunningCall:
    """A running call: whether its start is stored, and the events that wait until it is."""

    def __init__(self, session: Session, turn: TurnRecord, item: RunnableCall, emit: Emit) -> None:
        self.session, self.turn, self.item = session, turn, item
        self.is_stored = False
        self._is_told = False
        self._emit = emit
        self._held: list[Event] = []

    async def store(self) -> None:
        """Store the start, then emit it."""
        await self.session.log.call_started(self.turn, self.item.open_call, self.item.decided_by)
        self.is_stored = True
        self.tell()

    def tell(self) -> None:
        """Emit the start once, followed by the events that waited for it."""
        if not self._is_told:
            self._is_told = True
            call, ran = self.item.open_call.call, self.item.open_call.ran
            for event in (ToolStarted(call.id, call.name, ran or call.arguments), *self._held):
                self._emit(event)

    def emit(self, event: Event) -> None:
        """Emit an event of the call, or hold it until the start is stored."""
        if self._is_told:
            self._emit(event)
        else:
            self._held.append(event)


async def _run_stored(begun: _RunningCall, clock: TurnClock) -> ToolOutput:
    """Run a call, and store its start before it if that matters. A call that may be repeated and needed no
    approval runs again after a crash in any case, so its start may be stored together with its result,
    in one commit, if it ends within `_AT_ONCE_S`."""
    item = begun.item
    context = _context(begun.session, begun.turn, item.open_call, begun.emit, clock)
    context = msgspec.structs.replace(context, shown=changes_digest(item.decision.changes))
    tool = item.question.tool
    # A tool without a time limit may ask the person, who must see the call before the question.
    may_wait = tool.timeout_s is None
    if not tool.repeatable or may_wait or item.decided_by != "rule" or item.open_call.started:
        await begun.store()
        return await _run_shown(item, context)
    storing: list[asyncio.Task[None]] = []
    late = asyncio.get_running_loop().call_later(
        _AT_ONCE_S, lambda: storing.append(asyncio.create_task(begun.store()))
    )
    try:
        output = await _run_shown(item, context)
        for start in storing:
            await start
        return output
    finally:
        late.cancel()
        for start in storing:
            start.cancel()
            start.add_done_callback(_retrieve_exception)


def _retrieve_exception(start: asyncio.Task[None]) -> None:
    """Retrieve the exception of a start that could not be stored after its call failed: the call's error says
    more."""
    if not start.cancelled():
        start.exception()


async def _run_tool(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    limit = asyncio.timeout(tool.timeout_s)
    try:
        async with limit:
            return await tool.run(context, arguments)
    except ToolError as error:
        return _error_output(error)
    except TimeoutError as error:
        if not limit.expired():
            return ToolOutput(f"{tool.name} failed: {error}", error_kind="failed")
        return ToolOutput(f"{tool.name} passed its limit of {tool.timeout_s:g} s.", error_kind="timeout")
    except Exception as error:
        log.exception("the tool %s crashed", tool.name)
        return ToolOutput(f"{tool.name} crashed: {type(error).__name__}: {error}", error_kind="crashed")


def _error_output(error: ToolError) -> ToolOutput:
    text = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    return ToolOutput(text, error_kind=error.kind)


def _context(
    session: Session, turn: TurnRecord, open_call: OpenCall, emit: Emit, clock: TurnClock
) -> ToolContext:
    async def ask(question: str, choices: Sequence[str]) -> str | None:
        with clock.paused():
            return await session.person.clarify(question, choices)

    def show(text: str) -> None:
        emit(ToolProgress(open_call.call.id, text))

    return ToolContext(
        session.id,
        turn.id,
        open_call.call.id,
        session.workspace,
        show,
        ask,
        session.buffers,
        clock.paused,
        key=f"{turn.number}.{open_call.step}.{open_call.index}",
    )


def _fails_repeatedly(messages: Sequence[Message], name: str, arguments: str) -> bool:
    """Return whether the last calls before this reply were this same call and all of them failed."""
    failures = 0
    answered: dict[str, bool] = {}
    for message in islice(reversed(messages), 1, None):
        if message.role == "tool":
            answered[message.tool_call_id] = message.is_error
            continue
        if message.role == "user":
            break
        for call in reversed(message.tool_calls):
            if (call.name, call.arguments) != (name, arguments) or not answered.get(call.id, False):
                return False
            failures += 1
            if failures == _REPEATS_ALLOWED:
                return True
    return False


def _unknown_tool(session: Session, name: str) -> str:
    near = difflib.get_close_matches(name, list(session.tools), 1)
    offer = f"Did you mean {near[0]}?" if near else "There are: " + ", ".join(session.tools) + "."
    return f"There is no tool named {name}. {offer}"
