"""The channels file: the configured channels, and the user ids of people on them.

TOML, read once at the start. It contains no tokens: it names environment variables, which may be set in
the home's .env. Chat platforms are loaded in the same way as the gateway's; `apprise` and `webhook` belong
to this service and are one-way.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from whet.channels.loading import IsolatedChannel, account_of, open_channel, platform_secrets, read_secret
from whet.channels.tables import Ids, check_ids, convert_tables, ids_of, written_id
from whet.config.paths import read_small
from whet.contract.errors import ConfigError
from whet.contract.texts import from_values
from whet_confirm.notify.buttons import DENY_REASONS, Buttons
from whet_confirm.notify.chat import ChatNotices
from whet_confirm.notify.notice import NoticeChannel
from whet_confirm.notify.one_way import Apprise, WebhookNotifier

_ONE_WAY = ("apprise", "webhook")
CHANNELS_HINT = (
    'a channel is [[channel]] with kind = "telegram" (slack, discord, apprise, webhook) and chat = -100123;'
    " a person is [people.NAME] with telegram = 123, NAME as in whet confirm token list"
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


class NotifyChannelText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[channel]]`, as documented in docs/confirm-channels.md.

    `chat` is the chat to post to; `settings` are the platform's other settings. After `after_s`, a request is
    sent here if no device has acknowledged it.
    """

    kind: str
    name: str = ""
    chat: str | int = ""
    groups: tuple[str, ...] = ()
    deny_reasons: tuple[str, ...] = DENY_REASONS
    after_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    settings: dict[str, Any] = {}


class _OneWayText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    urls_env: str = "APPRISE_URLS"
    url: str = ""
    secret_env: str = "CONFIRMATION_WEBHOOK_SECRET"


class NotifyPersonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[people.NAME]`: the person's user ids. NAME is a principal: the name of an approve token."""

    ids: Ids = {}


class ChannelsText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    channel: tuple[NotifyChannelText, ...] = ()
    people: dict[str, NotifyPersonText] = {}


class ConfiguredNotifier(msgspec.Struct, frozen=True):
    """A channel with its platform, its buttons and the groups that it serves (empty: everyone).

    `listener` names the channel that receives its presses: itself, or the first one of the same bot.
    `after_s` is how long it waits for a device to acknowledge a request. `failure` is the reason why the
    channel is off, such as an extra that is not installed, or empty.
    """

    channel: NoticeChannel
    kind: str
    buttons: Buttons
    groups: frozenset[str]
    listener: str
    after_s: float = 0.0
    failure: str = ""


class People:
    """Maps a platform's user ids to principals. `kinds` are the platforms of the bots. Raises ConfigError."""

    def __init__(self, people: Mapping[str, NotifyPersonText], kinds: Mapping[str, str]) -> None:
        check_ids({name: person.ids for name, person in people.items()}, kinds)
        self._kinds = kinds
        self._names: dict[tuple[str, str], str] = {}
        for name, person in people.items():
            for kind, user_id in ids_of(person.ids).items():
                if (other := self._names.get((kind, user_id))) is not None:
                    raise ConfigError(f"{kind} user {user_id} stands for both {other} and {name}")
                self._names[kind, user_id] = name

    def name(self, bot: str, user_id: str) -> str | None:
        """Return the name of the principal that uses a bot, or None if the user is unknown."""
        return self._names.get((self._kinds[bot], written_id(bot, user_id, self._kinds)))


def read_channels(path: Path, is_named: bool = False) -> ChannelsText:
    """Read the file, or return no channels if it does not exist.

    Raises ConfigError if the file is invalid, or if it is missing and the user named it (`is_named`).
    """
    text = read_small(path)
    if text is None and is_named:
        raise ConfigError(f"there is no channels file {path}", hint=CHANNELS_HINT)
    return parse_channels(text or "", path)


def parse_channels(text: str, path: Path) -> ChannelsText:
    """Parse the text of the file `path`. Raises ConfigError."""
    try:
        return convert_tables(tomllib.loads(text), ChannelsText, NotifyChannelText, NotifyPersonText)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}", hint=CHANNELS_HINT) from error


def secret_names(kind: str) -> tuple[str, ...]:
    """Return the variables that a channel of this kind reads unless its entry names others.

    Raises ConfigError if there is no such platform, or its extra is not installed.
    """
    if kind not in _ONE_WAY:
        return platform_secrets(kind)
    text = _OneWayText()
    return (text.urls_env if kind == "apprise" else text.secret_env,)


def open_channels(text: ChannelsText, secrets: Mapping[str, str], key: bytes) -> list[ConfiguredNotifier]:
    """Create the channels, those with buttons first, otherwise in the file's order. Raises ConfigError."""
    notifiers: list[ConfiguredNotifier] = []
    bots: dict[tuple[object, ...], IsolatedChannel] = {}
    for entry in sorted(text.channel, key=lambda entry: entry.kind in _ONE_WAY):
        name = entry.name or entry.kind
        if (
            not _NAME.fullmatch(name)
            or name == "log"
            or any(notifier.channel.name == name for notifier in notifiers)
        ):
            raise ConfigError(
                f"channel name {name!r} can't be used",
                hint="small letters, digits, . _ -; each name once; not `log`",
            )
        buttons = Buttons(key, name, entry.deny_reasons)
        listener = name
        if entry.kind in _ONE_WAY:
            channel = _one_way(entry, name, secrets)
            failure = channel.failure
        else:
            bot = _bot(entry, name, secrets, bots)
            channel, listener = ChatNotices(name, bot, str(entry.chat), buttons), bot.name
            failure = bot.failure
        groups = frozenset(entry.groups)
        notifiers.append(
            ConfiguredNotifier(channel, entry.kind, buttons, groups, listener, entry.after_s, failure)
        )
    return notifiers


def _bot(
    entry: NotifyChannelText,
    name: str,
    secrets: Mapping[str, str],
    bots: dict[tuple[object, ...], IsolatedChannel],
) -> IsolatedChannel:
    """Open a chat's bot. Chats of one bot share it: a platform sends each press to one listener."""
    bot, tokens = open_channel(entry.kind, name, entry.settings, secrets)
    if not entry.chat:
        raise ConfigError(
            f"channel {name} has no chat", hint="set chat to the id of the chat or channel to post into"
        )
    return bots.setdefault(account_of(entry.kind, entry.settings, tokens), bot) if tokens else bot


def _one_way(entry: NotifyChannelText, name: str, secrets: Mapping[str, str]) -> Apprise | WebhookNotifier:
    try:
        settings = from_values(entry.settings, _OneWayText)
    except msgspec.ValidationError as error:
        raise ConfigError(f"channel {name}: {error}") from error
    if entry.kind == "apprise":
        return Apprise(name, read_secret(name, settings.urls_env, secrets).split())
    if not settings.url.startswith(("https://", "http://")):
        raise ConfigError(
            f"channel {name} has no url", hint="set url to an address that starts with https://"
        )
    return WebhookNotifier(name, settings.url, read_secret(name, settings.secret_env, secrets))
