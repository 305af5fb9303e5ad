"""Whatever an engine returns either can't be used or gives a list that every provider accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.context.engines import NoEngine
from whet.context.live_list import RepairedList, repair
from whet.context.rows import (
    IMAGE_TOKENS,
    ROW_TOKENS,
    BadEngineRows,
    EngineRows,
    engine_row,
    fingerprint,
    message_tokens,
    read_back,
    text_tokens,
    tokens_of,
)
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, VendorReplay


def conversation(pairs: int) -> list[Message]:
    messages = [Message("user", "begin")]
    for number in range(pairs):
        call = ToolCall(f"c{number}", "look", '{"at": 1}')
        messages.append(Message("assistant", "", tool_calls=(call,)))
        messages.append(Message("tool", f"saw {number}", tool_call_id=call.id, tool_name="look"))
    messages.append(Message("assistant", "ok"))
    messages.append(Message("user", "ok"))
    return messages


def is_valid(messages: list[Message]) -> bool:
    """As strict as the strictest vendor: opens and ends rightly, each call answered once, right after it."""
    if messages[0].role != "user" or messages[-1].role == "assistant":
        return False
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return False
        waiting = [call.id for call in message.tool_calls]
        if len(set(waiting)) != len(waiting) or seen & set(waiting):
            return False
        seen |= set(waiting)
    return not waiting


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "function", 7, None])
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["c0", "c1", "", None]) | JUNK,
            "function": st.fixed_dictionaries({"name": JUNK, "arguments": JUNK}) | JUNK,
        }
    )
    | JUNK,
    max_size=3,
)
ROWS = st.fixed_dictionaries(
    {"role": ROLES, "content": st.text(max_size=5) | JUNK},
    optional={"tool_calls": CALLS | JUNK, "tool_call_id": st.sampled_from(["c0", "c1"]) | JUNK},
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_garbage_is_refused_or_repaired(data: st.DataObject) -> None:
    """Failures 1, 2, 3, 4: orphans, unanswered and torn pairs, no user message."""
    messages = conversation(3)
    rows = EngineRows()
    rows.sync(messages)
    prints = rows.prints()
    picked = data.draw(st.lists(st.sampled_from(rows.rows) | ROWS | JUNK, max_size=12))
    try:
        found = read_back(rows.rows, rows.sources, prints, picked)
    except BadEngineRows:
        return
    if found is not None:
        assert is_valid(list(repair(found[1])))
        assert len(found[0]) == len(found[1])


def test_equal_copies_are_the_messages_they_were_copied_from() -> None:
    messages = conversation(1)
    rows = EngineRows()
    rows.sync(messages)
    copies: list[Any] = [{"role": "user", "content": "Sum."}, *(dict(row) for row in rows.rows[3:])]
    found = read_back(rows.rows, messages, rows.prints(), copies)
    assert found is not None
    assert found[1][1] is messages[3] and found[1][2] is messages[4]
    assert read_back(rows.rows, messages, rows.prints(), [dict(row) for row in rows.rows]) is None
    # Some write the empty text beside a call as None.
    bare = [{**row, "content": row["content"] or None} for row in rows.rows]
    assert read_back(rows.rows, messages, rows.prints(), bare) is None
    parts: list[Any] = [{**rows.rows[0], "content": [{"type": "text", "text": "begin"}]}, *rows.rows[1:]]
    found = read_back(rows.rows, messages, rows.prints(), parts)
    assert found is not None and found[1][0].text == "begin" and found[1][1:] == messages[1:]


@pytest.mark.parametrize("returned", [None, (), "x", [], [[]], {"role": "user"}])
def test_what_is_no_list_of_rows_is_unreadable(returned: object) -> None:
    with pytest.raises(BadEngineRows):
        read_back([], [], [], returned)


@pytest.mark.parametrize(
    ("arguments", "text"), [({"at": 1}, '{"at": 1}'), ('{"at": 2}', '{"at": 2}'), (None, "{}"), ({}, "{}")]
)
def test_arguments_of_an_engines_calls_may_be_text_an_object_or_missing(arguments: object, text: str) -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": arguments}}
    rows = [
        {"role": "user", "content": "begin"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "saw"},
    ]
    read = read_back([], [], [], rows)
    assert read is not None and read[1][1].tool_calls == (ToolCall("c1", "look", text),)


def test_rows_follow_a_transcript_that_was_cut() -> None:
    messages = conversation(3)
    rows = EngineRows()
    rows.sync(messages)
    first = rows.rows[0]
    rows.sync([*messages[:2], Message("user", "else")])
    assert rows.rows[0] is first and rows.rows[2]["content"] == "else"
    assert rows.tokens == sum(rows.sizes) and len(rows.sizes) == 3


def test_the_note_and_images_are_in_the_view_as_text() -> None:
    picture = Message("user", (TextPart("see"), ImagePart("image/png", "aGk=")), note="[noon]")
    assert engine_row(picture)["content"] == "see\n[image image/png]\n[noon]"


def test_the_repaired_list_grows_in_place_and_begins_again_after_a_change() -> None:
    messages, wire = conversation(2), RepairedList()
    first = list(wire.update(messages))
    messages.append(Message("user", "more"))
    grown = wire.update(messages)
    assert all(a is b for a, b in zip(first, grown, strict=False)) and len(grown) == len(first) + 1
    assert next(iter(wire.update(messages[3:]))).role == "user"


def test_estimates_are_near_what_servers_count() -> None:
    assert text_tokens("a" * 400) == 100
    assert text_tokens("漢字" * 50) == 100
    assert 30 <= text_tokens("привет, мир " * 5) <= 50
    assert message_tokens(Message("user", (ImagePart("image/png", "x" * 90_000),))) < IMAGE_TOKENS + 10


def test_two_results_alike_of_two_calls_are_two_messages() -> None:
    fields: dict[str, Any] = {"role": "tool", "content": "ok", "tool_call_id": "a", "_seq": 3}
    assert fingerprint(fields) == fingerprint({**fields, "_seq": 9, "name": "look"})
    assert fingerprint(fields) != fingerprint({**fields, "tool_call_id": "b"})
    assert fingerprint(fields) != fingerprint({**fields, "tool_call_id": None})


def test_what_a_server_does_not_count_is_none() -> None:
    engine = NoEngine()
    engine.update_from_response({"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})
    assert (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens) == (7, 2, 9)
    engine.update_from_response({"prompt_tokens": 7})
    assert (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens) == (7, 0, 0)
    engine.update_from_response({})
    assert engine.last_prompt_tokens == 0


def test_a_call_of_a_row_counts_with_its_arguments() -> None:
    arguments = '{"command": "make test in this folder"}'
    call = {"id": "c", "type": "function", "function": {"name": "terminal", "arguments": arguments}}
    spoken: dict[str, Any] = {"role": "assistant", "content": "now"}
    one, two = ({**spoken, "tool_calls": [call] * count} for count in (1, 2))
    each = tokens_of(two) - tokens_of(one)
    assert each == tokens_of(one) - tokens_of(spoken) == 8 + text_tokens(arguments)
    parts = [{"type": "text", "text": "now"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    assert tokens_of({"role": "user", "content": parts}) == ROW_TOKENS + 1 + 1_200
    assert tokens_of({"role": "user", "content": None}) == ROW_TOKENS


def test_only_thoughts_that_are_sent_back_count() -> None:
    replay = VendorReplay(format="anthropic_messages", blocks_json="[]")
    plain = Message("assistant", "x" * 40, reasoning="y" * 400)
    assert message_tokens(plain) == message_tokens(Message("assistant", "x" * 40)) == ROW_TOKENS + 10
    sent = Message("assistant", "x" * 40, reasoning="y" * 400, replay=replay)
    assert message_tokens(sent) == ROW_TOKENS + 110
    assert message_tokens(Message("assistant", "x" * 40, replay=replay)) == ROW_TOKENS + 10
    called = Message("assistant", "", (ToolCall("1", "name", "x" * 20),))
    assert message_tokens(called) == 2 * ROW_TOKENS + 1 + 5
    image = Message("user", (TextPart("x" * 8), ImagePart("image/png", "AA")))
    assert message_tokens(image) == ROW_TOKENS + 2 + IMAGE_TOKENS
