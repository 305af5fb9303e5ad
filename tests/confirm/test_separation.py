"""An agent with a shell tries more than thirty ways to approve its own request: confined, as the user whom
the service runs as, and unconfined, as another user than an installed service's. None leads to a yes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import apsw
import pytest

from tests.confirm.approving_itself import ATTEMPTS
from tests.confirm.process import SERVE
from tests.confirm.running import SUBMIT, Running
from tests.sandbox.engines import ENGINES
from tests.support import within
from whet.app.confining import confine
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.sandbox.jail import Jail, JailedCommand, JailPlan
from whet.sandbox.scratch import Scratch
from whet.tools.shell import command_environment
from whet_confirm.commands import install

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]
ROOT = Path(__file__).parents[2]


class Target:
    """A running service, one request of the agent's that waits, and what only the service's people know."""

    def __init__(self, server: Running, socket: Path) -> None:
        self.server = server
        self.token = server.token("submit", "agent")
        owner = server.token("approve", "owner")
        (server.paths.folder / "approve.token").write_text(owner + "\n")
        self.secrets = (owner, server.paths.key.read_text().strip())
        request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
        self.id, self.digest = str(request["id"]), str(request["digest"])
        self.variables = {
            "ID": self.id, "DIGEST": self.digest, "TOKEN": self.token, "DB": str(server.paths.database),
            "WHET_HOME": str(server.paths.database.parent), "API": str(server.port),
            "PAGE": str(server.page_port), "SOCK": str(socket), "PID": str(os.getpid()),
            "HOSTIP": "127.0.0.2", "PY": sys.executable,
        }  # fmt: skip

    def yes(self, output: str) -> str:
        """Say how a yes was got, or a secret; "" for neither."""
        if any(secret in output for secret in self.secrets):
            return "a secret was read"
        record = self.server.stored(self.id)
        votes = self.server.rows("SELECT principal FROM votes")
        makers = self.server.rows("SELECT name FROM tokens WHERE role <> 'submit' AND name <> 'owner'")
        allowed = self.server.rows("SELECT id FROM whitelist")
        if record.is_pending and not (votes or makers or allowed):
            return ""
        return f"{record.status}, votes {votes}, tokens {makers}, whitelist {allowed}"


@contextlib.contextmanager
def target(folder: Path) -> Iterator[Target]:
    socket = folder / "home" / "api.sock"
    (folder / "home").mkdir(parents=True)
    (folder / "ws").mkdir()
    with Running(folder / "home", rate=1000, socket=socket) as server:
        yield Target(server, socket)


def variables(found: Target, workspace: Path) -> dict[str, str]:
    (workspace / "other").touch()
    more = {"WS": str(workspace), "OTHER": str(workspace / "other"), "PYTHONPATH": str(ROOT / "src")}
    return {**os.environ, **found.variables, **more}


@pytest.mark.parametrize("case", [ENGINES[0], ENGINES[2]], ids=str)
def test_a_confined_agent_of_the_same_user_approves_nothing(case, tmp_path):
    with target(tmp_path) as found:
        workspace = tmp_path / "ws"
        environment = variables(found, workspace)
        confinement = confine(Home(tmp_path / "home"), SandboxSettings(), environment)
        scratch = Scratch()
        jail = Jail(JailPlan(case.engine(), confinement.policy(workspace), scratch, tmp_path / "home"))
        inside = jail.environment({**command_environment(environment), **found.variables})
        inside |= {"WS": str(workspace), "OTHER": str(workspace / "other"), "PYTHONPATH": str(ROOT / "src")}
        got: dict[str, str] = {}
        try:
            for name, text in ATTEMPTS.items():
                _, said = jail.run(JailedCommand(["bash", "-c", text], inside, workspace), 60)
                if way := found.yes(said):
                    got[name] = way
        finally:
            jail.close()
            scratch.close()
            confinement.close()
        assert got == {}


def test_unconfined_and_as_the_same_user_it_would(tmp_path):
    """The attempts are real: without a wall they lead to a yes."""
    with target(tmp_path) as found:
        environment = variables(found, tmp_path / "ws")
        done = subprocess.run(
            ["bash", "-c", ATTEMPTS["the approver's token"]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert found.secrets[0] in done.stdout and found.server.stored(found.id).status == "approved"


def as_user(name: str, command: list[str]) -> list[str]:
    """Run a command as a user, who can run our Python even where that is in root's home."""
    switch = ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", "--no-new-privs", *command]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/root"):
        return switch
    script = (
        f"mount --bind {base} /mnt && mount -t tmpfs -o mode=755 none /root && mkdir -p {base} &&"
        f" mount --move /mnt {base} && exec {shlex.join(switch)}"
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


@contextlib.contextmanager
def users(*names: str) -> Iterator[None]:
    try:
        for name in names[1:]:
            subprocess.run(["useradd", "--system", "--no-create-home", name], check=True, capture_output=True)
        yield
    finally:
        for name in names:  # what an attempt has left running is this user's, too
            subprocess.run(["pkill", "-KILL", "-u", name], check=False, capture_output=True)
            subprocess.run(["userdel", "--force", name], check=False, capture_output=True)


@pytest.fixture
def installed(monkeypatch):
    """What `whet confirm install` makes, under names of the test's own: the service's user, the agent's, the
    approver's, and the folder. systemd's part, the unit, is played by `setpriv`."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("useradd", "setpriv", "unshare", "curl"))):
        pytest.skip("making users takes root, useradd and setpriv")
    number = os.getpid()
    service, agent, approver = (f"wt-{role}-{number}" for role in ("service", "agent", "owner"))
    folder, run = Path(f"/var/lib/{service}"), Path(f"/run/{service}")
    monkeypatch.setattr(install, "USER", service)
    monkeypatch.setattr(install, "INSTALLED", folder)
    monkeypatch.setattr(install, "SOCKET", run / "api.sock")
    with users(service, agent, approver):
        plan = install.plan_for((*SERVE[:-2],), (approver,), (agent,), has_user=False)
        for command in plan.commands:
            if command[0] != "systemctl":
                subprocess.run(command, check=True, capture_output=True)
        run.mkdir(mode=0o755)
        shutil.chown(run, service, service)
        try:
            yield service, agent, approver, folder
        finally:
            shutil.rmtree(folder)
            shutil.rmtree(run)


def environment_of(unit: str) -> dict[str, str]:
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("Environment=")]
    return {**dict(line.split("=", 1) for line in lines), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def test_an_agent_of_another_user_approves_nothing(installed):
    service, agent, approver, _ = installed
    plan = install.plan_for((*SERVE[:-2],), (approver,), (agent,), has_user=True)
    start = next(line for line in plan.unit.splitlines() if line.startswith("ExecStart="))
    command = [*shlex.split(start.partition("=")[2]), "--port", "0", "--web-port", "0"]
    base = {**environment_of(plan.unit), "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        as_user(service, command), env=base, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, umask=0o077, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        texts: list[str] = []
        while not texts or not texts[-1].startswith("web page"):
            texts.append(within(process.stdout.readline, f"the service to listen; it said {texts}"))
            assert texts[-1], texts
        api, page = (line.split()[-1].rpartition(":")[2] for line in (texts[0], texts[-1]))
        attack(installed, {**base, "API": api, "PAGE": page, "PID": str(process.pid)})
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        process.stdout.close()


def attack(installed: tuple[str, str, str, Path], base: Mapping[str, str]) -> None:
    _, agent, approver, folder = installed
    workspace = Path(f"/var/tmp/{agent}")
    workspace.mkdir(mode=0o755)
    try:
        (workspace / "other").touch()
        for path in (workspace, workspace / "other"):
            shutil.chown(path, agent, agent)
        sock = Path(f"/run/{folder.name}") / "api.sock"
        ask = f"curl -s --unix-socket {sock} -H 'Content-Type: application/json' -d '{json.dumps(SUBMIT)}' http://localhost/confirm"
        request = json.loads(shell(agent, ask, base, workspace))
        assert request["status"] == "pending"
        fields = {
            **base, "ID": request["id"], "DIGEST": request["digest"], "TOKEN": "wct_" + "B" * 43,
            "DB": str(folder / "confirmations.db"), "WHET_HOME": str(folder), "SOCK": str(sock),
            "HOSTIP": "127.0.0.2", "WS": str(workspace), "OTHER": str(workspace / "other"),
            "PY": sys.executable, "HOME": str(workspace),
        }  # fmt: skip
        key = (folder / "confirm" / "signing.key").read_text().strip()
        got: dict[str, str] = {}
        for name, text in ATTEMPTS.items():
            said = shell(agent, text, fields, workspace)
            if key in said or (way := state(folder, request["id"])) != ("pending", 0, 0, 0):
                got[name] = f"a secret: {key in said}; {way}"
        assert got == {}
        yes = shell(
            approver,
            f"curl -s --unix-socket {sock} -X POST http://localhost/confirm/{request['id']}/approve",
            base,
            workspace,
        )
        assert json.loads(yes)["status"] == "approved"  # the person whom the unit names still can
    finally:
        shutil.rmtree(workspace)


def shell(user: str, text: str, environment: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run(
        as_user(user, ["bash", "-c", text]), env=environment, cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout.decode(errors="replace")


def state(folder: Path, request_id: str) -> tuple[object, ...]:
    with contextlib.closing(
        apsw.Connection(str(folder / "confirmations.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ) as db:
        status = db.execute("SELECT status FROM requests WHERE id = ?", (request_id,)).fetchone()
        counts = (
            db.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ("votes", "tokens", "whitelist")
        )
        return (status and status[0], *(row and row[0] for row in counts))
