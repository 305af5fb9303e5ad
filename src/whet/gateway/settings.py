"""The gateway's file: which channels there are, and who is who on them.

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
from whet.contract.errors import ConfigError
from whet.gateway.channel import GatewayChannel

Kind = Literal["telegram", "discord", "slack", "webhook"]
Groups = Literal["off", "mention"]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_TAKEN = ("api-", "stranger-")  # memories of guests of the API, and of people who were let in once
_HINT = '[[channel]] and kind = "telegram" (or discord, slack, webhook) begin it; docs/gateway.md has all'
_OPENERS: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "telegram": ("whet.gateway.telegram:open_channel", ("TELEGRAM_BOT_TOKEN",)),
    "discord": ("whet.gateway.discord:open_channel", ("DISCORD_BOT_TOKEN",)),
    "slack": ("whet.gateway.slack:open_channel", ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN")),
    "webhook": ("whet.gateway.webhook:open_channel", ("GATEWAY_WEBHOOK_SECRET",)),
}


class GatewayChannelText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[channel]]`. `pairing`: strangers get a code that lets them in once somebody accepts it;
    `groups`: mention answers in groups whoever is let in and names the bot. A webhook listens on
    `listen` and posts to `url`."""

    kind: Kind
    name: str = ""
    token_env: str = ""
    app_token_env: str = ""
    base_url: str = ""
    pairing: bool = True
    groups: Groups = "mention"
    listen: str = "127.0.0.1:6090"
    url: str = ""


class GatewayPersonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[people.NAME]`: the ids by which somebody is known on each channel. `owner`: the home's memory and
    folder are theirs. `approves`: they may allow what needs a decision; an owner may."""

    telegram: str | int = ""
    discord: str | int = ""
    slack: str = ""
    webhook: str = ""
    owner: bool = False
    approves: bool = False


class GatewayText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    channel: tuple[GatewayChannelText, ...] = ()
    people: dict[str, GatewayPersonText] = {}


class ConfiguredChannel(msgspec.Struct, frozen=True):
    """A channel as it is configured, and the digest of its token, under which one process may use it."""

    channel: GatewayChannel
    text: GatewayChannelText
    secrets: tuple[str, ...]


def read_gateway(path: Path) -> GatewayText:
    """Read the file. Raises ConfigError, also where there is none or it has no channel."""
    text = read_small(path)
    if text is None:
        raise ConfigError(f"there is no gateway file {path}", hint=_HINT)
    try:
        read = msgspec.convert(tomllib.loads(text), GatewayText)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", hint=_HINT) from error
    if not read.channel:
        raise ConfigError(f"{path} has no channel", hint=_HINT)
    for name in read.people:
        if not _NAME.fullmatch(name) or name.startswith(_TAKEN):
            raise ConfigError(
                f"{path}: {name!r} can't be a person's name",
                hint=f"small letters, digits and -; not {' or '.join(_TAKEN)} at the beginning",
            )
    return read


def open_channels(text: GatewayText, secrets: Mapping[str, str]) -> list[ConfiguredChannel]:
    """Make the channels. Raises ConfigError for a name that stands twice and a token that is not set."""
    seats: list[ConfiguredChannel] = []
    for entry in text.channel:
        name = entry.name or entry.kind
        if not _NAME.fullmatch(name) or any(seat.channel.name == name for seat in seats):
            raise ConfigError(
                f"channel name {name!r} can't be used", hint="small letters, digits and -; each name once"
            )
        opener, usual = _OPENERS[entry.kind]
        named = (entry.token_env or usual[0], *([entry.app_token_env or usual[1]] if usual[1:] else []))
        tokens = tuple(_secret(name, variable, secrets) for variable in named)
        channel: GatewayChannel = _load(entry.kind, opener)(name, tokens, entry)
        seats.append(ConfiguredChannel(channel, entry, tokens))
    return seats


def _secret(channel: str, variable: str, secrets: Mapping[str, str]) -> str:
    found = secrets.get(variable, "").strip()
    if not found or not found.isprintable() or not found.isascii():
        raise ConfigError(
            f"channel {channel}: {variable} is not set", hint="set it in the environment or in .env"
        )
    return found


def _load(kind: Kind, opener: str) -> Any:
    # Only what is configured is imported: Discord and Slack need websockets, an extra.
    module, _, attribute = opener.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(
            f"channel {kind} needs what is not installed ({error.name})", hint=f"pip install 'whet[{kind}]'"
        ) from error
