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

from whet.contract.messages import ImagePart, Message, ToolCall
from whet.contract.texts import parse_arguments, unwrap_pastes
from whet.editors import tool_calls
from whet.editors.outbox import Update
from whet.tools.todo import TodoLists

_RESULT_CHARS = 4_000


def message_updates(messages: Sequence[tuple[int, Message]]) -> Iterator[Update]:
    """Yield the updates of messages, numbered and ascending. A call is shown once, with its result."""
    results = {(seq, message.tool_call_id): message for seq, message in messages if message.role == "tool"}
    for seq, message in messages:
        if message.role == "user":
            yield from _user_updates(message)
        elif message.role == "assistant":
            if message.reasoning:
                yield update_agent_thought_text(message.reasoning)
            if message.text:
                yield update_agent_message_text(message.text)
            for number, call in enumerate(message.tool_calls, 1):
                yield _call_update(f"past-{seq}-{number}", call, results.get((seq + number, call.id)))


def plan_updates(todo_calls: Iterable[str]) -> Iterator[Update]:
    """Yield the agent's todo list as its calls left it; nothing if it is empty."""
    if items := TodoLists().restore("", todo_calls):
        yield update_plan(tool_calls.plan(items))


def _user_updates(message: Message) -> Iterator[Update]:
    if message.text:
        yield update_user_message(text_block(unwrap_pastes(message.text)))
    if not isinstance(message.content, str):
        for part in message.content:
            if isinstance(part, ImagePart):
                yield update_user_message(image_block(part.data_base64, part.media_type))


def _call_update(call_id: str, call: ToolCall, result: Message | None) -> Update:
    arguments = parse_arguments(call.arguments)
    text = result.text[:_RESULT_CHARS] if result is not None else "It has no result yet."
    ok = result is not None and not result.is_error
    return start_tool_call(
        call_id,
        tool_calls.title_of(call.name, arguments),
        kind=tool_calls.kind_of(call.name),
        status="completed" if ok else "failed",
        content=[tool_calls.text_content(text)],
        raw_input=arguments or None,
    )
