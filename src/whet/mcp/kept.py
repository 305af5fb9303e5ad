"""Store each server's tool list in the home, so that a session can begin without contacting the server.

A list is valid only for the same command and address. A failed first contact is stored for five minutes, so
that a broken server delays only one start. An invalid file counts as missing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from whet.config import paths
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.mcp.listing import Catalogue

_LARGEST_BYTES = 8 * 1024 * 1024
RETRY_AFTER_MS = 5 * 60 * 1000


class KeptListing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's last list and its time. `failure`: why a later attempt to reach the server failed."""

    config: str
    at_ms: int
    tools: list[Any] = []
    offers: tuple[str, ...] = ()
    server: str = ""
    version: str = ""
    failure: str = ""

    @property
    def catalogue(self) -> Catalogue:
        """The server's tools and offers."""
        return Catalogue(self.tools, self.offers)


def config_digest(settings: McpServerSettings) -> str:
    """Return a digest of the settings that identify a server."""
    identity = (settings.command, settings.args, settings.env, settings.cwd, settings.url, settings.headers)
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:32]


def servers_folder(home: Home) -> Path:
    """Return the folder of the lists and logins of servers."""
    return home.root / "mcp"


def read_stored(home: Home, name: str, settings: McpServerSettings) -> KeptListing | None:
    """Return the stored listing of the server of these settings, or None."""
    try:
        path = servers_folder(home) / f"{name}.json"
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return None
        stored = from_json(path.read_bytes(), KeptListing)
    except (OSError, *NOT_JSON):
        return None
    return stored if stored.config == config_digest(settings) else None


def store_failure(home: Home, name: str, settings: McpServerSettings, failure: str, now_ms: int) -> None:
    """Store why a server can't be reached. Keeps its existing list."""
    before = read_stored(home, name, settings)
    if before is None:
        before = KeptListing(config_digest(settings), now_ms)
    write_stored(home, name, msgspec.structs.replace(before, at_ms=now_ms, failure=failure))


def write_stored(home: Home, name: str, listing: KeptListing) -> bool:
    """Store a listing. Returns False if the home can't be written; then the next start contacts the server
    again."""
    try:
        home.ensure()
        paths.replace_file(
            servers_folder(home) / f"{name}.json", msgspec.json.encode(listing).decode(), mode=0o600
        )
    except WhetError:
        return False
    return True


def challenge_path(home: Home, name: str) -> Path:
    """Return the path of a server's stored challenge."""
    return servers_folder(home) / f"{name}.challenge.json"


def delete_stored(home: Home, name: str) -> None:
    """Delete everything stored about a server, including its login."""
    for path in (servers_folder(home) / f"{name}.json", servers_folder(home) / f"{name}.login.json"):
        path.unlink(missing_ok=True)
    challenge_path(home, name).unlink(missing_ok=True)
