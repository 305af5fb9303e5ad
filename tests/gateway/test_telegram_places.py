"""Telegram's chats change: topics go, groups become supergroups, and Telegram tells of it in messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_telegram import world
from whet.contract.brought_text import drop_marks
from whet_lab.practice.script import ScriptedReply

_WORDS = ("one", "two", "three")


@pytest.mark.slow
def test_what_telegram_tells_of_a_chat_begins_no_turn(tmp_path: Path) -> None:
    fields: list[dict[str, Any]] = [
        {"pinned_message": {"message_id": 1, "date": 0, "chat": {"id": 7, "type": "private"}}},
        {"message_auto_delete_timer_changed": {"message_auto_delete_time": 86400}},
        {"new_chat_title": "New"},
        {"new_chat_members": [{"id": 8, "is_bot": False, "first_name": "Bob"}]},
        {"video_chat_started": {}},
        {"a_kind_of_next_year": {"x": 1}},
    ]
    with world(tmp_path, [ScriptedReply("I see.")]) as w:
        for more in fields:
            w.telegram.write("", **more)
        tasks = [{"id": 1, "text": "milk"}, {"id": 2, "text": "tea", "completion_date": 5}]
        w.telegram.write("", checklist={"title": "shop", "tasks": tasks})
        w.telegram.wait_said("I see.")
        assert w.model.count == 1
        messages = json.loads(w.model.requests[-1].body)["messages"]
        assert [m["role"] for m in messages] == ["system", "user"]
        assert "<checklist>shop | [ ] milk | [x] tea</checklist>" in drop_marks(messages[-1]["content"])


@pytest.mark.slow
def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(tmp_path: Path) -> None:
    script = [ScriptedReply(f"Answer {number}.") for number in range(2)]
    with world(tmp_path, script) as w:
        w.telegram.write("@whet_bot one", chat=-50, user=7, group=True)
        w.telegram.wait_said("Answer 0.", chat=-50)
        w.telegram.moved["-50"] = -1050  # while the next turn runs
        w.telegram.write("@whet_bot two", chat=-50, user=7, group=True)
        w.telegram.wait_said("Answer 1.", chat=-1050)
        assert w.telegram.said(chat=-50) == ["Answer 0."]
    with world(tmp_path, [ScriptedReply("Answer 2.")]) as w:  # another process, much later
        for _ in range(3):  # this Telegram counts its updates from the beginning
            w.telegram.write("between others", chat=-70, user=7, group=True)
        w.telegram.moved["-50"] = -1050
        w.telegram.write("@whet_bot three", chat=-1050, user=7, group=True)
        w.telegram.wait_said("Answer 2.", chat=-1050)
        messages = json.loads(w.model.requests[-1].body)["messages"]
        asked = [m["content"] for m in messages if m["role"] == "user"]
        assert [next(word for word in _WORDS if word in text) for text in asked] == list(_WORDS)


@pytest.mark.slow
def test_telegrams_own_word_of_a_supergroup_is_enough(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("Answer 0."), ScriptedReply("Answer 1.")]) as w:
        w.telegram.write("@whet_bot one", chat=-60, user=7, group=True)
        w.telegram.wait_said("Answer 0.", chat=-60)
        w.telegram.write("", chat=-60, user=7, group=True, migrate_to_chat_id=-1060)
        w.telegram.write("", chat=-1060, user=7, group=True, migrate_from_chat_id=-60)
        w.telegram.write("@whet_bot two", chat=-1060, user=7, group=True)
        w.telegram.wait_said("Answer 1.", chat=-1060)
        assert b" one" in w.model.requests[-1].body


@pytest.mark.slow
def test_an_answer_to_a_deleted_topic_goes_to_its_chat(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("Here.")]) as w:
        w.telegram.gone_topics.add(55)
        topic: dict[str, Any] = {"message_thread_id": 55, "is_topic_message": True}
        w.telegram.write("@whet_bot hello", chat=-50, user=7, group=True, **topic)
        assert w.telegram.wait_said("Here.", chat=-50) == ["Here."]
