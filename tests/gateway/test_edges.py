"""Where platforms, people and limits meet: long texts, floods that are none, answers to no question."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import JSONResponse

from tests.agent.rig import calls
from tests.confirm.vendors.discord_chat import DiscordChat
from tests.confirm.vendors.slack_chat import SlackChat
from tests.confirm.vendors.telegram import too_many
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, running, served
from tests.gateway.test_channels import DISCORD, SLACK, on
from tests.gateway.test_telegram import BEN, STALLED, world
from whet.clock import SystemClock
from whet.contract.channels import ChatPlace, Incoming
from whet.gateway.outbox import NOTICE
from whet.store import chats
from whet.store.database import StateDatabase
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined

LONG = calls(("terminal", '{"command": "touch made && echo ' + "long-word " * 230 + '"}')).tool_calls


def test_an_answer_of_markup_is_whole_on_slack(tmp_path: Path) -> None:
    slack = SlackChat()
    rows = [f"<li>number {n} & more</li>" for n in range(200)]
    with on(slack, SLACK, tmp_path, [ScriptedReply("```html\n" + "\n".join(rows) + "\n```")]):
        slack.write("list")
        slack.wait(lambda: "number 199 " in str(slack.messages), "the last row")
        shown = "".join(
            block["text"]["text"]
            for message in slack.messages.values()
            for block in message["blocks"]
            if block["type"] == "section"
        )
        for n in range(200):
            assert f"&lt;li&gt;number {n} &amp; more&lt;/li&gt;" in shown, n


def test_what_somebody_wrote_who_was_put_out_since_begins_no_turn(tmp_path: Path) -> None:
    """Ben writes while nothing runs; before the next start he stands in the file no more."""
    with TelegramChat() as telegram, PracticeServer(script=[ScriptedReply("For Ann.")]) as model:
        home, with_ben = tmp_path / "home", TELEGRAM + BEN
        process = GatewayProcess(home, with_ben.format(url=telegram.url), model)
        with closing(StateDatabase.open(home / "state.db", SystemClock())) as database:
            chat_place = ChatPlace("telegram", "8", "", "8")
            body = msgspec.json.encode(Incoming(chat_place, "u1", "message", text="hi"))
            database.write_now(lambda db: chats.add_update(db, chat_place, "u1", body.decode(), 1))
        (home / "gateway.toml").write_text(TELEGRAM.format(url=telegram.url))
        with served(process):
            telegram.ask("ann here", "For Ann.")
        with closing(StateDatabase.open(home / "state.db", SystemClock())) as database:
            assert database.read_now(lambda db: chats.list_open_chats(db, ["telegram"])) == []
            messages = database.read_now(
                lambda db: chats.list_messages(db, ("queued", "sending", "sent", "failed"), 1)
            )
        assert model.count == 1 and messages == []  # the first chat is Ben's


def test_a_long_action_is_asked_about_on_discord(tmp_path: Path) -> None:
    discord = DiscordChat()
    with on(discord, DISCORD, tmp_path, [ScriptedReply(tool_calls=LONG), ScriptedReply("Made.")], mode="ask"):
        discord.wait_connected()
        discord.write("make it")
        assert discord.answer(discord.press_at("Show all")) == "Shown."
        assert discord.answer(discord.press_at("Allow once")) == "Allowed once."
        discord.wait_said("Made.")


@pytest.mark.slow
def test_what_a_platform_adds_to_a_message_is_no_edit(tmp_path: Path) -> None:
    discord = DiscordChat()
    with on(discord, DISCORD, tmp_path / "d", [ScriptedReply("One."), ScriptedReply("Two.")]):
        discord.wait_connected()
        message = discord.write("see https://example.org")
        discord.wait_said("One.")
        discord.change(
            {**message, "embeds": [{"url": "https://example.org"}], "edited_timestamp": None},
            message["content"],
        )
        discord.ask("next", "Two.")
        assert discord.said() == ["One.", "Two."]
    slack = SlackChat()
    with on(slack, SLACK, tmp_path / "s", [ScriptedReply("One."), ScriptedReply("Two.")]):
        stamp = slack.write("see https://example.org")
        slack.wait_said("One.")
        old = {"type": "message", "user": "U7", "text": "see https://example.org", "ts": stamp}
        event = {
            "type": "message",
            "subtype": "message_changed",
            "channel": "D1",
            "channel_type": "im",
            "ts": "1700000009.1",
            "message": {**old, "attachments": [{"from_url": "https://example.org"}]},
            "previous_message": old,
        }
        slack.bring({"type": "events_api", "payload": {"event": event}})
        slack.ask("next", "Two.")
        assert slack.said() == ["One.", "Two."]


def test_an_answer_of_emoji_arrives_on_telegram(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("\U0001f600" * 5000)]) as w:
        w.telegram.write("smile")
        w.telegram.wait(lambda: sum(t.count("\U0001f600") for t in w.telegram.said()) == 5000, "all of them")


def test_a_message_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("Read.")]) as w:
        w.telegram.ask("x" * 100_001, "Read.")
        asked = json.loads(w.model.requests[0].body)["messages"][-1]["content"]
        assert asked.count("x") == 100_000 and "[1 more characters were left out]" in asked


def test_what_a_group_says_to_itself_is_no_flood(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("Answer.")], flood_per_minute=3) as w:
        for n in range(6):
            w.telegram.write(f"chatter {n}", chat=-5, user=7, group=True)
        w.telegram.ask("@whet_bot hello", "Answer.", -5, user=7, group=True)
        assert w.telegram.said(-5) == ["Answer."]


@pytest.mark.slow
def test_what_is_brought_again_or_was_said_over_hours_is_no_flood(tmp_path: Path) -> None:
    script = [ScriptedReply(f"Answer {n}.") for n in range(7)]
    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        file = TELEGRAM.format(url=telegram.url)
        process = GatewayProcess(tmp_path / "home", file, model, flood_per_minute=3, busy="queue")
        with served(process):
            updates = [telegram.write(f"message {n}") for n in range(3)]
            telegram.wait_said("Answer 2.")
            telegram.wait(lambda: telegram.acknowledged > updates[-1], "the acknowledgement")
        for update in updates:
            telegram.again(update)
        for hour in range(4):
            telegram.write(f"at {hour}", date=1_790_000_000 + 3600 * hour)
        with served(process):
            telegram.wait_said("Answer 6.")
        assert telegram.said() == [f"Answer {n}." for n in range(7)]


def test_many_refusals_for_pace_lose_nothing(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("In the end.")]) as w:
        w.telegram.fail_next("sendMessage", *[too_many(0) for _ in range(14)])
        w.telegram.ask("hello", "In the end.")


class Vague(TelegramChat):
    """Takes a message and then stumbles."""

    vague = 0

    async def _sendMessage(self, body: dict[str, Any]) -> JSONResponse:
        answer = await super()._sendMessage(body)
        if self.vague:
            self.vague -= 1
            return JSONResponse({"ok": False, "error_code": 500, "description": "Internal Server Error"}, 500)
        return answer


@pytest.mark.slow
def test_an_answer_whose_draft_was_deleted_is_not_sent_blindly_again(tmp_path: Path) -> None:
    script = [ScriptedReply("word " * 60, pieces=12, fault=Fault(stall_after=6))]
    with Vague() as telegram, PracticeServer(script=script) as model:
        process = GatewayProcess(
            tmp_path / "home", TELEGRAM.format(url=telegram.url), model, stream_after_s=0.1
        )
        with served(process):
            telegram.ask("go", "…")
            with telegram.changed:
                telegram.sends.clear()  # they delete the draft
                telegram.vague = 1
            model.wait_for_stall()
            model.release()
            telegram.wait_said("word")
            telegram.ask("/context", "threshold")
            assert sum("word word" in t for t in telegram.said()) == 1


@pytest.mark.slow
def test_a_message_from_before_a_question_is_not_its_answer(tmp_path: Path) -> None:
    script = [
        ScriptedReply(
            text="",
            fault=Fault(stall_after=0),
            tool_calls=calls(("clarify", '{"question": "Which colour?"}')).tool_calls,
        ),
        ScriptedReply("Painted."),
        ScriptedReply("And that too."),
    ]
    with world(tmp_path, script, busy="queue") as w:
        w.telegram.write("paint it")
        w.model.wait_for_stall()
        w.telegram.write("later do that too")
        w.telegram.ask("/context", "/context waits")
        w.model.release()
        w.telegram.wait_said("Which colour?")
        w.telegram.ask("blue", "And that too.")
        assert b"blue" in w.model.requests[1].body and b"later do that" not in w.model.requests[1].body


def test_stop_reaches_a_turn_that_waits_for_room_and_what_was_said_to_it(tmp_path: Path) -> None:
    script = [ScriptedReply("Slow.", when="first", fault=STALLED), ScriptedReply("Anew.", when="once more")]
    with world(tmp_path, script, BEN, max_turns=1) as w:
        w.telegram.write("first")
        w.model.wait_for_stall()
        w.telegram.write("second", chat=8)
        w.telegram.write("and more", chat=8)
        w.telegram.wait(lambda: _states(w.gateway.home).count("waiting") == 2, "both stored")
        w.telegram.ask("/stop", "Stopping", 8)
        w.telegram.write("once more", chat=8)
        w.model.release()
        w.telegram.wait_said("Anew.", 8)
        assert w.model.count == 2 and b"and more" not in w.model.requests[1].body


def test_a_message_for_a_turn_that_waits_for_room_is_given_to_it_when_it_runs(tmp_path: Path) -> None:
    """And what was said after it, such as a command, does not wait for that turn's end."""
    script = [
        ScriptedReply("Slow.", when="first", fault=STALLED),
        ScriptedReply("Both.", when="second", fault=STALLED),
        ScriptedReply("More."),
    ]
    with world(tmp_path, script, BEN, max_turns=1) as w:
        w.telegram.write("first")
        w.model.wait_for_stall()
        for text in ("second", "and more", "/context"):
            w.telegram.write(text, chat=8)
        w.telegram.wait(lambda: _states(w.gateway.home).count("waiting") == 3, "all of it stored")
        w.model.release()
        w.model.wait_for_stall(2)
        w.telegram.wait_said("/context waits", 8)
        w.model.release()
        w.telegram.wait_said("Both.", 8)


def _states(home: Path) -> list[str]:
    """Give what has become of each message that came in."""
    with closing(StateDatabase.open(home / "state.db", SystemClock())) as database:
        rows = "SELECT state FROM gateway_inbox ORDER BY id"
        return database.read_now(lambda db: [row[0] for row in db.execute(rows)])


@pytest.mark.slow
def test_what_may_have_arrived_is_not_repeated_when_discord_has_forgotten_it(tmp_path: Path) -> None:
    discord = DiscordChat()
    with on(discord, DISCORD, tmp_path, [ScriptedReply("Hello.")]) as process:
        discord.wait_connected()
        discord.ask("hello", "Hello.")
    clock = SystemClock()
    with closing(StateDatabase.open(process.home / "state.db", clock)) as database, discord:
        chat = database.read_now(lambda db: chats.find_platform_chat(db, "discord", "500"))
        assert chat is not None
        long_ago_ms = clock.unix_ms() - 130_000
        bodies = [f'{{"text":"old","since_ms":{long_ago_ms}}}', '{"text":"new"}']
        database.write_now(lambda db: chats.queue_messages(db, chat.id, bodies, clock.unix_ms()))
        with served(process):
            discord.wait_said(NOTICE)
        assert discord.said() == ["Hello.", "new", NOTICE]
        [counts] = database.read_now(chats.count_channels)
        assert counts.unknown == 1


@pytest.mark.slow
def test_what_waits_on_a_channel_that_is_no_more_stays_and_is_shown(tmp_path: Path) -> None:
    script = [ScriptedReply("", fault=STALLED, when="hello"), ScriptedReply("Second.", when="again")]
    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        process = GatewayProcess(tmp_path / "home", TELEGRAM.format(url=telegram.url), model)
        with running(process):
            telegram.write("hello")
            model.wait_for_stall()
            process.kill()
            file = process.home / "gateway.toml"
            file.write_text(file.read_text().replace('"telegram"', '"telegram"\nname = "other"', 1))
            process.start()
            telegram.write("again", chat=7)
            telegram.wait_said("Second.")
            shown = process.whet("gateway", "status").stdout
            assert "not in gateway.toml" in shown
            assert process.stop() == 0
            assert "Traceback" not in process.output()


@pytest.mark.logs_errors("broke")
def test_a_broken_turn_is_said_logged_and_passed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = [ScriptedReply("One."), ScriptedReply("Two.", when="two")]
    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        process = GatewayProcess(tmp_path / "home", TELEGRAM.format(url=telegram.url), model)
        with served(process):
            telegram.ask("one", "One.")
        with closing(StateDatabase.open(process.home / "state.db", SystemClock())) as database:
            damage = "UPDATE messages SET extra = '{' WHERE role = 1"  # this session can't be opened any more
            database.write_now(lambda db: db.execute(damage).fetchall())
        telegram.write("and now")
        telegram.write("/title")
        telegram.write("and then")
        with served(process):
            telegram.wait(lambda: sum("the log has it" in text for text in telegram.said()) == 3, "all three")
        assert "a turn broke" in caplog.text and "DecodeError" in caplog.text


def test_a_picture_that_the_server_refuses_is_left_out_and_the_chat_is_told(tmp_path: Path) -> None:
    refused = ScriptedReply(fault=Fault(status=400, message="Invalid image"), when="image_url")
    script = [*[refused] * 3, ScriptedReply("Seen."), ScriptedReply("More.")]
    with world(tmp_path, script) as w:
        w.telegram.files["f1"] = b"\x89PNG\r\n\x1a\n" + b"BAD" * 9
        w.telegram.ask("", "Seen.", caption="look", document={"file_id": "f1", "file_name": "p.png"})
        assert any("1 picture left out from now on" in text for text in w.telegram.said())
        w.telegram.ask("more", "More.")
        assert b"so it is left out" in w.model.requests[-1].body
