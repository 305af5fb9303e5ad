"""The images, compose files and units of `deploy/` start what they say: `-m soak`, as root, with podman."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from string import Template
from typing import Any

import psycopg
import pytest
import yaml

from tests.support import wait_until
from tests.team.cluster import Cluster
from tests.team.containers import ROOT, WHY_NOT, Root, Start, build, make_base
from whet_confirm.commands.install import plan_for

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def with_containers(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that builds images."""
    marks = (pytest.mark.soak, pytest.mark.timeout(1500), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT))
    for mark in marks:
        test = mark(test)
    return test


# Where each service of the team answers when it is ready.
READY = {
    "worker": "http://127.0.0.1:9100/ready",
    "api": "http://127.0.0.1:6090/ready",
    "confirm": "http://127.0.0.1:6000/health",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def team(base: str, tmp_path: Path, cluster: Cluster) -> Iterator[Root]:
    """A root of the team's image, with an empty database named whet at database:5432."""
    name = build("Dockerfile", base)
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS whet WITH (FORCE)")
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'whet'").fetchall():
            connection.execute("CREATE ROLE whet LOGIN SUPERUSER")  # as the image makes POSTGRES_USER
        connection.execute("CREATE DATABASE whet OWNER whet TEMPLATE template0 LOCALE 'C.UTF-8'")
        host, port = connection.info.host, connection.info.port
    root = Root(name, tmp_path)
    try:
        with forwarded(root.network, 5432, host, port):
            yield root
    finally:
        root.close()
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS whet WITH (FORCE)")


@contextlib.contextmanager
def forwarded(network: str, port: int, host: str, to: int) -> Generator[None]:
    listener: list[socket.socket] = []

    def listen() -> None:  # a thread of its own, since it stays in that namespace
        with open(network) as namespace:
            assert ctypes.CDLL(None).setns(namespace.fileno(), NEW_NETWORK) == 0
        listener.append(socket.create_server(("127.0.0.1", port)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    (server,) = listener

    threads: list[threading.Thread] = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        with source, contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                other = socket.create_connection((host, to)) if not host.startswith("/") else unix(host, to)
                for pair in ((connection, other), (other, connection)):
                    threads.append(threading.Thread(target=copy, args=pair))
                    threads[-1].start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for each in (thread, *threads):
            each.join(30)


def unix(folder: str, port: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/.s.PGSQL.{port}")
    return connection


def start_of(service: dict[str, Any], root: Root) -> Start:
    values = {"POSTGRES_PASSWORD": "secret", "OPENAI_API_KEY": "sk-test"}
    environment = {
        name: re.sub(
            r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}", lambda m: values.get(m[1], m[2] or ""), str(value)
        )
        for name, value in service.get("environment", {}).items()
    }
    return Start(
        [*root.entry, *map(str, service.get("command", []))],
        environment,
        service.get("working_dir", "/"),
        [volume.partition(":")[2] for volume in service.get("volumes", [])],
        service.get("tmpfs", []),
        service.get("read_only", False),
    )


def wait_ready(root: Root, url: str, process: subprocess.Popen[str]) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return root.get(url) == 200

    wait_until(is_ready, 90)


@with_containers
def test_the_team_starts_as_the_compose_file_and_the_units_start_it(team: Root) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    with team.running(start_of(services["setup"], team)) as setup:
        assert setup.wait(60) == 0, setup.communicate()[0]
    with contextlib.ExitStack() as stack:
        for name, url in READY.items():
            wait_ready(team, url, stack.enter_context(team.running(start_of(services[name], team))))
    # the units: the same program at another path, and its settings in one file
    (team.path / "opt/whet/bin").mkdir(parents=True)
    (team.path / "opt/whet/bin/whet").symlink_to("/usr/local/bin/whet")
    workspace = team.path / "srv/whet/workspace"
    workspace.mkdir(parents=True)
    shutil.chown(workspace, 1000, 1000)
    (team.volume("/home/whet/.whet") / "gateway.toml").write_text(
        '[[channel]]\nkind = "webhook"\nlisten = "127.0.0.1:7001"\nurl = "http://127.0.0.1:9/whet"\n'
    )
    environment = dict(start_of(services["worker"], team).environment)
    environment["WHET_CONFIRM_URL"] = "postgresql://whet_confirm@database/whet"
    environment["GATEWAY_WEBHOOK_SECRET"] = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    ready = {
        "whet-worker@": ("0", "http://127.0.0.1:9100/ready"),
        "whet-api@": ("6095", "http://127.0.0.1:6095/ready"),
        "whet-confirm@": ("6005", "http://127.0.0.1:6005/health"),
        "whet-gateway": ("", ""),
    }
    assert {path.stem for path in UNITS} == set(ready)
    for path in UNITS:
        port, url = ready[path.stem]
        text = path.read_text("utf-8").replace("%i", port)
        values = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
        words = [Template(word).substitute(environment) for word in shlex.split(values["ExecStart"])]
        start = Start(
            words, environment, values["WorkingDirectory"], ["/home/whet/.whet"], user=values["User"]
        )
        with team.running(start) as process:
            if url:
                wait_ready(team, url, process)
            else:
                assert process.stdout is not None and "webhook" in process.stdout.readline()


@with_containers
def test_the_confirmation_service_starts_in_a_read_only_root(base: str, tmp_path: Path) -> None:
    with contextlib.closing(Root(build("confirm/Containerfile", base), tmp_path)) as root:
        service = yaml.safe_load((DEPLOY / "confirm/compose.yaml").read_text("utf-8"))["services"]["confirm"]
        start = start_of(service, root)
        assert root.user == "whet-confirm" and start.is_read_only
        with root.running(start) as process:
            wait_ready(root, "http://127.0.0.1:6000/health", process)
            assert root.get("http://127.0.0.1:6080/") in (200, 303)
        assert (root.volume("/var/lib/whet-confirm") / "confirm/signing.key").is_file()
        # the unit of `whet confirm install`: its folders, and no home or /tmp but empty ones
        unit = plan_for(("/usr/local/bin/whet",), ("root",), ("daemon",), has_user=True).unit
        assert "ProtectHome=yes\nPrivateTmp=yes\n" in unit and "ProtectSystem=strict\n" in unit
        command = dict(re.findall(r"^(\w+)=(.*)$", unit, re.M))["ExecStart"]
        start = Start(
            ["sh", "-c", f"umask 0077; mkdir -m 755 /run/whet-confirm && exec {command}"],
            volumes=["/var/lib/whet-confirm"],
            temporary=["/home", "/root", "/run", "/tmp", "/var/tmp"],
            is_read_only=True,
        )
        with root.running(start) as process:
            wait_ready(root, "http://127.0.0.1:6000/health", process)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    whet = shutil.which("true")
    for path in UNITS:
        name = path.name.replace("@", "@6090")
        (tmp_path / name).write_text(path.read_text("utf-8").replace("/opt/whet/bin/whet", str(whet)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "whet-" in line]
    assert not ours, ours


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit_of_confirm_install_and_calls_it_well_confined(tmp_path: Path) -> None:
    plan = plan_for(("/usr/bin/true",), ("ann",), ("bot",), has_user=True)
    unit = tmp_path / Path(plan.unit_path).name
    unit.write_text(plan.unit.replace("User=whet-confirm", "User=daemon").replace("Group=whet-confirm", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert unit.name not in done.stderr, done.stderr
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:]
