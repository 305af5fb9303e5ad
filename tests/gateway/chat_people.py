"""A person on each chat platform: writes, edits, deletes and reacts through a server that speaks its
protocol."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.confirm.vendors.discord_chat import DiscordChat
from tests.confirm.vendors.slack_chat import SlackChat
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess
from tests.gateway.test_channels import DISCORD, SLACK, on
from tests.gateway.webhook_chat import WebhookChat
from whet_lab.practice.script import ScriptedReply


class Person(Protocol):
    """One person alone with the bot. `write` returns what names the message."""

    deletes: bool

    def write(self, text: str) -> Any: ...
    def edit(self, message: Any, text: str) -> None: ...
    def delete(self, message: Any) -> None: ...
    def react(self, *, removed: bool = False) -> None:
        """React with a thumb to the bot's last message."""
        ...

    def wait_said(self, text: str) -> object: ...


def ask(person: Person, text: str, answer: str) -> None:
    """Have a person write, and wait until the bot said `answer`."""
    person.write(text)
    person.wait_said(answer)


class OnTelegram:
    deletes = False

    def __init__(self, server: TelegramChat) -> None:
        self.server = server
        self.wait_said = server.wait_said

    def write(self, text: str) -> int:
        self.server.write(text)
        return self.server.newest

    def edit(self, message: int, text: str) -> None:
        self.server.rewrite(message, text)

    def delete(self, message: int) -> None:
        raise NotImplementedError

    def react(self, *, removed: bool = False) -> None:
        before, now = ([], ["👍"])[:: -1 if removed else 1]
        self.server.react(self.server.sends[-1]["id"], before, now)


class OnDiscord:
    deletes = True

    def __init__(self, server: DiscordChat) -> None:
        self.server = server
        self.wait_said = server.wait_said
        server.wait_connected()

    def write(self, text: str) -> dict[str, Any]:
        return self.server.write(text)

    def edit(self, message: dict[str, Any], text: str) -> None:
        self.server.change(message, text)

    def delete(self, message: dict[str, Any]) -> None:
        self.server.change(message, "")

    def react(self, *, removed: bool = False) -> None:
        self.server.react(list(self.server.messages)[-1], {"id": None, "name": "👍"}, removed=removed)


class OnSlack:
    deletes = True

    def __init__(self, server: SlackChat) -> None:
        self.server = server
        self.wait_said = server.wait_said
        self._numbers = itertools.count()

    def write(self, text: str) -> str:
        return self.server.write(text)

    def edit(self, message: str, text: str) -> None:
        self._change(message, "message_changed", text)

    def delete(self, message: str) -> None:
        self._change(message, "message_deleted", "")

    def react(self, *, removed: bool = False) -> None:
        item = {"type": "message", "channel": "D1", "ts": list(self.server.messages)[-1]}
        event = {"type": f"reaction_{'removed' if removed else 'added'}", "user": "U7", "reaction": "+1"}
        event |= {"item": item, "item_user": "U0BOT", "event_ts": f"1700000008.{next(self._numbers)}"}
        self.server.bring({"type": "events_api", "payload": {"event": event}})

    def _change(self, stamp: str, kind: str, text: str) -> None:
        old = {"type": "message", "user": "U7", "text": self.server.written[stamp]["text"], "ts": stamp}
        event = {"type": "message", "subtype": kind, "channel": "D1"}
        event |= {"ts": f"1700000009.{next(self._numbers)}", "previous_message": old}
        if text:
            event["message"] = {**old, "text": text}
        self.server.bring({"type": "events_api", "payload": {"event": event}})


class OnWebhook:
    deletes = True

    def __init__(self, chat: WebhookChat) -> None:
        self.chat = chat
        self.wait_said = chat.wait_said
        chat.wait_for_gateway()

    def write(self, text: str) -> str:
        return self.chat.write(text)

    def edit(self, message: str, text: str) -> None:
        assert self.chat.post({"text": text, "message": message}, kind="edit")[0] == 202

    def delete(self, message: str) -> None:
        assert self.chat.post({"message": message}, kind="edit")[0] == 202

    def react(self, *, removed: bool = False) -> None:
        reaction = {"text": "👍", "message": self.chat.got[-1]["id"], "removed": removed}
        assert self.chat.post(reaction, kind="reaction")[0] == 202


PLATFORMS = ("telegram", "discord", "slack", "webhook")


@contextmanager
def person_on(
    platform: str, folder: Path, script: list[ScriptedReply], **settings: object
) -> Generator[tuple[Person, GatewayProcess]]:
    settings.setdefault("flood_per_minute", 500)
    if platform == "telegram":
        telegram = TelegramChat()
        with on(telegram, TELEGRAM, folder, script, **settings) as gateway:
            yield OnTelegram(telegram), gateway
    elif platform == "discord":
        discord = DiscordChat()
        with on(discord, DISCORD, folder, script, **settings) as gateway:
            yield OnDiscord(discord), gateway
    elif platform == "slack":
        slack = SlackChat()
        with on(slack, SLACK, folder, script, **settings) as gateway:
            yield OnSlack(slack), gateway
    else:
        chat = WebhookChat()
        with on(chat, chat.gateway_file, folder, script, **settings) as gateway:
            yield OnWebhook(chat), gateway
