"""What of the confirmation service an agent must not touch: its files, its ports, the shape of its secrets.

For the gate, the sandbox and redaction, which forbid it; cheap to import. As long as the service runs as the
user that agents run as, these are what stands between an agent and its own approval.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from whet.late import late_pattern

API_PORT, PAGE_PORT = 6000, 6080
SOCKET = Path("/run/whet-confirm/api.sock")
INSTALLED = Path("/var/lib/whet-confirm")
TOKEN = r"wct_[A-Za-z0-9_-]{43}"
SECRETS = rf"{TOKEN}|whet-ed25519-[A-Za-z0-9_-]{{40,}}|whsec_[A-Za-z0-9+/=]{{16,}}"
_DECIDING = late_pattern(
    r"\bwhet(?:\s+-\S+(?:[= ]\S+)?)*\s+confirm\s+(?:approve|deny|serve|token|policy|prune|install)\b"
    r"|/confirm/[0-9A-Za-z$\{\}_*]{1,40}/(?:approve|deny|amend)\b|whet\.confirm\b"
)
_FILES = ("approve.token", "signing.key", "webhook.secret", "confirmations.db")


class ServiceBoundary(msgspec.Struct, frozen=True):
    """What belongs to the service. Below each of `paths` nothing may be read or written but `open_paths`; to
    none of `ports` and `sockets` an agent's program may connect. `secrets` is a regular expression."""

    paths: tuple[Path, ...]
    open_paths: tuple[Path, ...]
    ports: tuple[int, ...]
    sockets: tuple[Path, ...]
    secrets: str = SECRETS

    def forbids(self, path: Path) -> bool:
        """Whether a path, its links followed, is the service's."""
        real = Path(os.path.realpath(path))
        if any(real == Path(os.path.realpath(one)) for one in self.open_paths):
            return False
        return any(real == one or one in real.parents for one in map(_real, (*self.paths, *self.sockets)))

    def touched_by(self, text: str) -> str:
        """Say what of the service a command's text names, "" for nothing. A text can be written so that this
        finds nothing: the sandbox forbids the same paths and ports, whatever the text is."""
        if re.search(self.secrets, text):
            return "a secret of the confirmation service"
        if found := _DECIDING.search(text):
            return found[0]
        for name in (*map(str, self.paths), *map(str, self.sockets), *_FILES, "WHET_HOME/confirm"):
            if name in text:
                return name
        for port in self.ports:
            if re.search(
                rf"(?<![\w.])(?:127(?:\.\d+){{1,3}}|localhost|0|::1|\[::1?\]|0\.0\.0\.0)\W{{0,3}}{port}\b",
                text,
            ):
                return f"port {port}"
        return ""


def boundary_of(
    home: Path, *, database: Path | None = None, ports: tuple[int, ...] = (API_PORT, PAGE_PORT)
) -> ServiceBoundary:
    """Give what is the service's in a home, and where an installed one is."""
    folder, db = home / "confirm", database or home / "confirmations.db"
    files = tuple(Path(f"{db}{end}") for end in ("", "-wal", "-shm", "-journal"))
    return ServiceBoundary((folder, *files, INSTALLED), (folder / "submit.token",), ports, (SOCKET,))


def is_same_user(folder: Path) -> bool:
    """Whether the service's files belong to the user who asks, who could then approve as anybody."""
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
