"""Names the files, ports and secrets with which an agent could approve its own actions.

They belong to the confirmation service and to Whet's other servers, where people approve too. The gate, the
sandbox and redaction forbid access to them. If the service runs as the same user as the agents, nothing else
prevents an agent from approving its own actions. This module is cheap to import.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from whet.late import late_pattern

API_PORT, PAGE_PORT = 6000, 6080
_PORT_NAMES = {
    API_PORT: "the default port of whet confirm serve",
    PAGE_PORT: "the default port of the confirmation service's page",
    6090: "the default port of whet serve and whet gateway",
}
SOCKET = Path("/run/whet-confirm/api.sock")
INSTALLED = Path("/var/lib/whet-confirm")
TOKEN = r"wct_[A-Za-z0-9_-]{43}"
SECRETS = rf"{TOKEN}|whet-ed25519-[A-Za-z0-9_-]{{40,}}|whsec_[A-Za-z0-9+/=]{{16,}}"
_DECIDING = late_pattern(
    r"\bwhet(?:\s+-\S+(?:[= ]\S+)?)*\s+confirm\s+(?:approve|deny|serve|token|policy|prune|install|setup)\b"
    r"|/confirm/[0-9A-Za-z$\{\}_*]{1,40}/(?:approve|deny|amend)\b|whet[._]confirm\b(?!/)"
)
_FILES = ("approve.token", "signing.key", "webhook.secret", "confirmations.db")


class ServiceBoundary(msgspec.Struct, frozen=True):
    """The files, ports, sockets and secrets of the service.

    Below each of `paths` nothing may be read or written except `open_paths`. An agent's programs may not
    connect to `ports`, some of which are those of Whet's other servers, or `sockets`. `secrets` is a regular
    expression.
    """

    paths: tuple[Path, ...]
    open_paths: tuple[Path, ...]
    ports: tuple[int, ...]
    sockets: tuple[Path, ...]
    secrets: str = SECRETS

    def forbids(self, path: Path) -> bool:
        """Return whether a path, after following its links, belongs to the service."""
        real = Path(os.path.realpath(path))
        if any(real == Path(os.path.realpath(candidate)) for candidate in self.open_paths):
            return False
        return any(
            real == candidate or candidate in real.parents
            for candidate in map(_real, (*self.paths, *self.sockets))
        )

    def touched_by(self, text: str) -> str:
        """Return the part of the service that a command's text names, or an empty string.

        This is not exhaustive: a text can disguise a name. The sandbox forbids the same paths and ports
        whatever the text is.
        """
        if re.search(self.secrets, text):
            return "a secret of the confirmation service"
        if match := _DECIDING.search(text):
            return match[0]
        for name in (*map(str, self.paths), *map(str, self.sockets), *_FILES, "WHET_HOME/confirm"):
            if name in text:
                return name
        for port in self.ports:
            if re.search(
                rf"(?<![\w.])(?:127(?:\.\d+){{1,3}}|localhost|0|::1|\[::1?\]|0\.0\.0\.0)\W{{0,3}}{port}\b",
                text,
            ):
                return f"port {port}, {_PORT_NAMES.get(port, 'the port of confirm.url')}"
        return ""


def boundary_of(home: Path, *, ports: tuple[int, ...] = (API_PORT, PAGE_PORT)) -> ServiceBoundary:
    """Return the boundary of the service in a home, including the location of an installed service."""
    folder = home / "confirm"
    files = tuple(home / f"confirmations.db{end}" for end in ("", "-wal", "-shm", "-journal"))
    return ServiceBoundary((folder, *files, INSTALLED), (folder / "submit.token",), ports, (SOCKET,))


def is_same_user(folder: Path) -> bool:
    """Return whether the service's files belong to the current user, who could then approve as anyone."""
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
