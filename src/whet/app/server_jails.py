"""The jail of an MCP server that a person configured: a private folder that survives, and the network.

Such a server is a program that the person chose and that no repository can add, so it may fetch its package
and reach its service. It sees neither the home nor the workspace, unless its command line or its settings
name them. Servers that an editor brings have the workspace's jail instead (`confining.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import rmtree
from urllib.parse import urlsplit

import msgspec

from whet.app.confining import named_by
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import StoreUnwritable
from whet.mcp.stdio import ServerJail
from whet.sandbox.confinement import Confinement
from whet.sandbox.hosts import index_settings
from whet.sandbox.policy import EVERYWHERE, PRIVATE_TOO, Opening, SandboxPolicy, read_opening

_CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)


def own_server_jail(
    confinement: Confinement, home: Home, name: str, server: McpServerSettings
) -> ServerJail | None:
    """Return what the server `name` of a person runs in, or None if it gets all rights.

    Its private folder is its HOME and its working directory. What its command line names may be read. Raises
    BadInput for an opening that says nothing, StoreUnwritable if the folder can't be made.
    """
    if not server.confined:
        return None
    folder = _ready_folder(server_folder(home, name))
    policy = confinement.policy(folder)
    certificates = {key: os.environ[key] for key in _CERTIFICATES if os.environ.get(key)}
    asked = [read_opening(text) for text in server.openings]
    grants = [*named_by(server), *(Opening("read", os.path.realpath(path)) for path in certificates.values())]
    openings = [*(opening for opening in grants if not policy.allows(opening)), *asked]
    names_hosts = any(opening.kind == "reach" for opening in asked)
    if server.network or names_hosts:
        openings.append(Opening("reach", PRIVATE_TOO if names_hosts else EVERYWHERE))
    whose = "mcp " + msgspec.json.encode((name, server)).decode()
    confinement.add_openings(whose, openings)
    jail = confinement.jail(folder, whose)
    if jail is None:
        return None
    _link_toolchains(folder, policy, os.environ)
    variables = {"HOME": str(folder), "npm_config_cache": str(folder / ".npm"), **certificates}
    return ServerJail(jail, {**variables, **_without_logins(index_settings(os.environ))})


def server_folder(home: Home, name: str) -> Path:
    """Return the private folder of a server, whether it is there or not."""
    return home.servers / name


def remove_folder(home: Home, name: str) -> None:
    """Remove a server's private folder with all that it stored there."""
    rmtree(server_folder(home, name), ignore_errors=True)


def _ready_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(f"can't make the server's private folder {folder}: {error.strerror}") from error
    return folder.resolve()


def _link_toolchains(folder: Path, policy: SandboxPolicy, environment: Mapping[str, str]) -> None:
    """Link what the search path leads to below the person's home, as ~/.pyenv, into the server's HOME.

    Programs there look for the rest of themselves by HOME. The server may have changed its folder, so a link
    is made in the folder itself only and replaces nothing.
    """
    person = Path(environment.get("HOME") or os.path.expanduser("~")).resolve()
    entries = [Path(entry) for entry in environment.get("PATH", "").split(os.pathsep) if entry]
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for toolchain in _used(policy.read, entries):
            if toolchain.parent == person:
                with contextlib.suppress(OSError):
                    os.symlink(toolchain, toolchain.name, dir_fd=handle)
    finally:
        os.close(handle)


def _used(granted: Iterable[Path], entries: Iterable[Path]) -> list[Path]:
    real = [entry.resolve() for entry in entries]
    return [folder for folder in granted if any(entry.is_relative_to(folder) for entry in real)]


def _without_logins(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses that hold no user name, password or query: those may be secret."""
    kept: dict[str, str] = {}
    for name, value in variables.items():
        parts = [urlsplit(url) for url in value.split()]
        if not any(part.username or part.password or part.query for part in parts):
            kept[name] = value
    return kept
