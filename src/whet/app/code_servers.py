"""Run language servers in a running program, each in a jail of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from whet.app.confining import find_install_folders, list_named_openings
from whet.config.permission_settings import McpServerSettings
from whet.config.schema import Settings
from whet.contract.errors import ToolError
from whet.file_names import printable
from whet.late import LatePart
from whet.lsp.kinds import ServerProgram
from whet.lsp.service import CodeService
from whet.sandbox.confinement import Confinement
from whet.sandbox.path_rules import read_path_rules
from whet.tools.shell import command_environment

if TYPE_CHECKING:
    from whet.sandbox.jail import Started
    from whet.sandbox.policy import SandboxPolicy

_LIMITED = 'ulimit -d "$0" 2>/dev/null; exec "$@"'


def open_code_service(settings: Settings, confinement: LatePart[Confinement]) -> CodeService:
    """Return the service that starts a program's language servers when they are needed."""

    def spawn(root: Path, found: ServerProgram) -> Started:
        return _spawn(confinement.get(), settings, root, found)

    return CodeService(settings.lsp, read_path_rules(settings.approval.deny), spawn)


def _spawn(confinement: Confinement, settings: Settings, root: Path, found: ServerProgram) -> Started:
    """Start a server in a jail of its own: it may read the same files as commands of the workspace, and write
    only to a private folder. Raises ToolError if it can't be confined or started."""
    from whet.sandbox.jail import JailedCommand  # noqa: PLC0415 - only where a server is started

    program, owner = found.command[0], f"lsp {root} {found.kind.name}"
    if not Path(program).is_relative_to(root):
        server = McpServerSettings(command=program, args=found.command[1:])
        confinement.add_openings(owner, list_named_openings(server))
    else:
        _check_readable(confinement.policy(root, owner), root, found)
    jail = confinement.jail(root, owner, read_only=True) if confinement.is_local else None
    if jail is None:
        raise ToolError(f"{found.name} runs only in a sandbox on this machine, and there is none")
    own = {"CARGO_TARGET_DIR": "/tmp/cargo", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    environment = jail.environment({**command_environment(os.environ), **own})
    limit = str(settings.lsp.server_memory_mb * 1024) if settings.lsp.server_memory_mb else "unlimited"
    argv = ["/bin/sh", "-c", _LIMITED, limit, *found.command]
    try:
        return jail.spawn_with_pipes(JailedCommand(argv, environment, root))
    except OSError as error:
        raise ToolError(f"{found.name} can't be started: {error.strerror}") from error


def _check_readable(policy: SandboxPolicy, root: Path, found: ServerProgram) -> None:
    """Raise ToolError if a link in the workspace leads to a program that the sandbox can't read. A repository
    can contain such a link, so its target is not opened without the person's consent."""
    program = Path(found.command[0]).resolve()
    if program.is_relative_to(root):
        return
    for folder in (*find_install_folders(program), program.parent):
        if not policy.may_read(folder):
            raise ToolError(
                f"{found.name} is outside the workspace, where the sandbox can't read it; add "
                f"{printable(str(folder))} to the setting sandbox.read"
            )
