"""Convert a stored conversation to updates, in order, for an editor that loads the session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from acp import (
    image_block,
    start_tool_call,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_user_message,
)

from whet.contract.texts import parse_arguments
from whet.editors import tool_calls
from whet.editors.outbox import Update
from whet.store.parts import AnswerPart, CallPart, ConversationPart, PersonPart
from whet.tools.todo import TodoLists

_RESULT_CHARS = 4_000


def message_updates(parts: Sequence[ConversationPart]) -> Iterator[Update]:
    """Yield the updates of a conversation. A call is shown once, with its result."""
    for number, part in enumerate(parts, 1):
        if isinstance(part, PersonPart):
            yield from _person_updates(part)
        elif isinstance(part, AnswerPart):
            if part.reasoning:
                yield update_agent_thought_text(part.reasoning)
            if part.text:
                yield update_agent_message_text(part.text)
        else:
            yield _call_update(f"past-{number}", part)


def plan_updates(todo_calls: Iterable[str]) -> Iterator[Update]:
    """Yield the agent's todo list after its calls, unless it is empty."""
    if items := TodoLists().restore("", todo_calls):
        yield update_plan(tool_calls.plan(items))


def _person_updates(part: PersonPart) -> Iterator[Update]:
    for text in filter(None, (part.text(), part.attached)):
        yield update_user_message(text_block(text))
    for image in part.images:
        yield update_user_message(image_block(image.data_base64, image.media_type))


def _call_update(call_id: str, part: CallPart) -> Update:
    call, result = part.call, part.result
    arguments = parse_arguments(call.arguments)
    text = result.text[:_RESULT_CHARS] if result is not None else "It has no result yet."
    return start_tool_call(
        call_id,
        tool_calls.title_of(call.name, arguments),
        kind=tool_calls.kind_of(call.name),
        status="completed" if part.state == "done" else "failed",
        content=[tool_calls.text_content(text), *(tool_calls.image_contents(result) if result else ())],
        raw_input=arguments or None,
    )
