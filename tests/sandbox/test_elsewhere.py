"""Commands in a container and on another machine: the real OpenSSH on this machine's loopback, where a server
is installed (WHET_SSHD names one that is not on the path); containers where one can be started."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import quiet_port
from whet.contract.errors import ConfigError, ToolDenied, ToolError
from whet.sandbox.backend import CommandBackend, ConfinementSettings, read_backend
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import Jail
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.remote_sandboxes import SshJail
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine
from whet.sandbox.syncing import SyncedTree, SyncFailed
from whet.tools.process import Process, Processes
from whet.tools.shell import command_environment
from whet.tools.spawn import ProcessSpec

SSHD = os.environ.get("WHET_SSHD") or shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("local", CommandBackend()),
        ("container debian:12", CommandBackend("container", "debian:12")),
        ("ssh me@box", CommandBackend("ssh", "me@box")),
        ("ssh box /srv/w", CommandBackend("ssh", "box", "/srv/w")),
    ],
)
def test_a_backend_is_read(text: str, backend: CommandBackend) -> None:
    assert read_backend(text) == backend


@pytest.mark.parametrize(
    "text", ["", "container", "ssh", "ssh -oProxyCommand=x", "container --privileged", "moon"]
)
def test_what_names_no_backend_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.backend"):
        read_backend(text)


def test_a_host_is_no_wall(tmp_path: Path) -> None:
    settings = ConfinementSettings("strict", tmp_path / "home", backend=CommandBackend("ssh", "box"))
    confinement = Confinement(settings)
    assert not confinement.command_status().holds
    assert "box" in confinement.command_status().line
    with pytest.raises(ToolDenied, match="nothing holds on box"):
        confinement.shell_jail(tmp_path)


class Server:
    """A real sshd for this user, on a port of loopback."""

    def __init__(self, folder: Path) -> None:
        assert SSHD is not None
        folder.chmod(0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "known").write_bytes((folder / "user.pub").read_bytes())
        self.port = quiet_port()
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "known",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "PermitRootLogin": "yes",
            "SetEnv": "SHLVL=5",  # bash then leaves the person's start-up files, which may take a minute
        }
        (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", folder / "sshd_config"], stdout=log, stderr=log
            )
        self._wait()
        config = {
            "HostName": "127.0.0.1",
            "Port": self.port,
            "User": getpass.getuser(),
            "IdentityFile": folder / "user",
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": os.devnull,
        }
        self.config = "Host box\n" + "".join(f"  {key} {value}\n" for key, value in config.items())

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        pytest.skip(f"sshd does not start here: {self.log.read_text()[-200:]}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd here")
    sshd = Server(tmp_path_factory.mktemp("sshd"))
    yield sshd
    sshd.close()


@pytest.fixture
def place(
    server: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Jail, Path, Path]]:
    """Give what commands run in, the workspace here, and its place there."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "config").write_text(server.config)
    (tools / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tools / "config"} "$@"\n')
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    workspace, there = tmp_path / "work", tmp_path / "there"
    workspace.mkdir()
    backend = CommandBackend("ssh", "box", str(there))
    confinement = Confinement(ConfinementSettings("auto", tmp_path / "home", backend=backend))
    jail = confinement.shell_jail(workspace, "s")
    assert jail is not None
    yield jail, workspace, there
    confinement.close()


def run(
    jail: Jail, workspace: Path, text: str, after: Callable[[Process], None] | None = None
) -> tuple[int, str]:
    """Run a command as `terminal` does, and end it after `after`."""

    async def work() -> tuple[int, str]:
        with closing(Processes()) as processes:
            spec = ProcessSpec(text, workspace, command_environment(os.environ), jail=jail)
            process = processes.start(spec)
            if after is not None:
                await asyncio.to_thread(after, process)
                await process.stop()
            async with asyncio.timeout(60):
                await process.exited.wait()
            await process.wait_output_end(10)
            head, _, tail = process.output.since(0)
            assert process.exit_code is not None
            return process.exit_code, (head + tail).decode()

    return asyncio.run(work())


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_command_works_on_the_workspace_there_and_it_comes_back(place: tuple[Jail, Path, Path]) -> None:
    jail, workspace, there = place
    (workspace / "src").mkdir()
    (workspace / "src" / "a b\nc").write_text("one\n")
    (workspace / "old").write_text("x")
    (workspace / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (workspace / "run.sh").chmod(0o755)
    text = "pwd; ./run.sh; cat src/*; echo two >> src/a*; rm old; mkdir -p new/deep; ln -s ../src new/way"
    code, output = run(jail, workspace, f"{text}; exit 3")
    assert (code, output.split("\n")[:3]) == (3, [str(there), "ran", "one"])
    assert (workspace / "src" / "a b\nc").read_text() == "one\ntwo\n"
    assert not (workspace / "old").exists()
    assert os.readlink(workspace / "new" / "way") == "../src"
    (workspace / "src" / "a b\nc").unlink()
    (workspace / "more").write_text("x")
    code, output = run(jail, workspace, "ls src; ls more; echo $WHET_SANDBOX")
    assert (code, output) == (0, "more\nssh\n")


@pytest.mark.slow
def test_what_would_start_programs_here_or_lead_out_does_not_come_back(
    place: tuple[Jail, Path, Path], tmp_path: Path
) -> None:
    jail, workspace, _ = place
    subprocess.run(["git", "init", "-q", "--template="], cwd=workspace, check=True)
    config = (workspace / ".git" / "config").read_bytes()
    (tmp_path / "outside").mkdir()
    lines = (
        "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit && git config core.pager evil",
        f"ln -s {tmp_path}/outside way",
        "echo fine > fine",
    )
    code, output = run(jail, workspace, "; ".join(lines))
    assert code == 0
    assert "may start programs here" in output
    assert "way: can't be brought back" in output
    assert (workspace / ".git" / "config").read_bytes() == config
    assert not (workspace / ".git" / "hooks").exists()
    assert not os.path.lexists(workspace / "way")
    assert (workspace / "fine").read_text() == "fine\n"


@pytest.mark.slow
def test_repositories_below_come_back_without_what_their_git_runs(
    place: tuple[Jail, Path, Path], tmp_path: Path
) -> None:
    _, workspace, there = place
    subprocess.run(["git", "init", "-q", "--template="], cwd=workspace, check=True)
    (workspace / ".husky").mkdir()
    subprocess.run(["git", "config", "core.hooksPath", ".husky"], cwd=workspace, check=True)
    backend = CommandBackend("ssh", "box", str(there))
    confinement = Confinement(ConfinementSettings("auto", tmp_path / "home", backend=backend))
    jail = confinement.shell_jail(workspace, "s")
    assert jail is not None
    lines = (
        "git init -q sub && echo evil > sub/.git/hooks/pre-commit",
        "mkdir -p evil other .git/modules/m/hooks && echo 'gitdir: ../evil' > other/.git",
        "echo evil > .git/modules/m/hooks/pre-commit; echo evil > .husky/pre-commit",
        "mkdir -p .git/refs/heads && git -C sub rev-parse --git-dir > .git/refs/heads/config",
    )
    code, output = run(jail, workspace, "; ".join(lines))
    confinement.close()
    assert code == 0, output
    came = {str(path.relative_to(workspace)) for path in workspace.rglob("*")}
    assert {"sub/.git/HEAD", "other", ".git/refs/heads/config"} <= came
    held = ("sub/.git/hooks/pre-commit", "sub/.git/config", "other/.git", ".husky/pre-commit")
    assert not came & {*held, ".git/modules/m/hooks/pre-commit"}


@pytest.mark.slow
def test_a_program_that_came_back_is_not_the_one_that_connects(
    place: tuple[Jail, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jail, workspace, _ = place
    monkeypatch.setenv("PATH", f"{workspace}/.venv/bin:{os.environ['PATH']}")
    program = f"printf '#!/bin/sh\\ntouch {tmp_path}/ran\\n' > .venv/bin/ssh; chmod 755 .venv/bin/ssh"
    assert run(jail, workspace, f"mkdir -p .venv/bin; {program}")[0] == 0
    assert run(jail, workspace, "echo again")[1] == "again\n"
    assert not (tmp_path / "ran").exists()
    assert subprocess.run(["ssh", "box"], check=True).returncode == 0 and (tmp_path / "ran").exists()


@pytest.mark.slow
def test_what_changed_on_both_sides_stays_as_it_is_here(place: tuple[Jail, Path, Path]) -> None:
    jail, workspace, there = place
    (workspace / "f").write_text("1")
    (there.parent / "go").unlink(missing_ok=True)

    def change(process: Process) -> None:
        wait_for((there / "began").exists)
        (workspace / "f").write_text("mine")
        (there.parent / "go").touch()
        wait_for(process.exited.is_set)

    wait = f"while ! test -e {there.parent}/go; do sleep 0.05; done"
    code, output = run(jail, workspace, f"touch began; {wait}; echo theirs > f; echo ok > g", change)
    assert code == 0
    assert "f: changed here meanwhile" in output
    assert (workspace / "f").read_text() == "mine"
    assert (workspace / "g").read_text() == "ok\n"
    assert run(jail, workspace, "cat f") == (0, "mine")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_command_that_is_ended_here_ends_there(place: tuple[Jail, Path, Path], how: str) -> None:
    jail, workspace, there = place

    def begun(process: Process) -> None:
        wait_for(lambda: (there / "pid").exists() and (there / "pid").read_text().endswith("\n"))
        if how == "killed":
            process.signal_group(9)

    code, _ = run(jail, workspace, "sleep 1000 & echo $! > pid; wait", begun)
    assert code >= 128
    number = int((there / "pid").read_text())
    wait_for(lambda: not _lives(number))


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_host_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh here")
    backend = CommandBackend("ssh", f"ssh://127.0.0.1:{quiet_port()}")
    confinement = Confinement(ConfinementSettings("auto", tmp_path / "home", backend=backend))
    jail = confinement.shell_jail(tmp_path)
    assert jail is not None
    with pytest.raises(ToolError, match="can't be reached by ssh"):
        jail.open()
    confinement.close()


IMAGE = os.environ.get("WHET_IMAGE", "busybox")


@pytest.fixture(params=["work", 'a:b,c"d=e'])
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Jail, Path, Confinement]]:
    """Give a container of an image with a shell (WHET_IMAGE names another one than busybox)."""
    workspace = tmp_path / request.param
    (workspace / ".git").mkdir(parents=True)
    (workspace / ".git" / "config").write_text("[core]\n")
    settings = ConfinementSettings("auto", tmp_path / "home", backend=CommandBackend("container", IMAGE))
    confinement = Confinement(settings)
    if not confinement.command_status().holds:
        pytest.skip(confinement.command_status().line)
    jail = confinement.shell_jail(workspace, "s")
    assert jail is not None
    jail.open()
    yield jail, workspace, confinement
    confinement.close()


@pytest.mark.slow
def test_a_command_works_in_a_container_and_gets_no_further(
    container: tuple[Jail, Path, Confinement], tmp_path: Path
) -> None:
    jail, workspace, confinement = container
    assert confinement.command_status().name == "container"
    (workspace / "f").write_text("one\n")
    (tmp_path / "secret").write_text("s")
    text = "pwd; cat f; echo two > g; echo $WHET_SANDBOX; ls /tmp; exit 3"
    code, output = run(jail, workspace, text)
    assert (code, output.split("\n")[:3]) == (3, [str(workspace), "one", "container"])
    assert (workspace / "g").read_text() == "two\n"
    assert run(jail, workspace, f"cat {tmp_path}/secret")[0] != 0
    assert run(jail, workspace, "cat /proc/net/route | grep -c .")[1] == "1\n"  # the heading alone
    run(jail, workspace, "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .git/config")
    assert (workspace / ".git" / "config").read_text() == "[core]\n"
    assert not (workspace / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_is_ended_here_ends_in_its_container(
    container: tuple[Jail, Path, Confinement], how: str
) -> None:
    jail, workspace, _ = container

    def begun(process: Process) -> None:
        wait_for((workspace / "began").exists)
        if how == "killed":
            process.signal_group(9)

    code, _ = run(jail, workspace, "sleep 4321 & touch began; wait", begun)
    assert code >= 128
    look = "for p in /proc/[0-9]*; do cat $p/cmdline 2>/dev/null; done | grep -c '432[1]'; true"
    wait_for(lambda: run(jail, workspace, look)[1].strip() == "0")


def test_without_a_container_nothing_runs_here_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = ConfinementSettings("auto", tmp_path / "home", backend=CommandBackend("container", "x"))
    confinement = Confinement(settings)
    assert not confinement.command_status().holds
    with pytest.raises(ToolError, match="neither docker nor podman"):
        confinement.shell_jail(tmp_path)


def test_a_host_that_never_answers_is_an_error_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, workspace, scratch = tmp_path / "tools", tmp_path / "work", Scratch()
    for folder in (tools, workspace):
        folder.mkdir()
    silent = tools / "ssh"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    plan = JailPlan(Engine("ssh"), SandboxPolicy(workspace, tmp_path / "home"), scratch, tmp_path)
    with closing(scratch), pytest.raises(ToolError, match="did not answer by ssh within"):
        SshJail(plan, "box", "", connect_timeout_s=0.01).open()


def test_a_host_that_stops_answering_leaves_the_workspace_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("a")
    state_file = tmp_path / "state.json"
    tree = SyncedTree(
        tmp_path / "work", "there", state_file, (), lambda _text: ["sleep", "600"], timeout_s=0.01
    )
    with pytest.raises(SyncFailed, match="did not answer within"):
        tree.push()
    assert (tmp_path / "work" / "a.txt").read_text() == "a" and not state_file.exists()
