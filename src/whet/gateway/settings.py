"""Read the gateway's file, which lists its channels and the people on them, and open the channels.

The file is TOML. It holds no tokens, but the names of environment variables, which may be set in the home's
.env.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from whet.channels.loading import account_of, open_channel
from whet.channels.tables import Ids, convert_tables
from whet.config.paths import read_small
from whet.contract.channels import Channel
from whet.contract.errors import ConfigError
from whet.contract.forms import FORMS

Groups = Literal["off", "mention"]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_RESERVED = ("api-", "stranger-")  # used for the memories of the API's guests and of paired people
_HINT = '[[channel]] and kind = "telegram" (or another platform) begin it'


class GatewayChannelText(msgspec.Struct, frozen=True):
    """One `[[channel]]`.

    With `pairing`, strangers get a code, with which the owner can let them in. If `groups` is "mention",
    permitted people are answered in groups when they mention the bot. `settings` are the platform's own.
    """

    kind: str
    name: str = ""
    pairing: bool = True
    groups: Groups = "mention"
    settings: dict[str, Any] = {}


class GatewayPersonText(msgspec.Struct, frozen=True):
    """One `[people.NAME]`: the ids of a person on each platform.

    An `owner` uses the home's memory and folder. A person who `approves` may decide on permissions; an owner
    always may. `time_zone` is the zone of the times in their conversations; empty means the owner's.
    """

    ids: Ids = {}
    owner: bool = False
    approves: bool = False
    time_zone: str = ""


class GatewayText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    channel: tuple[GatewayChannelText, ...] = ()
    people: dict[str, GatewayPersonText] = {}


class ConfiguredChannel(msgspec.Struct, frozen=True):
    """An open channel, its settings, and its tokens, which only one process may use."""

    channel: Channel
    text: GatewayChannelText
    secrets: tuple[str, ...]


def parse_gateway(text: str) -> GatewayText:
    """Read the file's text. Raises ConfigError."""
    try:
        return convert_tables(tomllib.loads(text), GatewayText, GatewayChannelText, GatewayPersonText)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(str(error), hint=_HINT) from error


def read_gateway(path: Path) -> GatewayText:
    """Read the file. Raises ConfigError, also if the file is missing or has no channel."""
    text = read_small(path)
    if text is None:
        raise ConfigError(f"there is no gateway file {path}", hint=_HINT)
    try:
        gateway = parse_gateway(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint or _HINT) from error
    if not gateway.channel:
        raise ConfigError(f"{path} has no channel", hint=_HINT)
    zone = FORMS["zone"]
    for name, person in gateway.people.items():
        if person.time_zone and not zone.is_valid(person.time_zone):
            raise ConfigError(
                f"{path}: people.{name}: there is no time zone {person.time_zone!r}", hint=zone.allowed
            )
        if not _NAME.fullmatch(name) or name.startswith(_RESERVED):
            raise ConfigError(
                f"{path}: {name!r} can't be a person's name",
                hint=f"small letters, digits and -; not {' or '.join(_RESERVED)} at the beginning",
            )
    return gateway


def open_channels(text: GatewayText, secrets: Mapping[str, str]) -> list[ConfiguredChannel]:
    """Open the channels. Raises ConfigError if a name or bot occurs twice or a token is not set."""
    configured_channels: list[ConfiguredChannel] = []
    names_by_account: dict[tuple[object, ...], str] = {}
    for entry in text.channel:
        name = entry.name or entry.kind
        if not _NAME.fullmatch(name) or any(
            configured.channel.name == name for configured in configured_channels
        ):
            raise ConfigError(
                f"channel name {name!r} can't be used", hint="small letters, digits and -; each name once"
            )
        channel, tokens = open_channel(entry.kind, name, entry.settings, secrets)
        account = account_of(entry.kind, entry.settings, tokens)
        if tokens and (other := names_by_account.setdefault(account, name)) != name:
            raise ConfigError(
                f"channels {other} and {name} are the same on {entry.kind}",
                hint="one channel hears every chat that its bot is in: remove the other, or give it a bot",
            )
        configured_channels.append(ConfiguredChannel(channel, entry, tokens))
    return configured_channels
