"""The gateway on Discord, Slack and behind a signed webhook, against servers that speak their protocols."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.agent.rig import calls
from tests.confirm.vendors.discord import too_many
from tests.confirm.vendors.discord_chat import BOT, DiscordChat
from tests.confirm.vendors.slack import too_many as slack_too_many
from tests.confirm.vendors.slack_chat import BOT as SLACK_BOT
from tests.confirm.vendors.slack_chat import SlackChat
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, served
from tests.gateway.webhook_chat import WebhookChat
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined

RISKY = calls(("terminal", '{"command": "touch made"}')).tool_calls
DISCORD = '[[channel]]\nkind = "discord"\nbase_url = "{url}"\n\n[people.ann]\ndiscord = 7\nowner = true\n'
SLACK = '[[channel]]\nkind = "slack"\nbase_url = "{url}"\n\n[people.ann]\nslack = "U7"\nowner = true\n'


@contextmanager
def on(
    vendor: Any, file: str, folder: Path, script: list[ScriptedReply], **settings: object
) -> Iterator[GatewayProcess]:
    with vendor, PracticeServer(script=script) as model:
        process = GatewayProcess(folder / "home", file.format(url=vendor.url), model, **settings)
        with served(process):
            yield process


def test_discord_from_hello_to_buttons(tmp_path: Path) -> None:
    discord = DiscordChat()
    script = [
        ScriptedReply("**Hello** there @everyone."),
        ScriptedReply(tool_calls=RISKY),
        ScriptedReply("Made."),
        ScriptedReply("In the server."),
        ScriptedReply("x" * 4500),
    ]
    with on(discord, DISCORD, tmp_path, script, mode="ask") as process:
        discord.wait_connected()
        discord.write("hello")
        assert discord.wait_said("Hello") == ["**Hello** there @everyone."]
        assert next(iter(discord.messages.values()))["allowed_mentions"] == {"parse": []}
        discord.ask("make it", "touch made")
        query = discord.press_at("Allow once", user="9")
        assert "may not" in discord.answer(query)
        assert discord.answer(discord.press_at("Allow once")) == "Allowed once."
        discord.wait_said("Made.")
        assert (process.home / "work" / "made").exists()
        discord.write("not for you", chat="600", guild="1")
        discord.write(f"<@{BOT}> what about here", chat="600", guild="1")
        assert discord.wait_said("In the server.", chat="600") == ["In the server."]
        discord.write("much")
        discord.wait(lambda: sum(text.count("x") for text in discord.said()) >= 4500, "all of it")
        assert max(map(len, discord.said())) <= 2000 and discord.typing


def answered_and_stopped(discord: DiscordChat, process: GatewayProcess) -> None:
    """Serve until a first message has its answer."""
    with served(process):
        discord.wait_connected()
        discord.ask("first", "Answer 0.")


@pytest.mark.slow
def test_discord_catches_up_after_a_stop_and_repeats_no_send(tmp_path: Path) -> None:
    discord = DiscordChat()
    with discord, PracticeServer(script=[ScriptedReply(f"Answer {n}.") for n in range(4)]) as model:
        process = GatewayProcess(tmp_path / "home", DISCORD.format(url=discord.url), model, busy="queue")
        answered_and_stopped(discord, process)
        discord.write("while nobody was there")
        discord.write("and this")
        discord.fail_next("post", too_many(0.2), (503, {"message": "unavailable"}, {}))
        with served(process):
            discord.wait_said("Answer 2.")
            assert discord.said() == ["Answer 0.", "Answer 1.", "Answer 2."]
            discord.cut(4000)
            discord.wait(lambda: discord.resumed, "a resumed session")
            discord.ask("after the cut", "Answer 3.")


def test_discord_what_was_missed_comes_in_order_however_long_it_takes(tmp_path: Path) -> None:
    """Also in a server's channel, which the history does not say that it is."""
    discord = DiscordChat()
    script = [ScriptedReply(f"Answer {n}.") for n in range(4)]
    with discord, PracticeServer(script=script) as model:
        process = GatewayProcess(tmp_path / "home", DISCORD.format(url=discord.url), model, busy="queue")
        with served(process):
            discord.wait_connected()
            discord.ask(f"<@{BOT}> word-zero", "Answer 0.", "600", guild="1")
        discord.write("not for the bot", chat="600", guild="1")
        discord.write(f"<@{BOT}> word-one", chat="600", guild="1")
        trouble = (500, {"message": "trouble"}, {"retry-after": "0"})
        discord.fail_next("history", too_many(0.01), trouble, trouble)
        with served(process):
            discord.wait_connected()
            discord.write(f"<@{BOT}> word-two", chat="600", guild="1")  # it comes while one is still missing
            discord.wait_said("Answer 2.", chat="600")
            assert discord.said("600") == ["Answer 0.", "Answer 1.", "Answer 2."]
            bodies = [request.body.decode() for request in model.requests]
            assert ["word-one" in body for body in bodies] == [False, True, True] and "word-two" in bodies[2]
            assert not any("not for the bot" in body for body in bodies)


class _OneBroken(DiscordChat):
    """The history of channel 600 can't be had while `is_broken`."""

    is_broken = True

    async def _check(self, request: Request, method: str) -> Response | None:
        if self.is_broken and method == "history" and request.path_params["chat"] == "600":
            return JSONResponse({"message": "trouble"}, 500)
        return await super()._check(request, method)


@pytest.mark.slow
def test_discord_a_channel_that_can_not_be_read_holds_no_other_one_up(tmp_path: Path) -> None:
    discord = _OneBroken()
    script = [ScriptedReply(f"Answer {n}.") for n in range(4)]
    with discord, PracticeServer(script=script) as model:
        process = GatewayProcess(tmp_path / "home", DISCORD.format(url=discord.url), model)
        with served(process):
            discord.wait_connected()
            for number, chat in enumerate(("600", "601")):
                discord.ask(f"hello {chat}", f"Answer {number}.", chat)
        for chat in ("600", "601"):
            discord.write("missed", chat=chat)
        with served(process):
            discord.wait_said("Answer 2.", chat="601")
            assert len(discord.said("600")) == 1
            discord.is_broken = False
            discord.wait_said("Answer 3.", chat="600")


@pytest.mark.slow
def test_slack_from_hello_to_buttons(tmp_path: Path) -> None:
    slack = SlackChat()
    script = [
        ScriptedReply("**Hello** <there> & [you](https://example.org)."),
        ScriptedReply(tool_calls=RISKY),
        ScriptedReply("Made."),
        ScriptedReply("In the thread."),
        ScriptedReply("Got it."),
        calls(("send_file", '{"path": "received/a.txt"}')),
        ScriptedReply("Back."),
    ]
    with on(slack, SLACK, tmp_path, script, mode="ask") as process:
        slack.write("hello &amp; welcome")
        assert slack.wait_said("Hello") == ["*Hello* &lt;there&gt; &amp; <https://example.org|you>."]
        assert b"hello & welcome" in process.model.requests[-1].body
        slack.wait(lambda: not slack.pending, "everything acknowledged")
        slack.ask("make it", "touch made")
        slack.press_at("Allow once", user="U9")
        assert "may not" in slack.whisper()
        slack.press_at("Allow once")
        assert slack.whisper(1) == "Allowed once."
        slack.wait_said("Made.")
        slack.write("let me in", user="U7", user_team="T0OTHER")  # somebody else with the same id
        slack.write("let me in", user="U7", team="T0OTHER")
        slack.write("not for you", chat="C1")
        stamp = slack.write(f"<@{SLACK_BOT}> and here?", chat="C1")
        slack.wait_said("In the thread.", chat="C1")
        assert [m["thread_ts"] for m in slack.messages.values() if m["channel"] == "C1"] == [stamp]
        slack.ask("!title", "hello & welcome".replace("&", "&amp;"))
        slack.bring(
            {
                "type": "slash_commands",
                "payload": {"text": "usage", "user_id": "U7", "channel_id": "D1", "trigger_id": "t1"},
            }
        )
        slack.wait_said("tokens")
        slack.files["a.txt"] = b"alpha"
        file = {"url_private_download": f"{slack.url}/private/a.txt", "name": "a.txt", "size": 5}
        slack.ask("look", "Got it.", subtype="file_share", files=[file])
        stumbled = (500, {"ok": False}, {"retry-after": "0"})
        slack.fail_next("files.getUploadURLExternal", stumbled)  # nobody has seen anything: it is tried again
        slack.ask("back please", "Back.")
        slack.wait(lambda: slack.shared, "a shared file")
        assert list(slack.uploads.values()) == [b"alpha"]
        assert all(b"let me in" not in request.body for request in process.model.requests)


@pytest.mark.slow
def test_slack_replies_that_the_channel_sees_too_are_read_and_a_lost_thread_is_left(tmp_path: Path) -> None:
    slack = SlackChat()
    script = [ScriptedReply(f"Answer {number}.") for number in range(3)]
    with on(slack, SLACK, tmp_path, script) as process:
        stamp = slack.write(f"<@{SLACK_BOT}> one", chat="C1")
        slack.wait_said("Answer 0.", chat="C1")
        more = {"chat": "C1", "subtype": "thread_broadcast", "thread_ts": stamp}
        slack.write(f"<@{SLACK_BOT}> to all of you", **more)
        slack.wait_said("Answer 1.", chat="C1")
        assert b"to all of you" in process.model.requests[-1].body
        slack.fail_next("chat.postMessage", (200, {"ok": False, "error": "thread_not_found"}, {}))
        slack.write("waves", subtype="me_message", thread_ts="5.000001")
        slack.wait_said("Answer 2.")
        assert [m.get("thread_ts") for m in slack.messages.values() if m["channel"] == "D1"] == [None]


@pytest.mark.slow
def test_slack_brings_again_what_was_not_acknowledged(tmp_path: Path) -> None:
    slack = SlackChat()
    script = [ScriptedReply("Once."), ScriptedReply("Twice."), ScriptedReply("Thrice.")]
    with on(slack, SLACK, tmp_path, script, busy="queue"):
        stamp = slack.write("hello")
        slack.wait_said("Once.")
        slack.write("hello", ts=stamp)  # the same message in another envelope
        slack.ask_to_reconnect()
        slack.wait(lambda: slack.connections >= 2, "a new connection")
        slack.fail_next(
            "chat.postMessage", slack_too_many(0), (200, {"ok": False, "error": "service_unavailable"}, {})
        )
        slack.write("second")
        slack.ask("third", "Thrice.")
        assert slack.said() == ["Once.", "Twice.", "Thrice."]


FILES = {f"{number:02}.txt": b"file %d" % number for number in range(12)}
ALBUMS = [[*FILES][:10], [*FILES][10:]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["telegram", "discord", "slack"])
def test_many_files_go_out_as_albums_with_one_caption(tmp_path: Path, kind: str) -> None:
    first, *more = FILES
    asked = {"path": first, "caption": "all of them", "more": [*more, first]}
    script = [calls(("send_file", json.dumps(asked))), ScriptedReply("Done.")]
    chat, settings = {
        "telegram": (TelegramChat(), TELEGRAM),
        "discord": (DiscordChat(), DISCORD),
        "slack": (SlackChat(), SLACK),
    }[kind]
    with on(chat, settings, tmp_path, script) as process:
        for name, data in FILES.items():
            (process.home / "work" / name).write_bytes(data)
        if isinstance(chat, DiscordChat):
            chat.wait_connected()
        chat.ask("send me everything", "Done.")
        assert f"12 files are on their way: {', '.join(FILES)}.".encode() in process.model.requests[-1].body
        if isinstance(chat, TelegramChat):
            sent = chat.wait(lambda: len(chat.albums) == 2 and chat.albums, "two albums")
            assert [[part["name"] for part in album] for album in sent] == ALBUMS
            assert {part["name"]: part["data"] for album in sent for part in album} == FILES
            captions = [part["caption"] for album in sent for part in album if part["caption"]]
        elif isinstance(chat, DiscordChat):
            assert chat.wait(lambda: len(chat.albums) == 2 and chat.albums, "two messages") == ALBUMS
            assert dict(chat.uploads) == FILES
            captions = [text for text in chat.said() if text not in ("", "Done.")]
        else:
            shared = chat.wait(lambda: len(chat.shared) == 2 and chat.shared, "two messages")
            assert [[file["title"] for file in body["files"]] for body in shared] == ALBUMS
            assert [*chat.uploads.values()] == [*FILES.values()]
            captions = [body["initial_comment"] for body in shared if "initial_comment" in body]
        assert captions == ["all of them"]


@pytest.mark.slow
def test_a_signed_webhook_both_ways(tmp_path: Path) -> None:
    chat = WebhookChat()

    def post(number: str, data: dict[str, Any], *, kind: str = "message", **options: Any) -> int:
        return chat.post(data, kind=kind, number=number, **options)[0]

    script = [
        ScriptedReply("Hello."),
        ScriptedReply("Long one."),
        ScriptedReply("Got it."),
        ScriptedReply(tool_calls=RISKY),
        ScriptedReply("Made."),
    ]
    with on(chat, chat.gateway_file, tmp_path, script, mode="ask") as process:
        chat.wait_for_gateway()
        chat.fail_next("in", 503)
        assert post("a1", {"text": "hi"}) == 202
        assert post("a1", {"text": "hi"}) == 202  # brought again: the same message
        chat.wait_said("Hello.")
        assert post("a2", {"text": "forged"}, key=b"x" * 32) == 401
        assert post("a3", {"text": "old"}, at_s=time.time() - 1000) == 401
        assert httpx2.post(chat.gateway_url, content=b"{}").status_code == 401
        assert post("a4", {"text": "y" * 65_536}) == 202
        chat.wait_said("Long one.")
        assert b"y" * 60_000 in process.model.requests[-1].body
        assert httpx2.post(chat.gateway_url, content=b"z" * 8_100_000).status_code == 413
        attached = {"name": "a.txt", "base64": base64.b64encode(b"alpha").decode()}
        assert post("a5", {"text": "file", "files": [attached]}) == 202
        chat.wait_said("Got it.")
        assert (process.home / "work" / "received" / "a.txt").read_bytes() == b"alpha"
        assert post("a6", {"text": "make it"}) == 202
        chat.wait_said("touch made")
        press = chat.got[-1]["buttons"][0]["data"]
        assert post("a7", {"text": press}, kind="press") == 202
        assert chat.wait_said("Made.").count("Hello.") == 1
        assert chat.wrong == 0
