"""A message comes back from its row the same, with all that a request needs of it."""

from __future__ import annotations

from typing import Any

import pytest

from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage, VendorReplay
from whet.store import rows

_MESSAGES = [
    Message("user", "hi"),
    Message("user", "hi", note="[2026-11-21 09:00 UTC; in /work; at most 90 steps]"),
    Message("user", (TextPart("see"), ImagePart("image/png", "AA==")), note="[now]"),
    Message("assistant", "", tool_calls=(ToolCall("1", "put", '{ "a":1}'),), reasoning="so"),
    Message(
        role="assistant", content="x", replay=VendorReplay(format="anthropic_messages", blocks_json="[ 1]")
    ),
    Message("tool", "boom", tool_call_id="1", tool_name="put", is_error=True),
    Message("assistant", "known", cache_until=True),
    Message("user", "typed", origin="typed"),
]


def fields(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


@pytest.mark.parametrize("message", _MESSAGES, ids=lambda message: message.role)
def test_a_message_comes_back_the_same(message: Message) -> None:
    role, _, content, extra = rows.pack(message, 0, Usage(prompt_tokens=3), "m")
    assert fields(rows.unpack(role, content, extra)) == fields(message)


def test_a_message_with_every_field_set_keeps_each_of_them() -> None:
    """A field that is added to Message and forgotten here would come back as its default."""
    kept = {name for message in _MESSAGES for name, value in fields(message).items() if value}
    assert kept == set(Message.__struct_fields__)


def test_text_that_no_encoding_holds_is_replaced_in_the_note_too() -> None:
    message = rows.to_storable(Message("user", "hi", note="in /tmp/\udcff"))
    assert "\udcff" not in message.note


@pytest.mark.parametrize("role", ["user", "tool"])
def test_no_message_is_stored_with_characters_that_a_server_refuses(role: Any) -> None:
    raw, image = "a\0b \x1b[31mred\x1b[0m\r\ntab\t", ImagePart("image/png", "AA==")
    assert rows.to_storable(Message(role, raw)).content == "ab red\ntab\t"
    parts = rows.to_storable(Message(role, (TextPart(raw), image))).content
    assert parts == (TextPart("ab red\ntab\t"), image)


def test_an_answer_of_the_model_is_stored_as_it_came() -> None:
    answer = Message("assistant", "a\0b\r\n")
    assert rows.to_storable(answer) is answer
