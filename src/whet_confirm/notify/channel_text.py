"""Adds a channel and a person's user id to the text of the channels file, which otherwise stays unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.contract.errors import ConfigError
from whet_confirm.notify.settings import ChannelsText, NotifyChannelText, parse_channels

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class NewChannel(msgspec.Struct, frozen=True):
    """A channel that may not be in the file yet: its kind, its chat, or the address of a webhook."""

    kind: str
    chat: str = ""
    url: str = ""

    def find(self, channels: ChannelsText) -> NotifyChannelText | None:
        """Return the entry of the file that posts to the same chat or address, or None."""
        for entry in channels.channel:
            target = (entry.kind, str(entry.chat), entry.settings.get("url", ""))
            if target == (self.kind, self.chat, self.url):
                return entry
        return None

    def free_name(self, channels: ChannelsText) -> str:
        """Return a name that no channel of the file has: the kind, with a number if necessary."""
        taken = {entry.name or entry.kind for entry in channels.channel}
        name, number = self.kind, 1
        while name in taken:
            number += 1
            name = f"{self.kind}{number}"
        return name


def add_channel(text: str, path: Path, channel: NewChannel, user: tuple[str, str]) -> str:
    """Return the file's text with the channel, and with the person's id on it.

    `user` is the person's name and user id; an empty id adds none. Raises ConfigError if the text can't be
    extended, for example because the person has another id.
    """
    channels = parse_channels(text, path)
    if channel.find(channels) is None:
        fields = {"kind": channel.kind, "name": channel.free_name(channels)}
        fields |= {"chat": channel.chat} if channel.chat else {}
        fields |= {"url": channel.url} if channel.url else {}
        text = _append(text, ["[[channel]]", *_lines(fields)])
    name, user_id = user
    person = channels.people.get(name)
    if user_id and (person is None or channel.kind not in person.ids):
        text = _add_person(text, name, {channel.kind: user_id})
    result = parse_channels(text, path)
    if user_id and str(result.people[name].ids.get(channel.kind)) != user_id:
        raise ConfigError(
            f"{path} has another {channel.kind} id for {name}", hint="change it there, under [people]"
        )
    return text


def _add_person(text: str, name: str, ids: Mapping[str, str]) -> str:
    """Add ids to the person's table, which is created if missing."""
    quoted = json.dumps(name)
    key = name if _BARE.fullmatch(name) else quoted
    table = re.compile(rf"^\[people\.(?:{re.escape(name)}|{re.escape(quoted)})\][^\n]*$", re.MULTILINE)
    if match := table.search(text):
        return "\n".join((text[: match.end()], *_lines(ids))) + text[match.end() :]
    return _append(text, [f"[people.{key}]", *_lines(ids)])


def _append(text: str, lines: list[str]) -> str:
    return "\n\n".join(part for part in (text.rstrip("\n"), "\n".join(lines)) if part) + "\n"


def _lines(fields: Mapping[str, str]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
