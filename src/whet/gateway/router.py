"""Decide who may talk here, whose memory they use, and when a message in a group is answered.

A person who is neither in the gateway's file nor paired gets at most a pairing code. Only platform ids are
trusted, never display names.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Literal

import apsw
import msgspec

from whet.channels.tables import check_ids, ids_of, written_id
from whet.contract.channels import ChatPlace, Incoming
from whet.gateway.settings import GatewayChannelText, GatewayPersonText
from whet.store import chats, paired
from whet.store.paired import PairingRequest

CODE_S = 600
_ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
_MAX_PEOPLE = 5_000

Verdict = Literal["taken", "known", "ignored", "offered", "flooded"]
"""The outcome of an update: stored in the inbox, received before or handled, ignored, answered with a pairing
code, or over the rate limit."""


class ChatUser(msgspec.Struct, frozen=True):
    """A person who may talk here. `profile` names their memory, and `time_zone` their zone; empty means the
    owner's."""

    name: str
    profile: str
    approves: bool = False
    time_zone: str = ""


class Router:
    """Finds the person of an update, and limits their messages to `flood` per minute. Raises ConfigError if
    the id of a person does not name one of several workspaces."""

    def __init__(
        self, channels: Mapping[str, GatewayChannelText], people: Mapping[str, GatewayPersonText], flood: int
    ) -> None:
        self._channels = channels
        self._kinds = {name: text.kind for name, text in channels.items()}
        check_ids({name: text.ids for name, text in people.items()}, self._kinds)
        self._people: dict[tuple[str, str], ChatUser] = {}
        self._flood = flood
        self._recent: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        for name, text in people.items():
            person = ChatUser(name, "" if text.owner else name, text.approves or text.owner, text.time_zone)
            self._people |= {key: person for key in ids_of(text.ids).items()}

    def find_in_file(self, location: ChatPlace) -> ChatUser | None:
        """Return the person of a chat if the gateway's file lists them, or None."""
        user = written_id(location.channel, location.user, self._kinds)
        return self._people.get((self._kinds[location.channel], user))

    def person(self, connection: apsw.Connection, location: ChatPlace) -> ChatUser | None:
        """Return the person of a chat, or None for a stranger."""
        user = self.find_in_file(location)
        if user is None and paired.is_paired(connection, location.channel, location.user):
            user = ChatUser(location.user, _make_slug(f"{location.channel}-{location.user}"))
        return user

    def approvers(self, channel: str) -> list[tuple[str, str]]:
        """Return the people who may decide, as (channel, user), those of this channel first."""
        approvers: list[tuple[str, str]] = []
        for name in sorted(self._channels, key=lambda name: name != channel):
            for (kind, written), person in self._people.items():
                user = written.removeprefix(f"{name}:")
                is_here = kind == self._kinds[name] and written_id(name, user, self._kinds) == written
                if person.approves and is_here:
                    approvers.append((name, user))
        return approvers

    def profile(self, person: ChatUser, location: ChatPlace) -> str:
        """Return the profile whose memory a conversation uses. A group has its own profile, because others
        read the answers there."""
        if not location.is_group:
            return person.profile
        return _make_slug(f"{person.profile or 'owner'}.{location.channel}{location.chat}")

    def over_rate_limit(self, location: ChatPlace, now_s: float) -> int:
        """Count a person's message or edit, and return by how many they exceed the limit per minute."""
        key = (location.channel, location.user)
        times = self._recent.setdefault(key, deque())
        self._recent.move_to_end(key)
        while len(self._recent) > _MAX_PEOPLE:
            self._recent.popitem(last=False)
        while times and abs(now_s - times[0]) >= 60:  # the clock may have been set back
            times.popleft()
        times.append(now_s)
        if len(times) > self._flood + 50:
            times.popleft()
        return max(0, len(times) - self._flood)

    def is_for_us(self, update: Incoming) -> bool:
        """Return whether an update is in a private chat, or mentions the bot in a group where that counts."""
        if not update.place.is_group:
            return True
        return self._channels[update.place.channel].groups == "mention" and update.mentions_us

    def offer(self, connection: apsw.Connection, update: Incoming, code: str, now_ms: int) -> bool:
        """Store a pairing code for a stranger who writes to the bot privately. Returns False if none is
        offered."""
        location = update.place
        if location.is_group or not self._channels[location.channel].pairing:
            return False
        chat = chats.get_or_create_chat(connection, location)
        pairing = PairingRequest(
            location.channel, location.user, update.user_name[:100], now_ms, now_ms + CODE_S * 1000
        )
        return paired.store_code(connection, pairing, chat.id, code)


def new_code() -> str:
    """Return a new pairing code of two groups of four characters, which is easy to read out."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{letters[:4]}-{letters[4:]}"


def _make_slug(text: str) -> str:
    """Return a unique folder name for a text."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip(".-")[:40]
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
