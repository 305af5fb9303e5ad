"""Commands that try to get out of a real container, or by what a real sshd sends back. The effect is looked
for on this machine: files beside the workspace, protected names, processes, a listener on loopback.

Skipped where neither docker nor podman can start a container, and where there is no sshd.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sandbox.test_elsewhere import SSHD, Server, run
from whet.sandbox.backend import CommandBackend, ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import Jail

pytestmark = pytest.mark.slow
SECRET = "the secret beside the workspace"
IMAGE = os.environ.get("WHET_IMAGE", "busybox")
# {out} is a folder beside the workspace, {port} a listener of this machine, {pid} a process of it.
CONTAINER = {
    "read a file beside the workspace": "cat {out}/secret ../outside/secret",
    "read it through another process's root": "for p in /proc/[0-9]*; do cat $p/root{out}/secret; done",
    "read it through a link": "ln -s {out}/secret way; cat way; cp -L way stolen; cat stolen",
    "write beside the workspace": "echo evil > {out}/made; echo evil > ../outside/made",
    "write through a link": "ln -s {out} out; echo evil > out/made",
    "make the folder and write": "mkdir -p {out}; echo evil > {out}/made",
    "link the secret in hard": "ln {out}/secret hard; cat hard",
    "read the host's environment": "cat /proc/*/environ | tr '\\0' '\\n' | grep WHET_CANARY",
    "change the settings of git": "echo '[core] pager = evil' >> .git/config",
    "replace the settings of git": "rm -f .git/config; echo evil > .git/config",
    "move git's folder away": "mv .git g; mkdir .git; echo evil > .git/config",
    "write a hook": "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "link a hook": "ln -s /bin/sh .git/hooks/post-checkout",
    "write an editor's task": "mkdir -p .vscode; echo evil > .vscode/tasks.json",
    "mount the settings writable": "mount -o remount,rw .git/config; echo evil > .git/config",
    "mount over them": "mount -t tmpfs none .git; echo evil > .git/config",
    "mount a disk": "mknod d b 8 0; mount d /tmp; cat d",
    "read the memory": "mknod m c 1 1; head -c 100 m; cat /dev/mem",
    "call this machine": "echo x | nc -w 1 127.0.0.1 {port}; wget -T 1 -O - http://127.0.0.1:{port}/",
    "call it by its names": "for h in host.docker.internal host.containers.internal 10.0.2.2 172.17.0.1;"
    " do echo x | nc -w 1 $h {port}; done",
    "bring up a network": "ip link set lo up; ip link add v type dummy; ip route add default dev lo;"
    " echo x | nc -w 1 127.0.0.1 {port}",
    "signal a process of this machine": "kill -9 {pid}",
    "signal all": "kill -9 -1",
    "enter this machine's namespaces": "nsenter -t 1 -a sh -c 'echo evil > {out}/made'",
    "leave by new namespaces": "unshare -Urmn sh -c 'mount -t proc p /proc; cat {out}/secret'",
    "leave the root": "mkdir x; chroot . /bin/sh; cd ..; cd ../../../../..; cat .{out}/secret",
    "set a core handler": "echo '|/bin/sh {out}/made' > /proc/sys/kernel/core_pattern",
    "use cgroups' release agent": "for f in /sys/fs/cgroup/*/release_agent; do echo {out}/made > $f; done",
    "write settings of the kernel": "echo 1 > /proc/sys/kernel/sysrq; echo b > /proc/sysrq-trigger",
    "find an engine's socket": "ls /var/run/docker.sock /run/podman/podman.sock && echo THE-SOCKET",
    "become another user": "su nobody -s /bin/sh -c 'cat {out}/secret'; cat /etc/shadow",
    "forge the exit code's record": "echo 1 > /tmp/.whet-x; rm -f /tmp/.whet-*; kill -9 $PPID",
}
# What a command leaves on the host, in the copy of the workspace there, before it is brought back.
SSH = {
    "a link that leads out": "ln -s {out} way",
    "a link and a file through it": "ln -s {out} way; rm way; mkdir way; echo evil > way/made",
    "a folder that becomes a link": "rm -rf sub; ln -s {out} sub",
    "a file that becomes a link": "rm -f f; ln -s {out}/secret f",
    "a link over links": "ln -s .. up; ln -s up/outside way",
    "a hard link to a file outside": "ln {out}/secret hard",
    "the settings of git": "git config core.pager evil; echo '[alias] x = !evil' >> .git/config",
    "a hook": "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "git's folder as a file": "mv .git g; echo 'gitdir: g' > .git",
    "git's folder as a link": "mv .git g; ln -s g .git",
    "a hook in other letters": "mkdir -p .GIT/hooks; echo evil > .GIT/hooks/pre-commit",
    "a hook of a repository below": "mkdir -p sub/.git/hooks; echo evil > sub/.git/hooks/post-checkout",
    "an editor's task": "mkdir -p .vscode; echo evil > .vscode/tasks.json",
    "an environment": "echo 'touch {out}/made' > .envrc",
    "a folder above in a name": "mkdir -p 'a/..evil'; touch -- '..' 2>/dev/null; touch './..x'",
    "names like options": "touch -- '--to-command=touch made' '-rf' '--checkpoint-action=exec=sh f' '-C'",
    "names with line ends": "touch \"$(printf 'a\\n../outside/made')\" \"$(printf 'b\\0c')\"",
    "a device": "mknod d b 8 0; mknod n c 1 3",
    "a named pipe": "mkfifo pipe",
    "a program with another's rights": "cp /bin/true s; chmod 6755 s",
    "a sparse terabyte": "truncate -s 1T big; rm big",
    "a tar in the folder": "tar -cf evil.tar -P {out}/secret",
    "a shell start-up that talks": "echo 'echo ../outside/made' > .bashrc; echo noise >&2",
    "its own tar in the path": "mkdir bin; echo 'touch {out}/made' > bin/tar; chmod +x bin/tar",
}
ATTEMPTS = [*CONTAINER, *SSH]


class World:
    """A workspace, what lies beside it, a listener and a process of this machine."""

    def __init__(self, folder: Path, backend: CommandBackend) -> None:
        self.workspace, self.outside = folder / "work", folder / "outside"
        for path in (self.workspace / "sub", self.outside):
            path.mkdir(parents=True)
        (self.outside / "secret").write_text(SECRET)
        subprocess.run(["git", "init", "-q", "--template=", self.workspace], check=True)
        (self.workspace / "f").write_text("f")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.process = subprocess.Popen(["sleep", "10000"])
        self.confinement = Confinement(ConfinementSettings("auto", folder / "home", backend=backend))
        self.jail: Jail | None = None

    def attack(self, text: str) -> list[str]:
        """Run a command and return its effects outside the workspace."""
        assert self.jail is not None
        before = self._watched()
        line = text.format(out=self.outside, port=self.listener.getsockname()[1], pid=self.process.pid)
        _, output = run(self.jail, self.workspace, line)
        effects = [f"{path} changed" for path, state in self._watched().items() if before.get(path) != state]
        effects += [f"{path} is gone" for path in before if path not in self._watched()]
        if SECRET in output or "WHET_CANARY=" in output or "THE-SOCKET" in output:
            effects.append("it was read")
        if self.process.poll() is not None:
            effects.append("a process of this machine was ended")
        try:
            self.listener.accept()[0].close()
            effects.append("this machine was called")
        except BlockingIOError:
            pass
        git = self.workspace / ".git"
        if git.is_symlink() or git.is_file():
            effects.append("git's folder leads elsewhere")
        for path in self.workspace.rglob("*"):
            if path.is_symlink() and not path.resolve().is_relative_to(self.workspace):
                self._keep_out(path, effects)
        return effects

    def _keep_out(self, path: Path, effects: list[str]) -> None:
        if self.confinement.command_status().name != "container":  # there the workspace is the command's own
            effects.append(f"{path.name} leads out")
        path.unlink()

    def _watched(self) -> dict[str, str]:
        names = (".vscode", ".envrc", ".git/config", ".git/hooks", ".GIT/hooks", "sub/.git/hooks")
        starts = [self.workspace / name for name in names]
        states: dict[str, str] = {"core": Path("/proc/sys/kernel/core_pattern").read_text()}
        for top in (self.outside, *starts):
            for path in (top, *sorted(top.rglob("*"))):
                if path.is_symlink():
                    states[str(path)] = f"link {path.readlink()}"
                elif path.is_file():
                    states[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return states

    def close(self) -> None:
        self.confinement.close()
        self.process.kill()
        self.process.wait()
        self.listener.close()


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_CANARY", "x")


@pytest.fixture
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd here")
    server = Server(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.mark.usefixtures("canary")
@pytest.mark.timeout(600)
def test_nothing_gets_out_of_a_container(tmp_path: Path) -> None:
    with closing(World(tmp_path, CommandBackend("container", IMAGE))) as world:
        if not world.confinement.command_status().holds:
            pytest.skip(world.confinement.command_status().line)
        effects: dict[str, list[str]] = {}
        for name, text in CONTAINER.items():
            world.jail = world.confinement.shell_jail(world.workspace, name)  # a container of its own
            if signs := world.attack(text):
                effects[name] = signs
        assert effects == {}


@pytest.mark.usefixtures("canary")
@pytest.mark.timeout(600)
def test_nothing_that_a_host_sends_back_gets_out(
    tmp_path: Path, ssh_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "config").write_text(ssh_server.config)
    (tools / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tools / "config"} "$@"\n')
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with closing(World(tmp_path, CommandBackend("ssh", "box", str(tmp_path / "there")))) as world:
        effects: dict[str, list[str]] = {}
        world.jail = world.confinement.shell_jail(world.workspace, "s")
        for name, text in SSH.items():
            signs = world.attack(text)
            signs += [
                f"{path.name} is special"
                for path in world.workspace.rglob("*")
                if not path.is_symlink() and (path.is_block_device() or path.is_char_device())
            ]
            signs += [
                f"{path.name} has another's rights"
                for path in world.workspace.rglob("*")
                if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
            ]
            if signs:
                effects[name] = signs
            assert world.jail is not None
            run(world.jail, world.workspace, "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +")
            subprocess.run(["git", "init", "-q", "--template=", world.workspace], check=True)
        assert effects == {}
        assert world.attack("echo evil > {out}/made")  # this host is this machine: the harness sees it
