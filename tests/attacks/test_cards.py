"""A card that a platform can't show whole has no button that approves, whatever its texts are made of."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.confirm.test_words import asked
from tests.confirm.vendors import discord, slack, telegram
from whet.channels.discord import Discord
from whet.channels.slack import Slack
from whet.channels.telegram import Telegram
from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.chat import ChatNotices
from whet_confirm.notify.notice_text import build_notice

HARM = "rm -rf /srv/data"
TEXTS: dict[str, tuple[str, str]] = {
    "backticks before it": ("`" * 1_200, "deploy"),
    "backticks in the description": ("", "```" * 200),
    "backticks everywhere": ("`" * 1_000, "``` " * 150),
    "entities": ("&" * 1_300, "<&>" * 200),
    "marks": ("*_~|>#" * 200, "*_~|" * 150),
    "emoji": ("\U0001f600" * 600, "\U0001f600" * 300),
    "emoji that take two units": ("\U0001f600" * 740, "deploy"),
    "hidden letters": ("\u200b" * 180, "\u202e" * 60),
    "look-alikes": ("\u0430\u0435\u0440" * 100, "\u0435" * 200),
    "combining marks": ("e\u0301" * 600, "deploy"),
    "line ends": ("\n" * 700, "\n" * 300),
    "tabs and returns": ("\r\t" * 300, "deploy"),
    "spoilers": ("||" * 500, "||"),
    "plain and long": ("x" * 1_400, "y" * 690),
    "plain and too long": ("x" * 5_000, "deploy"),
}
ATTEMPTS = [(platform, name) for platform in ("discord", "slack", "telegram") for name in TEXTS]


def _open(platform: str) -> tuple[Any, Callable[[str], Any], str]:
    """Return a platform's server, a function that makes its channel, and a chat."""
    if platform == "discord":
        return discord.DiscordServer(), lambda url: Discord("c", discord.TOKEN, url), discord.CHAT
    if platform == "slack":
        tokens = (slack.BOT_TOKEN, slack.APP_TOKEN)
        return slack.SlackServer(), lambda url: Slack("c", tokens, url), slack.CHAT
    return telegram.TelegramServer(), lambda url: Telegram("c", telegram.TOKEN, url), "-1001"


def _read(message: dict[str, Any]) -> tuple[str, bool]:
    """Return what a person reads, and whether there is a button that approves."""
    text = json.dumps(message, ensure_ascii=False)
    if embeds := message.get("embeds"):
        shown = embeds[0]["description"]
        assert shown.count("```") % 2 == 0, "a code block that is open or was ended by its own text"
    elif blocks := message.get("blocks"):
        shown = json.dumps(blocks, ensure_ascii=False)
    else:
        shown = html.unescape(re.sub(r"<[^>]*>", "", message["text"]))
    return shown, "Approve" in text.replace("Approval", "").replace("to approve", "")


@pytest.mark.parametrize("platform", ["discord", "slack", "telegram"])
async def test_no_card_is_approved_that_does_not_show_all_of_it(platform: str) -> None:
    effects: list[str] = []
    server, make, chat = _open(platform)
    with server:
        channel = make(server.url)
        notices = ChatNotices("c", channel, chat, Buttons(b"k" * 32, "c"))
        for number, (name, (filler, description)) in enumerate(TEXTS.items()):
            details = json.dumps({"a": filler, "command": HARM}, ensure_ascii=False)
            request = asked(id=f"r{number}", details_json=details, description=description)
            await notices.send(build_notice(request, link=""))
            assert len(server.messages) == number + 1
            shown, may_approve = _read(list(server.messages.values())[-1])
            if may_approve and HARM not in shown:
                effects.append(name)
        await channel.aclose()
    assert effects == []
