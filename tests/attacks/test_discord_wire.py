"""Discord's own wire: gateway frames with odd fields, other users' and other apps' messages and presses. None
answers the owner's question or reaches the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.vendors.discord_chat import BOT, DiscordChat
from tests.gateway.test_channels import DISCORD, RISKY, on
from whet_lab.practice.script import ScriptedReply

pytestmark = [pytest.mark.unconfined, pytest.mark.slow]
OWNER = {"id": "7", "username": "ann"}
STRANGER = {"id": "9", "username": "ann"}


def _message(**fields: Any) -> tuple[str, Any]:
    event: dict[str, Any] = {
        "id": "88",
        "channel_id": "500",
        "type": 0,
        "author": STRANGER,
        "content": "yes",
        "mentions": [],
    }
    return "MESSAGE_CREATE", event | fields


def _press(data: str, **fields: Any) -> tuple[str, Any]:
    event = {
        "id": "99", "application_id": "1", "type": 3, "token": "t", "channel_id": "500",
        "data": {"custom_id": data, "component_type": 2}, "message": {"id": "1"}, "user": STRANGER,
    }  # fmt: skip
    return "INTERACTION_CREATE", event | fields


ATTEMPTS: dict[str, Callable[[str], tuple[str, Any]]] = {
    "a stranger's yes": lambda _: _message(),
    "a bot with the owner's id": lambda _: _message(author={**OWNER, "bot": True}),
    "a webhook with the owner's name": lambda _: _message(
        author={"id": "9", "username": "7"}, webhook_id="9"
    ),
    "an author that is a list": lambda _: _message(author=[OWNER]),
    "an author whose id is a number": lambda _: _message(author={"id": 7, "username": "ann"}),
    "an author without id": lambda _: _message(author={"username": "ann"}),
    "the owner's id with a nought before it": lambda _: _message(author={"id": "07"}),
    "the owner's id in wide digits": lambda _: _message(author={"id": "\uff17"}),
    "no author": lambda _: _message(author=None),
    "a system message of the owner": lambda _: _message(author=OWNER, type=7),
    "a thread's beginning by the owner": lambda _: _message(author=OWNER, type=21),
    "the owner in another channel": lambda _: _message(author=OWNER, channel_id="600", guild_id="1"),
    "a stranger's answer to us": lambda _: _message(
        referenced_message={"author": {"id": BOT}, "content": "x"}
    ),
    "a yes of the owner's from before the question": lambda _: _message(id="1", author=OWNER),
    "a forward of the owner's yes": lambda _: _message(
        content="", message_snapshots=[{"message": {"content": "yes", "author": OWNER}}]
    ),
    "a stranger's command": lambda _: _message(content="/approve once"),
    "an edit without an author": lambda _: (
        "MESSAGE_UPDATE",
        {"id": "1", "channel_id": "500", "content": "yes", "edited_timestamp": "2026"},
    ),
    "an edit of the owner's by a bot": lambda _: (
        "MESSAGE_UPDATE",
        {
            "id": "1",
            "channel_id": "500",
            "author": {**OWNER, "bot": True},
            "content": "yes",
            "edited_timestamp": "1",
        },
    ),
    "a deletion of a message that never was": lambda _: ("MESSAGE_DELETE", {"id": "4", "channel_id": "500"}),
    "a stranger's press": _press,
    "a stranger's press with the owner as user": lambda data: _press(
        data, member={"user": STRANGER}, user=OWNER
    ),
    "a press of nobody": lambda data: _press(data, user=None),
    "a press with a member without user": lambda data: _press(data, user=None, member={}),
    "the owner's press in another channel": lambda data: _press(data, user=OWNER, channel_id="600"),
    "the owner's press of a command": lambda data: _press(data, user=OWNER, type=2),
    "the owner's press of a form": lambda data: _press(data, user=OWNER, type=5),
    "the owner's ping": lambda data: _press(data, user=OWNER, type=1),
    "a press with another mark": lambda data: _press(data.partition(":")[0] + ":a", user=OWNER),
    "a press with a long mark": lambda data: _press(f"{data}:1", user=OWNER),
    "a press of a made up word": lambda _: _press("AAAAAAAAAAAA:1", user=OWNER),
    "a press whose id leads elsewhere": lambda data: _press(data, id="../../channels/500/messages?x="),
    "data that is a list": lambda data: ("INTERACTION_CREATE", [data]),
    "an event without a name": lambda data: ("", _press(data, user=OWNER)[1]),
    "an event in other letters": lambda data: ("interaction_create", _press(data, user=OWNER)[1]),
    "a second hello to another user": lambda _: ("READY_SUPPLEMENTAL", {"user": OWNER}),
}


def test_no_frame_of_others_answers_the_owners_question(tmp_path: Path) -> None:
    discord = DiscordChat()
    script = [ScriptedReply(tool_calls=RISKY), ScriptedReply("Denied then.")]
    with on(discord, DISCORD, tmp_path, script, mode="ask") as gateway:
        discord.wait_connected()
        discord.ask("make it", "touch made")
        buttons = [
            button
            for message in discord.messages.values()
            for row in message.get("components", [])
            for button in row["components"]
        ]
        data = next(button["custom_id"] for button in buttons if "Allow once" in button["label"])
        for make in ATTEMPTS.values():
            discord.call(discord.dispatch(*make(data)))
        discord.write("no")  # taken after all of them
        discord.wait_said("Denied then.")
        assert not list(gateway.home.rglob("made"))
        assert not any("messages?x" in call for call in discord.calls)
