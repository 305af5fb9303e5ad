"""The jail of an MCP server that a person configured: a private, persistent folder, and the network.

The person chose the program, and no repository can add one, so it may fetch its package and reach its
service. It sees neither the home nor the workspace, unless its command line or its settings name them. An
editor's servers run in the workspace's jail instead (`confining.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from urllib.parse import urlsplit

import msgspec

from whet.app.confining import list_named_openings
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
    """Return the jail of the server `name`, or None if it runs unconfined.

    The private folder is its HOME and its working directory. It may read the paths on its command line.
    Raises BadInput if an opening in the settings is invalid, StoreUnwritable if the folder can't be created.
    """
    if not server.confined:
        return None
    folder = _make_folder(server_folder(home, name))
    policy = confinement.policy(folder)
    certificates = {key: os.environ[key] for key in _CERTIFICATES if os.environ.get(key)}
    from_settings = [read_opening(text) for text in server.openings]
    needed = list_named_openings(server)
    needed += [Opening("read", os.path.realpath(path)) for path in certificates.values()]
    openings = [*(opening for opening in needed if not policy.allows(opening)), *from_settings]
    names_hosts = any(opening.kind == "reach" for opening in from_settings)
    if server.network or names_hosts:
        openings.append(Opening("reach", PRIVATE_TOO if names_hosts else EVERYWHERE))
    owner = "mcp " + msgspec.json.encode((name, server)).decode()
    confinement.add_openings(owner, openings)
    jail = confinement.jail(folder, owner)
    if jail is None:
        return None
    _link_toolchains(folder, policy, os.environ)
    variables = {"HOME": str(folder), "npm_config_cache": str(folder / ".npm"), **certificates}
    return ServerJail(jail, {**variables, **_without_logins(index_settings(os.environ))})


def server_folder(home: Home, name: str) -> Path:
    """Return the path of a server's private folder, which may not exist yet."""
    return home.servers / name


def remove_folder(home: Home, name: str) -> None:
    """Remove a server's private folder with its contents."""
    rmtree(server_folder(home, name), ignore_errors=True)


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(f"can't make the server's private folder {folder}: {error.strerror}") from error
    return folder.resolve()


def _link_toolchains(folder: Path, policy: SandboxPolicy, environment: Mapping[str, str]) -> None:
    """Link the folders of the person's home that hold programs of the search path, such as ~/.pyenv, into the
    server's HOME.

    Their programs find the rest of themselves by HOME. The server may have changed its folder, so a link is
    created only in the folder itself and replaces nothing.
    """
    user_home = Path(environment.get("HOME") or os.path.expanduser("~")).resolve()
    entries = [Path(entry).resolve() for entry in environment.get("PATH", "").split(os.pathsep) if entry]
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for toolchain in policy.read:
            if toolchain.parent == user_home and any(entry.is_relative_to(toolchain) for entry in entries):
                with contextlib.suppress(OSError):
                    os.symlink(toolchain, toolchain.name, dir_fd=handle)
    finally:
        os.close(handle)


def _without_logins(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose addresses have no user name, password or query, which may be secret."""

    def has_login(address: str) -> bool:
        url = urlsplit(address)
        return bool(url.username or url.password or url.query)

    return {name: value for name, value in variables.items() if not any(map(has_login, value.split()))}
