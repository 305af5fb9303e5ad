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
from whet.sandbox.confinement import Confinement, ConfinementSettings
from whet.sandbox.hosts import named_hosts
from whet.sandbox.jail import Jail
from whet.sandbox.places import Wishes
from whet.sandbox.policy import SandboxLimits, read_opening


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
    )
    return Confinement(ConfinementSettings(settings.mode, whole_home(home), wishes), source)


def whole_home(home: Home) -> Path:
    """Give the folder that holds every profile."""
    above = home.root.parent
    return above.parent if above.name == "profiles" else home.root


def server_jail(confinement: Confinement, workspace: Path, server: McpServerSettings) -> Jail | None:
    """Give the jail of an MCP server that is started, with the openings that its settings name; None where
    it gets all rights. Raises BadInput for an opening that is none."""
    if not server.confined:
        return None
    whose = "mcp " + msgspec.json.encode(server).decode()
    confinement.open(whose, [read_opening(text) for text in server.openings])
    return confinement.jail(workspace, whose)
