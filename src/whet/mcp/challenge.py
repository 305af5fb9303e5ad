"""What a server last said of the login that it wants, kept so that `whet mcp login` can ask for just that.

A server may let the handshake pass and refuse a list or one call only, for want of a login or of a right
(scope). What it then says comes with that answer and with no other. A file that can't be read counts as none.
"""

from __future__ import annotations

import re

import msgspec

from whet.config import paths
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.mcp.kept import challenge_path

_LONGEST_CHARS = 4_000


class Challenge(msgspec.Struct, frozen=True):
    """A WWW-Authenticate header, and the url that it came from."""

    url: str = ""
    header: str = ""

    def parameter(self, name: str) -> str:
        """Give one of its parameters; empty where it has none of that name."""
        found = re.search(rf'(?i)\b{name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', self.header)
        return (found[1] or found[2] or "") if found else ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The rights that it wants, in its order."""
        return tuple(dict.fromkeys(self.parameter("scope").split()))

    @property
    def wants_more(self) -> bool:
        """Whether there was a login, and it lacks a right."""
        return self.parameter("error") == "insufficient_scope"


def keep_challenge(home: Home, name: str, challenge: Challenge) -> None:
    """Keep it; where the home can't be written, a login asks for what the server says by itself."""
    text = msgspec.json.encode(msgspec.structs.replace(challenge, header=challenge.header[:_LONGEST_CHARS]))
    try:
        home.ensure()
        paths.replace(challenge_path(home, name), text.decode(), mode=0o600)
    except WhetError:
        return


def read_challenge(home: Home, name: str, url: str) -> Challenge:
    """Give what the server at `url` last wanted; an empty one for nothing."""
    try:
        text = paths.read_small(challenge_path(home, name))
        kept = from_json(text, Challenge) if text else Challenge()
    except (WhetError, *NOT_JSON):
        return Challenge()
    return kept if kept.url == url else Challenge()
