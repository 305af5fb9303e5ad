"""What each server's tools were when last asked, kept in the home, so that a session can begin without it.

A list belongs to the settings that it was made with: another command or address makes it void. A failed first
contact is kept for a while too, so that a broken server holds up one start and not each. A file that can't be
read counts as none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from whet.config import paths
from whet.config.paths import Home
from whet.config.schema import McpServerSettings
from whet.contract.errors import WhetError
from whet.contract.texts import NOT_JSON, from_json
from whet.mcp.listing import Catalogue

_LARGEST_BYTES = 8 * 1024 * 1024
RETRY_AFTER_MS = 5 * 60 * 1000


class KeptListing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's list as it last came, and the time. `failure`: why it could not be reached since, or at all;
    the list from before then stays."""

    config: str
    at_ms: int
    tools: list[Any] = []
    offers: tuple[str, ...] = ()
    server: str = ""
    version: str = ""
    failure: str = ""

    @property
    def catalogue(self) -> Catalogue:
        """What the server said it has."""
        return Catalogue(self.tools, self.offers)


def config_digest(settings: McpServerSettings) -> str:
    """Give what identifies the server that these settings reach."""
    what = (settings.command, settings.args, settings.env, settings.cwd, settings.url, settings.headers)
    return hashlib.sha256(msgspec.json.encode(what, order="sorted")).hexdigest()[:32]


def folder(home: Home) -> Path:
    """Give where lists and logins of servers are kept."""
    return home.root / "mcp"


def read_kept(home: Home, name: str, settings: McpServerSettings) -> KeptListing | None:
    """Give what is kept of the server that `settings` reach; None for nothing."""
    try:
        path = folder(home) / f"{name}.json"
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return None
        kept = from_json(path.read_bytes(), KeptListing)
    except (OSError, *NOT_JSON):
        return None
    return kept if kept.config == config_digest(settings) else None


def keep_failure(home: Home, name: str, settings: McpServerSettings, failure: str, now_ms: int) -> None:
    """Keep why a server can't be reached, beside the list that is there."""
    before = read_kept(home, name, settings)
    if before is None:
        before = KeptListing(config_digest(settings), now_ms)
    write_kept(home, name, msgspec.structs.replace(before, at_ms=now_ms, failure=failure))


def write_kept(home: Home, name: str, kept: KeptListing) -> bool:
    """Keep it; False where the home can't be written, which only costs the next start a contact."""
    try:
        home.ensure()
        paths.replace(folder(home) / f"{name}.json", msgspec.json.encode(kept).decode(), mode=0o600)
    except WhetError:
        return False
    return True


def challenge_path(home: Home, name: str) -> Path:
    """Give where it is kept which login a server last wanted."""
    return folder(home) / f"{name}.challenge.json"


def forget_kept(home: Home, name: str) -> None:
    """Remove what is kept of a server, its login included."""
    for path in (folder(home) / f"{name}.json", folder(home) / f"{name}.login.json"):
        path.unlink(missing_ok=True)
    challenge_path(home, name).unlink(missing_ok=True)
