"""Store the login that a server last asked for, so that `whet mcp login` can request exactly that.

A server may accept the handshake and refuse only a list or one call because a login or a right (scope) is
missing. Only that answer contains the details. An invalid file counts as missing.
"""

from __future__ import annotations

import re

import msgspec

from whet.config import paths
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.mcp.kept import challenge_path

_MAX_CHARS = 4_000


class Challenge(msgspec.Struct, frozen=True):
    """A WWW-Authenticate header and the URL it came from."""

    url: str = ""
    header: str = ""

    def parameter(self, name: str) -> str:
        """Return one of its parameters, or an empty string."""
        match = re.search(rf'(?i)\b{name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', self.header)
        return (match[1] or match[2] or "") if match else ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The requested scopes, in the server's order."""
        return tuple(dict.fromkeys(self.parameter("scope").split()))

    @property
    def wants_more(self) -> bool:
        """Whether a login exists but lacks a right."""
        return self.parameter("error") == "insufficient_scope"


def store_challenge(home: paths.Home, name: str, challenge: Challenge) -> None:
    """Store a challenge. Does nothing if the home can't be written; then a login requests the server's
    defaults."""
    text = msgspec.json.encode(msgspec.structs.replace(challenge, header=challenge.header[:_MAX_CHARS]))
    try:
        home.ensure()
        paths.replace_file(challenge_path(home, name), text.decode(), mode=0o600)
    except WhetError:
        return


def read_challenge(home: paths.Home, name: str, url: str) -> Challenge:
    """Return the last challenge of the server at `url`, or an empty one."""
    try:
        text = paths.read_small(challenge_path(home, name))
        stored = from_json(text, Challenge) if text else Challenge()
    except (WhetError, *NOT_JSON):
        return Challenge()
    return stored if stored.url == url else Challenge()
