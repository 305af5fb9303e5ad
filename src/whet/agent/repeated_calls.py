"""Detect calls that repeat with the same result: warn the model, then end the turn.

A call counts as repeated while the calls before it are the same few calls with the same results, and none of
them changed a file. A poll whose output changes is not a repetition. Neither is a call that spends its time
waiting (`sleep 1; cat status`): only the turn's limits end those. If the call's CPU time was not measured, it
counts as waiting only after a longer time. The warnings are part of the results, so a turn that another
process resumes continues the count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from whet.agent.session import Session
from whet.contract.errors import Rambled
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall
from whet.contract.tools import ToolOutput
from whet.store.transcript import TurnRecord

_NOTED_AFTER = 3
_URGED_AFTER = 5
_STOPPED_AFTER = 8
_MAX_CYCLE = 4
_WAITED_S = 0.5
_UNMEASURED_WAIT_S = 5.0
_MARK = "\n\n[Whet: this call came "
_FOREIGN_MARK = _MARK.replace("[Whet:", "[Whet -")
_STOPPED_END = "The turn ends here.]"
_Result: TypeAlias = tuple[str, tuple[str, ...]]
"""A result's text and its pictures: the text alone would make all screenshots equal."""
_NO_RESULT: _Result = ("", ())


def note_repetition(
    messages: Sequence[Message],
    call_id: str,
    output: ToolOutput,
    duration_s: float,
    step: int,
    last_change: Callable[[], int],
) -> str:
    """Return the output's text, with a warning for the model if the same call had the same result before.

    The call is one of the last reply in `messages`, which is reply number `step` of its turn. `last_change`
    returns the last step that changed a file, or 0; it is called only after a repetition.
    """
    text = output.text.replace(_MARK, _FOREIGN_MARK)  # a tool's own words don't end a turn
    if _is_wait(output.cpu_s, duration_s):
        return text
    result = (text, _pictures_of(output.images))
    count = _count_repetitions(messages, call_id, result, step)
    if count >= _NOTED_AFTER:
        count = _count_repetitions(messages, call_id, result, step - last_change())
    if count < _NOTED_AFTER:
        return text
    note = f"{_MARK}{count} times with this result, and no file changed. "
    if count >= _STOPPED_AFTER:
        return f"{text}{note}{_STOPPED_END}"
    if count >= _URGED_AFTER:
        return f"{text}{note}Do something else now, or answer; after {_STOPPED_AFTER} times the turn ends.]"
    return f"{text}{note}The result is above already.]"


def _is_wait(cpu_s: float | None, duration_s: float) -> bool:
    """Return whether a call spent most of its time waiting."""
    if cpu_s is None:
        return duration_s >= _UNMEASURED_WAIT_S
    waited_s = duration_s - cpu_s
    return waited_s >= max(_WAITED_S, cpu_s)


def stop_repetition(messages: Sequence[Message]) -> None:
    """Raise Rambled if the warning in a result of the last step ends the turn."""
    for message in reversed(messages):
        if message.role != "tool":
            return
        if message.text.endswith(_STOPPED_END) and _MARK in message.text:
            raise Rambled(
                f"the model called {message.tool_name} {_STOPPED_AFTER} times with the same arguments and the"
                " same result, so the turn was stopped",
                hint="say what to do differently; another model may help",
            )


def _count_repetitions(messages: Sequence[Message], call_id: str, result: _Result, max_steps: int) -> int:
    """Count how often a call of the last reply had this result in the last `max_steps` steps, including
    now."""
    call = _find_call(messages, call_id)
    if call is None:
        return 0
    current = (call.name, call.arguments, result)
    distinct = {current}
    count, steps = 1, 0
    results: dict[str, _Result] | None = None  # None until the walk has left the calls of the last reply
    for message in reversed(messages):
        if message.role == "user":
            break
        if message.role == "tool":
            if results is not None:
                parts = () if isinstance(message.content, str) else message.content
                results[message.tool_call_id] = (message.text.partition(_MARK)[0], _pictures_of(parts))
            continue
        if results is None:
            results = {}
            continue
        steps += 1
        if steps >= max_steps:
            break
        for earlier in message.tool_calls:
            pair = (earlier.name, earlier.arguments, results.get(earlier.id, _NO_RESULT))
            distinct.add(pair)
            count += pair == current
        if len(distinct) > _MAX_CYCLE:
            break
    return count


def _pictures_of(parts: Sequence[TextPart | ImagePart]) -> tuple[str, ...]:
    return tuple(part.data_base64 for part in parts if isinstance(part, ImagePart))


def _find_call(messages: Sequence[Message], call_id: str) -> ToolCall | None:
    for message in reversed(messages):
        if message.role == "assistant":
            return next((call for call in message.tool_calls if call.id == call_id), None)
    return None


def read_last_change(session: Session, turn: TurnRecord) -> int:
    """Return the last step of a turn in which a call changed a file, or 0."""
    from whet.store import facts  # noqa: PLC0415 - only after a repetition

    key = session.log.live.key
    rows = session.log.writer.db.read_now(lambda db: facts.list_turn_facts(db, key, turn.number))
    return max((row.step for row in rows if row.facts.edits or row.facts.touched), default=0)
