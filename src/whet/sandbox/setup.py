"""Combine an engine, a policy and private folders into a launcher's command line and first message.

Decides how home, temporary folder and environment look inside. Starts nothing.
"""

from __future__ import annotations

import marshal
import os
import platform
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from whet.sandbox.bubblewrap import bubblewrap_arguments
from whet.sandbox.filter import SUPERVISED, filter_program
from whet.sandbox.landlock import landlock_rules
from whet.sandbox.mounts import plan_mounts
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch
from whet.sandbox.sockets import find_foreign_sockets
from whet.sandbox.status import Engine
from whet.shell.programs import ProgramWords

# Variables that lead to outside programs: agents that hold keys, desktops, containers.
_OUTSIDE_VARIABLES = ProgramWords(
    """
SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DISPLAY
WAYLAND_DISPLAY XAUTHORITY XDG_RUNTIME_DIR DOCKER_HOST CONTAINER_HOST TMUX STY VSCODE_IPC_HOOK_CLI
VSCODE_GIT_IPC_HANDLE SSH_CONNECTION SSH_TTY
"""
)
LAUNCHER_IMPORTS = ("descriptors", "watch", "kernel")
"""Modules of this package that the launcher imports, in the order in which they are sent along with it."""
# Reads the modules' code from its input, the launcher's last. This interpreter is of the version that has
# compiled it.
LAUNCH = """\
import marshal, sys
*modules, (_, launcher) = marshal.load(open(0, "rb", closefd=False))
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(code, vars(module))
exec(launcher)
"""
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")
_LISTEN = (317, 277)  # the number of `seccomp`
_NO_PROXY_HOSTS = "localhost,127.0.0.1,::1"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP")


class JailPlan(msgspec.Struct, frozen=True):
    """The plan of one sandbox. `home` is the person's home.

    `aside_folder` receives files that are moved aside and outlives the session. If None, the private
    folder is used, which does not. `held` folders of the workspace are read-only until a command is about to
    write there.
    """

    engine: Engine
    policy: SandboxPolicy
    scratch: Scratch
    home: Path
    aside_folder: Path | None = None
    held: tuple[str, ...] = ()

    @property
    def aside(self) -> Path:
        """The folder to which the guard moves files."""
        return self.aside_folder or self.scratch.root / "aside"

    def command(self) -> list[str]:
        """Return the launcher's command line, without the socket's number."""
        bare = [_interpreter(), "-I", "-S", "-c", LAUNCH]
        if self.engine.name != "bubblewrap":
            return bare
        inside = bubblewrap_arguments(
            self.engine.program, self._mount_policy(), self.scratch, self.home, self.held
        )
        return [*inside, *bare]

    def setup(self) -> bytes:
        """Return the launcher's first message."""
        message: dict[str, Any] = {
            "filter": filter_program(
                platform.machine(),
                own_network=self.engine.own_network,
                unix=self.policy.unix,
                asks=bool(self.held),
            ),
            "limits": self._limits(),
        }
        if self.engine.name == "landlock":
            rules = landlock_rules(
                self.policy, self.engine.abi, self._private(), own_network=self.engine.namespaces
            )
            message |= {"handled": rules.handled, "rules": rules.granted, "scoped": rules.scoped}
        if self.engine.name == "landlock" and not self.engine.namespaces:
            which = 0 if platform.machine() == "x86_64" else 1
            message["supervised"] = {
                "calls": {str(pair[which]): name for name, pair in SUPERVISED.items() if pair[which]},
                "listen": _LISTEN[which],
                "roots": [
                    str(path) for path in (self.policy.workspace, *self.policy.write, *self._private())
                ],
                "not": [str(path) for path in (*self.policy.hidden_paths(), *self.policy.protected_paths())],
            }
        if self.can_reach:
            message["proxy"] = True
        if self.held:
            message["asks"] = _LISTEN[0 if platform.machine() == "x86_64" else 1]
        if self.engine.namespaces:
            plan = plan_mounts(self._mount_policy(), self.scratch, self.home, self.held)
            message["namespaces"] = msgspec.to_builtins(plan)
        return marshal.dumps(message)

    @property
    def can_reach(self) -> bool:
        """Whether there is a proxy: some hosts are allowed, and the proxy is the only way out."""
        return bool(self.policy.hosts) and self.engine.own_network

    def environment(self, source: Mapping[str, str], proxy_port: int = 0) -> dict[str, str]:
        """Return the environment of a command inside."""
        variables = {
            name: value
            for name, value in source.items()
            if not (
                name in _OUTSIDE_VARIABLES or value.startswith("unix:") or name.lower().endswith("_proxy")
            )
        }
        variables["WHET_SANDBOX"] = self.engine.name
        if proxy_port:
            address = f"http://127.0.0.1:{proxy_port}"
            variables |= dict.fromkeys(_PROXY, address)
            variables |= {"NO_PROXY": _NO_PROXY_HOSTS, "no_proxy": _NO_PROXY_HOSTS, "NODE_USE_ENV_PROXY": "1"}
        temporary = "/tmp" if self.engine.own_network else str(self.scratch.tmp)
        if not self.policy.may_write(self.home / ".npm" / "_cacache"):
            # npm writes its cache even for `npm pack`, and the person's is read-only
            variables["npm_config_cache"] = f"{temporary}/npm-cache"
        if self.engine.own_network:
            return {name: value for name, value in variables.items() if name not in _TEMPORARY}
        return {**variables, "HOME": str(self._link_home()), **dict.fromkeys(_TEMPORARY, temporary)}

    def _mount_policy(self) -> SandboxPolicy:
        """Return the policy for mounts, which also covers the sockets of outside programs."""
        absent = (*self.policy.absent, *find_foreign_sockets(self.policy))
        return msgspec.structs.replace(self.policy, absent=absent)

    def _private(self) -> list[Path]:
        scratch = self.scratch
        if not self.engine.namespaces:
            return [scratch.tmp, scratch.home]
        return [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), self.home]

    def _link_home(self) -> Path:
        """Return a private home with links to the granted paths of the real one."""
        for path in (*self.policy.read, *self.policy.write):
            if path.is_relative_to(self.home) and path != self.home:
                link = self.scratch.home / path.relative_to(self.home)
                if not os.path.lexists(link) and not _has_link_above(link, self.scratch.home):
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(path)
        return self.scratch.home

    def _limits(self) -> list[tuple[int, int]]:
        settings = self.policy.limits
        limits = [(resource.RLIMIT_CORE, 0)]
        if settings.memory_mb:
            limits.append((resource.RLIMIT_DATA, settings.memory_mb << 20))
        if settings.processes:
            limits.append((resource.RLIMIT_NPROC, settings.processes))
        if settings.file_mb:
            limits.append((resource.RLIMIT_FSIZE, settings.file_mb << 20))
        return limits


def _has_link_above(path: Path, root: Path) -> bool:
    return any(
        parent.is_symlink() for parent in path.parents if parent.is_relative_to(root) and parent != root
    )


def _interpreter() -> str:
    """Return the real interpreter, not a virtual environment's link to it."""
    base = Path(getattr(sys, "_base_executable", "") or sys.executable)
    return os.path.realpath(base)
