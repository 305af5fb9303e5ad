"""Edits, deletions, reactions and threads on each platform: one turn for each act, and the model reads it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.vendors.discord_chat import BOT, DiscordChat
from tests.confirm.vendors.slack_chat import BOT as SLACK_BOT
from tests.confirm.vendors.slack_chat import SlackChat
from tests.gateway.chat_people import PLATFORMS, ask, person_on
from tests.gateway.test_acts import asked
from tests.gateway.test_channels import DISCORD, SLACK, on
from tests.gateway.test_telegram import world
from tests.support import wait_until
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet_lab.practice.script import Fault, ScriptedReply

pytestmark = [pytest.mark.unconfined, pytest.mark.slow]
STALLED = Fault(stall_after=0)
WHERE = pytest.mark.parametrize("platform", PLATFORMS)


def replies(count: int, *stalled: int) -> list[ScriptedReply]:
    """Return answers; those named begin late, after the test releases them."""
    return [ScriptedReply(f"Answer {n}.", fault=STALLED if n in stalled else Fault()) for n in range(count)]


@WHERE
@pytest.mark.parametrize("busy", ["steer", "queue"])
def test_an_edit_of_a_message_is_read_by_the_turn_it_began(tmp_path: Path, platform: str, busy: str) -> None:
    with person_on(platform, tmp_path, replies(3, 0), busy=busy) as (person, process):
        message = person.write("delete the logs of May")
        process.model.wait_for_stall()
        person.edit(message, "delete the logs of March")
        wait_taken(person, process)
        process.model.release()
        person.wait_said("Answer 1.")
        was = "The person has changed this message to what follows. It was: delete the logs of May"
        assert asked(process.model) == [
            "delete the logs of May",
            f"<edited>{was}</edited>\ndelete the logs of March",
        ]
        person.edit(message, "delete nothing")
        person.wait_said("read only until it is answered")
        ask(person, "next", "Answer 2.")
        assert asked(process.model)[2:] == ["next"]


@WHERE
def test_a_deletion_counts_before_and_during_the_turn_and_not_after(tmp_path: Path, platform: str) -> None:
    with person_on(platform, tmp_path, replies(4, 0), busy="queue") as (person, process):
        if not person.deletes:
            pytest.skip("the platform reports no deletions")
        first, second = person.write("one"), person.write("two, not meant")
        process.model.wait_for_stall()
        person.delete(second)
        person.delete(first)
        wait_taken(person, process)
        process.model.release()
        person.wait_said("Answer 1.")
        assert asked(process.model) == ["one", "<deleted>The person has deleted this message: one</deleted>"]
        person.delete(first)
        ask(person, "three", "Answer 2.")
        assert asked(process.model)[2:] == ["three"]


@WHERE
def test_a_reaction_comes_along_with_the_next_message(tmp_path: Path, platform: str) -> None:
    with person_on(platform, tmp_path, replies(4)) as (person, process):
        ask(person, "shall it be red?", "Answer 0.")
        wait_recorded(process, "Answer 0.")
        person.react()
        ask(person, "then go on", "Answer 1.")
        wait_recorded(process, "Answer 1.")
        person.react()
        person.react(removed=True)
        ask(person, "and now?", "Answer 2.")
        emoji = ":+1:" if platform == "slack" else "👍"
        assert asked(process.model) == [
            "shall it be red?",
            f"<reaction>{emoji} to your message: Answer 0.</reaction>\nthen go on",
            "and now?",
        ]


@WHERE
def test_a_reaction_is_no_command_no_answer_and_begins_no_turn(tmp_path: Path, platform: str) -> None:
    with person_on(platform, tmp_path, replies(2)) as (person, process):
        ask(person, "hello", "Answer 0.")
        wait_recorded(process, "Answer 0.")
        for _ in range(25):
            person.react()
        ask(person, "/title", "hello")
        assert asked(process.model) == ["hello"]
        ask(person, "go on", "Answer 1.")
        (text,) = asked(process.model)[1:]
        assert 1 <= text.count("<reaction>") <= 20 and text.endswith("\ngo on")


def test_reactions_of_others_and_to_messages_of_people_are_not_read(tmp_path: Path) -> None:
    with world(tmp_path, replies(2)) as w:
        w.telegram.ask("hello", "Answer 0.")
        wait_recorded(w.gateway, "Answer 0.")
        sent = w.telegram.sends[-1]["id"]
        w.telegram.react(sent, [], ["👎"], user=8)
        w.telegram.react(w.telegram.newest, [], ["👎"])
        w.telegram.react(sent, ["👎"], ["👎", "🎉"])
        w.telegram.ask("go on", "Answer 1.")
        assert asked(w.model)[1] == "<reaction>🎉 to your message: Answer 0.</reaction>\ngo on"


def test_an_edit_of_one_part_of_an_act_is_read_by_its_turn(tmp_path: Path) -> None:
    with world(tmp_path, replies(2, 0)) as w:
        w.telegram.files["f"] = b"data"
        w.telegram.write("", document={"file_id": "f", "file_name": "a.txt"})
        w.telegram.write("is it right?")
        w.model.wait_for_stall()
        edit = w.telegram.rewrite(w.telegram.newest, "is it wrong?")
        w.telegram.wait(lambda: w.telegram.acknowledged > edit, "the edit taken in")
        w.model.release()
        w.telegram.wait_said("Answer 1.")
        assert asked(w.model)[1].endswith("</edited>\nis it wrong?")


def test_an_edit_that_changes_no_word_is_none(tmp_path: Path) -> None:
    """https://github.com/NousResearch/hermes-agent/pull/81183"""
    with world(tmp_path, replies(4, 1)) as w:
        w.telegram.ask("delete the logs", "Answer 0.")
        first = w.telegram.newest
        w.telegram.rewrite(first, "delete the logs", sender_tag="admin")
        w.telegram.write("and now?")
        w.model.wait_for_stall()
        same = w.telegram.rewrite(w.telegram.newest, "and now?", link_preview_options={"is_disabled": True})
        w.telegram.wait(lambda: w.telegram.acknowledged > same, "the edit taken in")
        w.model.release()
        w.telegram.wait_said("Answer 1.")
        w.telegram.rewrite(first, "delete nothing")
        w.telegram.wait_said("read only until it is answered")
        w.telegram.rewrite(first, "delete nothing", sender_tag="member")
        w.telegram.ask("next", "Answer 2.")
        assert len(w.telegram.said()) == 4 and asked(w.model) == ["delete the logs", "and now?", "next"]


def test_a_live_location_that_moves_is_no_edit(tmp_path: Path) -> None:
    with world(tmp_path, replies(2)) as w:
        fields: dict[str, Any] = {"latitude": 1.5, "longitude": 2.5, "live_period": 600}
        w.telegram.ask("", "Answer 0.", location=fields)
        w.telegram.rewrite(w.telegram.newest, "", location={**fields, "latitude": 1.6})
        w.telegram.ask("where am I?", "Answer 1.")
        assert w.telegram.said() == ["Answer 0.", "Answer 1."]


def test_discord_deletions_of_many_at_once(tmp_path: Path) -> None:
    discord = DiscordChat()
    with on(discord, DISCORD, tmp_path, replies(2, 0), busy="queue") as process:
        discord.wait_connected()
        discord.write("one")
        process.model.wait_for_stall()
        ids = [discord.write(text)["id"] for text in ("two", "three")]
        discord.call(discord.dispatch("MESSAGE_DELETE_BULK", {"ids": ids, "channel_id": "500"}))
        discord.write("four")
        discord.ask("/context", "/context waits")
        process.model.release()
        discord.wait_said("Answer 1.")
        assert asked(process.model) == ["one", "four"]


def test_discord_a_thread_knows_the_message_that_it_began_with(tmp_path: Path) -> None:
    discord = DiscordChat()
    with on(discord, DISCORD, tmp_path, replies(4)) as process:
        discord.wait_connected()
        discord.ask(f"<@{BOT}> Option A or B?", "Answer 0.", "600", guild="1")
        root = list(discord.messages)[-1]
        discord.threads[root] = {"type": 11, "parent_id": "600", "name": "Answer 0."}
        discord.threads["900"] = {"type": 11, "parent_id": "600", "name": "plans"}
        discord.write("not for the bot", chat=root, guild="1")
        for number, (text, thread) in enumerate((("the second", root), ("sure?", root), ("hi", "900")), 1):
            discord.ask(f"<@{BOT}> {text}", f"Answer {number}.", thread, guild="1")
        assert asked(process.model)[1:] == [
            "<quoted>you: Answer 0.</quoted>\nthe second",
            "sure?",
            "<quoted>the thread plans</quoted>\nhi",
        ]


def test_slack_each_person_s_first_message_for_the_bot_in_a_thread_knows_its_root(tmp_path: Path) -> None:
    slack = SlackChat()
    people = SLACK + '[people.ben]\nslack = "U8"\n'
    with on(slack, people, tmp_path, replies(3)) as process:
        root = slack.write("Option A or Option B?", chat="C1", user="U9")
        slack.write("B for me", chat="C1", thread_ts=root)
        slack.ask(f"<@{SLACK_BOT}> what do you say?", "Answer 0.", "C1", thread_ts=root)
        slack.ask(f"<@{SLACK_BOT}> and for me?", "Answer 1.", "C1", user="U8", thread_ts=root)
        pictures = [{"name": "plan.png", "url_private_download": f"{slack.url}/private/x"}]
        second = slack.write("", chat="C1", user="U9", subtype="file_share", files=pictures)
        slack.ask(f"<@{SLACK_BOT}> look", "Answer 2.", "C1", thread_ts=second)
        assert asked(process.model) == [
            "<quoted>U9: Option A or Option B?</quoted>\nwhat do you say?",
            "<quoted>U9: Option A or Option B?</quoted>\nand for me?",
            "<quoted>U9: plan.png</quoted>\nlook",
        ]
        assert {m["thread_ts"] for m in slack.messages.values()} == {root, second}


def test_telegram_a_topic_s_first_message_knows_its_name_and_answers_stay_in_it(tmp_path: Path) -> None:
    with world(tmp_path, replies(3)) as w:
        created = {
            "message_id": 31,
            "from": {"id": 7},
            "forum_topic_created": {"name": "Roof", "icon_color": 1},
        }
        topic: dict[str, Any] = {
            "message_thread_id": 31,
            "is_topic_message": True,
            "reply_to_message": created,
        }
        for number, text in enumerate(("@whet_bot who comes?", "@whet_bot and when?")):
            w.telegram.write(text, chat=-100, user=7, group=True, **topic)
            w.telegram.wait_said(f"Answer {number}.", chat=-100)
        quote: dict[str, Any] = {"quote": {"text": "at nine"}, "external_reply": {"origin": {"type": "user"}}}
        w.telegram.write("is it?", **quote)
        w.telegram.wait_said("Answer 2.")
        assert asked(w.model) == [
            "<quoted>the topic Roof</quoted>\n@whet_bot who comes?",
            "@whet_bot and when?",
            "<quoted>?: at nine</quoted>\nis it?",
        ]


def wait_recorded(one: Any, text: str) -> None:
    """Wait until the gateway has stored which message this text became, by which a reaction finds it."""
    sql = "SELECT 1 FROM gateway_outbox WHERE ref <> '' AND body LIKE ?"
    with closing(StateDatabase.open(one.home / "state.db", SystemClock())) as database:
        wait_until(lambda: database.read_now(lambda db: db.execute(sql, (f"%{text}%",)).fetchone()))


def wait_taken(person: Any, one: Any) -> None:
    """Wait until all that was written before is stored, in order."""
    ask(person, "/context", "/context waits")
