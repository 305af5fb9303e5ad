"""Settings become the confinement of a program's commands, and of the MCP servers that it starts.

It does not know how confinement is held, nor who is asked for more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.config.paths import Home
from whet.config.schema import McpServerSettings, SandboxSettings
from whet.confirm.boundary import INSTALLED, SOCKET
from whet.sandbox.backend import read_backend
from whet.sandbox.confinement import Confinement, ConfinementSettings
from whet.sandbox.hosts import named_hosts
from whet.sandbox.jail import Jail
from whet.sandbox.places import Wishes
from whet.sandbox.policy import Opening, SandboxLimits, read_opening


def confine(
    home: Home, settings: SandboxSettings, environment: Mapping[str, str] | None = None
) -> Confinement:
    """Make what gives commands their jails. Nothing is started."""
    source = os.environ if environment is None else environment
    wishes = Wishes(
        write=settings.write,
        read=settings.read,
        hosts=named_hosts(settings.hosts, source),
        limits=SandboxLimits(settings.memory_mb, settings.processes, settings.file_mb),
        sealed=(INSTALLED, SOCKET.parent),
    )
    backend = read_backend(settings.backend)
    return Confinement(ConfinementSettings(settings.mode, home.whole, wishes, backend), source)


def server_jail(confinement: Confinement, workspace: Path, server: McpServerSettings) -> Jail | None:
    """Give the jail of an MCP server that is started, with the openings that its settings name; None where
    it gets all rights. What its command line names may be read. Raises BadInput for what opens nothing."""
    if not server.confined:
        return None
    whose = "mcp " + msgspec.json.encode(server).decode()
    # A folder that is opened costs the jail its own Unix sockets: what may be read anyway is not opened.
    known = confinement.policy(workspace)
    named = [one for one in _named(server) if not known.allows(one)]
    confinement.open(whose, [*named, *(read_opening(text) for text in server.openings)])
    return confinement.jail(workspace, whose)


def _named(server: McpServerSettings) -> list[Opening]:
    """Give what a server's command line names: a folder, or the folder of a program or script of its own."""
    person = Path(os.path.expanduser("~")).resolve()
    found: list[Opening] = []
    for text in (server.command, *server.args, server.cwd):
        path = Path(os.path.expanduser(text.rpartition("=")[2]))
        if not path.is_absolute() or not path.exists():
            continue
        place = path.resolve()
        folder = place if place.is_dir() else place.parent
        holds_home = person.is_relative_to(folder)
        if not (holds_home and place == folder):
            found.append(Opening("read", str(place if holds_home else folder)))
    return found
