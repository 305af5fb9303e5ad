"""The channels file: which ways to people there are, and who is who on them.

TOML, read once at the start. Tokens are not in it: it names environment variables, which may stand in the
home's .env.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from whet.config.files import read_small
from whet.confirm.notify.buttons import DENY_REASONS, Buttons
from whet.confirm.notify.channel import NotifyChannel
from whet.confirm.notify.one_way import Apprise, WebhookNotifier
from whet.confirm.notify.telegram import TelegramNotifier
from whet.contract.errors import ConfigError

Kind = Literal["telegram", "discord", "slack", "apprise", "webhook"]
ORDER: tuple[Kind, ...] = ("telegram", "discord", "slack", "apprise", "webhook")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


class NotifyChannelText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[channel]]`. Which fields count depends on the kind; docs/confirm-channels.md has them."""

    kind: Kind
    name: str = ""
    chat: str | int = ""
    token_env: str = ""
    app_token_env: str = ""
    urls_env: str = ""
    url: str = ""
    secret_env: str = ""
    groups: tuple[str, ...] = ()
    deny_reasons: tuple[str, ...] = DENY_REASONS
    base_url: str = ""


class NotifyPersonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[people.NAME]`: the person's user ids. NAME is a principal: the name of an approve token."""

    telegram: str | int = ""
    discord: str | int = ""
    slack: str = ""


class ChannelsText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    channel: tuple[NotifyChannelText, ...] = ()
    people: dict[str, NotifyPersonText] = {}


class ConfiguredNotifier(msgspec.Struct, frozen=True):
    """A channel, its buttons, and the groups it serves; none means everybody."""

    channel: NotifyChannel
    buttons: Buttons
    groups: frozenset[str]


class People:
    """Who is who: a vendor's user id to a principal's name."""

    def __init__(self, people: Mapping[str, NotifyPersonText]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        for name, person in people.items():
            for kind in ("telegram", "discord", "slack"):
                user_id = str(getattr(person, kind))
                if not user_id:
                    continue
                if (other := self._names.get((kind, user_id))) is not None:
                    raise ConfigError(f"{kind} user {user_id} stands for both {other} and {name}")
                self._names[kind, user_id] = name

    def name(self, kind: str, user_id: str) -> str | None:
        """Give the principal's name; None for a stranger."""
        return self._names.get((kind, user_id))


def read_channels(path: Path, is_named: bool = False) -> ChannelsText:
    """Read the file; where there is none and nobody named it, there are no channels. Raises ConfigError."""
    text = read_small(path)
    if text is None and is_named:
        raise ConfigError(f"there is no channels file {path}", hint="docs/confirm-channels.md shows one")
    if text is None:
        return ChannelsText()
    try:
        return msgspec.convert(tomllib.loads(text), ChannelsText)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", hint="docs/confirm-channels.md shows the file") from error


def open_channels(text: ChannelsText, secrets: Mapping[str, str], key: bytes) -> list[ConfiguredNotifier]:
    """Make the channels, Telegram first, then Discord, then the others as they stand. Raises ConfigError."""
    seats: list[ConfiguredNotifier] = []
    for entry in sorted(text.channel, key=lambda found: ORDER.index(found.kind)):
        name = entry.name or entry.kind
        if not _NAME.fullmatch(name) or name == "log" or any(seat.channel.name == name for seat in seats):
            raise ConfigError(
                f"channel name {name!r} can't be used",
                hint="small letters, digits, . _ -; each name once; not `log`",
            )
        buttons = Buttons(key, name, entry.deny_reasons)
        seats.append(
            ConfiguredNotifier(_open(entry, name, secrets, buttons), buttons, frozenset(entry.groups))
        )
    return seats


def _open(entry: NotifyChannelText, name: str, secrets: Mapping[str, str], buttons: Buttons) -> NotifyChannel:
    address: dict[str, str] = {"base_url": entry.base_url} if entry.base_url else {}

    def secret(variable: str, usual: str) -> str:
        found = secrets.get(variable or usual, "").strip()
        if not found or not found.isprintable() or not found.isascii():
            raise ConfigError(
                f"channel {name}: {variable or usual} is not set", hint="set it in the environment or in .env"
            )
        return found

    if entry.kind == "apprise":
        return Apprise(name, secret(entry.urls_env, "APPRISE_URLS").split())
    if entry.kind == "webhook":
        return WebhookNotifier(
            name, _url(name, entry.url), secret(entry.secret_env, "CONFIRMATION_WEBHOOK_SECRET")
        )
    if not entry.chat:
        raise ConfigError(f"channel {name} has no chat", hint="the id of the chat or channel to post into")
    chat = str(entry.chat)
    if entry.kind == "telegram":
        return TelegramNotifier(name, secret(entry.token_env, "TELEGRAM_BOT_TOKEN"), chat, buttons, **address)
    if entry.kind == "discord":
        token = secret(entry.token_env, "DISCORD_BOT_TOKEN")
        return _vendor("discord", "Discord", name)(name, token, chat, buttons, **address)
    tokens = (secret(entry.token_env, "SLACK_BOT_TOKEN"), secret(entry.app_token_env, "SLACK_APP_TOKEN"))
    return _vendor("slack", "Slack", name)(name, tokens, chat, buttons, **address)


def _vendor(module: str, attribute: str, name: str) -> Any:
    # These two need websockets, an extra: imported only where they are configured.
    try:
        return getattr(importlib.import_module(f"whet.confirm.notify.{module}"), attribute)
    except ImportError as error:
        raise ConfigError(
            f"channel {name} needs websockets, which are not installed", hint=f"pip install 'whet[{module}]'"
        ) from error


def _url(name: str, url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"channel {name} has no url", hint="an address that starts with https://")
    return url
