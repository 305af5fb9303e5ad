"""Create the confinement of a program's commands, and of an editor's MCP servers, from the settings.

This module neither enforces a sandbox nor asks the person for more openings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings, SandboxSettings
from whet.sandbox.backend import ConfinementSettings, read_backend
from whet.sandbox.confinement import Confinement
from whet.sandbox.hosts import expand_hosts
from whet.sandbox.path_rules import read_path_rules
from whet.sandbox.policy import Opening, SandboxLimits, read_opening
from whet.sandbox.system_folders import PolicyAdditions
from whet_confirm.boundary import INSTALLED, SOCKET

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail

_PACKAGES = ("package.json", "pyproject.toml")


def confine(
    home: Home,
    settings: SandboxSettings,
    environment: Mapping[str, str] | None = None,
    *,
    deny: Sequence[str] = (),
) -> Confinement:
    """Create the object that puts commands into sandboxes. The sandboxes protect the files of the `deny`
    rules. Starts nothing."""
    source = os.environ if environment is None else environment
    additions = PolicyAdditions(
        write=settings.write,
        read=settings.read,
        hosts=expand_hosts(settings.hosts, source),
        limits=SandboxLimits(settings.memory_mb, settings.processes, settings.file_mb),
        sealed=(INSTALLED, SOCKET.parent),
    )
    backend = read_backend(settings.backend)
    return Confinement(
        ConfinementSettings(settings.mode, home.main_root, additions, backend, read_path_rules(deny)), source
    )


def server_jail(confinement: Confinement, workspace: Path, server: McpServerSettings) -> Jail | None:
    """Return the sandbox of an MCP server, with the openings from its settings, or None if the server runs
    unconfined.

    Paths on its command line may be read. Raises BadInput if an opening in the settings is invalid.
    """
    if not server.confined:
        return None
    key = "mcp " + msgspec.json.encode(server).decode()
    # A sandbox with an opened folder loses its own Unix sockets, so readable paths are not opened.
    policy = confinement.policy(workspace)
    openings = [opening for opening in list_named_openings(server) if not policy.allows(opening)]
    confinement.add_openings(key, [*openings, *(read_opening(text) for text in server.openings)])
    return confinement.jail(workspace, key)


def guards_links(confinement: Confinement, workspace: Path) -> bool:
    """Return whether the sandbox keeps commands from writing files of the workspace that have a hard link in
    another folder. The next command looks for such files again.

    Waits for the sandbox's first test, which takes less time than needless copies would."""
    if not confinement.is_local or not confinement.status().holds:
        return False
    from whet.sandbox.hardlinks import links_of  # noqa: PLC0415 - a record's beginning needs it

    links_of(confinement.policy(workspace)).expect_changes()
    return True


def hold_folders(
    confinement: Confinement, workspace: Path, record: Callable[[frozenset[str]], None]
) -> frozenset[str]:
    """Return the folders of linked packages in a workspace. Before a command writes to one of them, `record`
    is called with those that are still protected."""
    if not confinement.is_local or not confinement.status().holds:
        return frozenset()
    from whet.sandbox.hardlinks import links_of  # noqa: PLC0415 - as above

    return links_of(confinement.policy(workspace)).hold_trees(record)


def list_named_openings(server: McpServerSettings) -> list[Opening]:
    """Return openings for the paths on a server's command line: a folder, or a program or script with the
    folders that it is installed in. A folder that contains the person's home is never opened."""
    user_home = Path(os.path.expanduser("~")).resolve()
    openings: list[Opening] = []
    for text in (server.command, *server.args, server.cwd):
        path = Path(os.path.expanduser(text.rpartition("=")[2]))
        if not path.is_absolute() or not path.exists():
            continue
        # A program is looked up by the given name, so a link's own folder is opened as well as its target.
        named = path.parent.resolve() / path.name
        for target in dict.fromkeys((named, path.resolve())):
            folders = [target] if target.is_dir() else [target.parent, *find_install_folders(target)]
            allowed = [folder for folder in folders if not user_home.is_relative_to(folder)]
            if not allowed and not user_home.is_relative_to(target):
                allowed = [target]
            openings += [Opening("read", str(folder)) for folder in allowed]
    return list(dict.fromkeys(openings))


def find_install_folders(program: Path) -> list[Path]:
    """Return the folders that a program needs besides its own: its `node_modules`, its package or project,
    its Python environment and the installation of that environment's interpreter."""
    folders = [
        path for path in program.parents if path.name == "node_modules" or (path / "pyvenv.cfg").is_file()
    ]
    package = next(
        (path for path in program.parents if any((path / name).is_file() for name in _PACKAGES)), None
    )
    if package is not None and not any(package.is_relative_to(path) for path in folders):
        folders.append(package)
    interpreters = [
        (path / "bin" / "python").resolve() for path in folders if (path / "pyvenv.cfg").is_file()
    ]
    return folders + [path.parents[1] for path in interpreters if path.is_file()]
