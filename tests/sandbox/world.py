"""A world outside a jail, which attempts try to reach, and a look at what they did to it.

Files with a mark in them, sockets that listen, a process to be signalled, a home with keys, Whet's home.
All of it is real and in a folder of the test's own.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.sandbox.attempts import Attempt
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.policy import SandboxLimits
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine
from whet.sandbox.system_folders import PolicyAdditions, default_policy
from whet.tools.shell import command_environment

MARK = "MARK-"
_LIBC = ctypes.CDLL(None)
_SECRETS = (
    ".ssh/id_rsa", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".bash_history", ".gnupg/key",
    ".kube/config", ".docker/config.json", ".npmrc", ".local/share/keyrings/login", ".mozilla/logins.json",
    "notes.txt",
)  # fmt: skip
_DRIVER = """
import json, subprocess, sys, concurrent.futures
def one(a):
    run = [sys.executable, "-c", a["text"]] if a["kind"] == "py" else ["bash", "-c", a["text"]]
    try:
        done = subprocess.run(run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=8, start_new_session=True)
        out = done.stdout[:4000].decode("utf-8", "replace")
    except subprocess.TimeoutExpired as error:
        out = (error.stdout or b"")[:4000].decode("utf-8", "replace")
    return {"name": a["name"], "out": out}
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    for found in pool.map(one, json.load(open(sys.argv[1]))):
        print(json.dumps(found), flush=True)
"""


class World:
    """Everything outside. Use as a context manager."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.workspace = self.root / "ws"
        self.outside = self.root / "out"
        self.home = self.root / "home"
        self.whet = self.home / ".whet"
        self.heard: list[str] = []
        self._sockets: list[socket.socket] = []
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        for folder in (self.workspace, self.outside, self.home, self.whet):
            folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        (self.workspace / ".vscode").mkdir()
        (self.workspace / ".vscode" / "tasks.json").write_text("{}")
        (self.workspace / "a.txt").write_text("a\n")
        for path in (
            self.outside / "secret",
            self.whet / "state.db",
            *(self.home / secret for secret in _SECRETS),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{MARK}SECRET {path.name}\n")
        (self.outside / "victim").write_text("a victim\n")
        self._listen()
        marked = {**os.environ, "CANARY_API_KEY": f"{MARK}KEY"}
        self.victim = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], cwd=self.outside, env=marked
        )
        self._shared = _shared_by_the_machine()
        self._before = self._look()
        self._old = signal.signal(signal.SIGUSR1, lambda *_: self.heard.append("a signal"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGUSR1, self._old)
        self._stop.set()
        self._thread.join()
        for connection in self._sockets:
            connection.close()
        os.chmod(self.outside, 0o755)
        self.victim.kill()
        self.victim.wait()
        for name in ("SHM", "SEM", "MSG"):
            getattr(_LIBC, f"{name.lower()}ctl")(self._shared[name], 0, 0)

    def attack(self, engine: Engine, attempts: Sequence[Attempt], limit_s: float = 300) -> list[str]:
        """Run attempts in a jail of this engine; gives what each that got out did, in words."""
        environment = {
            **os.environ,
            "HOME": str(self.home),
            "CANARY_API_KEY": f"{MARK}KEY",
            **self._variables(),
        }
        limits = SandboxLimits(memory_mb=1024, processes=1000, file_mb=1024)
        policy = default_policy(self.workspace, self.whet, environment, PolicyAdditions(limits=limits))
        scratch = Scratch()
        jail = Jail(JailPlan(engine, policy, scratch, self.home))
        try:
            path = self.workspace / "attempts.json"
            path.write_text(json.dumps([attempt._asdict() for attempt in attempts]))
            inside = jail.environment(command_environment(environment))
            run = JailedCommand([sys.executable, "-c", _DRIVER, str(path)], inside, self.workspace)
            code, text = jail.run(run, limit_s)
            assert code == 0, text[-2000:]
            outputs = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
            assert len(outputs) == len(attempts), text[-2000:]
            jail.run(JailedCommand(["true"], inside, self.workspace), 60)
        finally:
            jail.close()
            scratch.close()
        return [*self._printed(outputs), *self._done()]

    def attack_unconfined(self, attempts: Sequence[Attempt]) -> list[str]:
        """Run attempts with all rights, to see that they are noticed."""
        environment = {**os.environ, "HOME": str(self.home), **self._variables()}
        path = self.workspace / "attempts.json"
        path.write_text(json.dumps([attempt._asdict() for attempt in attempts]))
        done = subprocess.run(
            [sys.executable, "-c", _DRIVER, str(path)],
            env=environment,
            cwd=self.workspace,
            capture_output=True,
            text=True,
            check=True,
        )
        return [*self._printed([json.loads(line) for line in done.stdout.splitlines()]), *self._done()]

    def _printed(self, outputs: Sequence[dict[str, str]]) -> list[str]:
        return [
            f"{output['name']} printed {output['out'][:200]!r}" for output in outputs if MARK in output["out"]
        ]

    def _done(self) -> list[str]:
        texts = list(self.heard)
        after = self._look()
        for path in sorted({*self._before, *after}):
            if self._before.get(path) != after.get(path):
                texts.append(f"{path}: {self._before.get(path)} became {after.get(path)}")
        if self.victim.poll() is not None:
            texts.append("the victim is dead")
        return texts

    def _variables(self) -> dict[str, str]:
        return {
            "OUT": str(self.outside),
            "SECRET": str(self.outside / "secret"),
            "HOME_OUT": str(self.home),
            "WHET": str(self.whet),
            "SOCK": str(self.outside / "sock"),
            "ABSTRACT": f"whet-world-{os.getpid()}",
            "PORT": str(self.port),
            "UDP": str(self.udp),
            "VICTIM": str(self.victim.pid),
            "PARENT": str(os.getpid()),
            "HOSTIP": _own_address(),
            "WS": str(self.workspace),
            **{name: str(value) for name, value in self._shared.items()},
        }

    def _look(self) -> dict[str, tuple[object, ...]]:
        """Give every file outside and every protected name, as it is."""
        fields: dict[str, tuple[object, ...]] = {}
        folders = [self.outside, self.home, *(self.workspace / text for text in (".git/hooks", ".vscode"))]
        files = [self.workspace / text for text in (".git/config", ".envrc", ".claude", ".whet", ".idea")]
        for name in ("/etc/whet-escaped", "/usr/bin/whet-escaped", "/var/tmp/whet-escaped"):
            files.append(Path(name))
        for folder in folders:
            files += [folder, *folder.rglob("*")]
        for path in files:
            if os.path.lexists(path):
                state = path.lstat()
                data = path.read_bytes() if path.is_file() else b""
                is_ours = path.is_relative_to(self.workspace)
                times = () if path.is_dir() or is_ours else (state.st_mtime_ns,)
                fields[str(path)] = (oct(state.st_mode), state.st_uid, data, *times)
        return fields

    def _listen(self) -> None:
        abstract = f"\0whet-world-{os.getpid()}"
        values = [
            _bound(socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "sock")),
            _bound(socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "sock.d")),
            _bound(socket.AF_UNIX, socket.SOCK_STREAM, abstract),
            _bound(socket.AF_UNIX, socket.SOCK_DGRAM, abstract + "d"),
        ]
        tcp = _bound(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0))
        udp = _bound(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0))
        self.port, self.udp = tcp.getsockname()[1], udp.getsockname()[1]
        self._sockets = [*values, tcp, udp]
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection in self._sockets:
                selector.register(connection, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    if key.fileobj.type == socket.SOCK_STREAM:
                        key.fileobj.accept()[0].close()
                    else:
                        key.fileobj.recv(100)
                    self.heard.append(f"the socket {key.fileobj.getsockname()} heard something")


def _bound(family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
    connection = socket.socket(family, kind)
    connection.bind(address)
    if kind == socket.SOCK_STREAM:
        connection.listen(16)
    return connection


def _shared_by_the_machine() -> dict[str, int]:
    """Make memory, semaphores and a queue that anything of this user finds by their key or number."""
    key = 0x57000000 | os.getpid()
    return {
        "KEY": key,
        "SHM": _LIBC.shmget(key, 4096, 0o1600),
        "SEM": _LIBC.semget(key, 1, 0o1600),
        "MSG": _LIBC.msgget(key, 0o1600),
    }


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(connection.getsockname()[0])
