"""Callers on a Unix socket: the kernel identifies their user, so no token is needed that could be stolen."""

from __future__ import annotations

import pwd
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from whet.contract.errors import ConfigError
from whet_confirm.records import Caller, Role

Peers = Mapping[int, Caller]


def find_peers(approvers: Iterable[str], submitters: Iterable[str]) -> Peers:
    """Map user ids of this machine to callers.

    Raises ConfigError for an unknown user name, and for a user who would both submit and decide.
    """
    peers: dict[int, Caller] = {}
    groups: tuple[tuple[Role, Iterable[str]], ...] = (("approve", approvers), ("submit", submitters))
    for role, names in groups:
        for name in names:
            uid, user = _find_user(name)
            if uid in peers and peers[uid].role != role:
                raise ConfigError(
                    f"{user} would ask and decide",
                    hint="let agents run as a user of their own: --submitter NAME",
                )
            peers[uid] = Caller(user, role, f"uid:{uid}")
    return peers


def _find_user(name: str) -> tuple[int, str]:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if name.isdigit():
            return int(name), f"uid-{name}"
        raise ConfigError(f"there is no user {name!r} on this machine", hint="getent passwd") from None
    return entry.pw_uid, entry.pw_name


def listen_at(path: Path) -> socket.socket:
    """Open the socket. Any user may connect; the kernel identifies them. Raises ConfigError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            path.unlink()
        sock.bind(str(path))
        path.chmod(0o666)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise ConfigError(f"can't listen at {path}: {error.strerror or error}") from error
    sock.setblocking(False)
    return sock
