"""A PostgreSQL server of the tests' own, or the one that WHET_TEST_POSTGRES names.

It runs under another user where the tests run as root, which PostgreSQL refuses; in a temporary folder,
without syncing, and ends with the tests' process.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from tests.support import quiet_port
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.store.migrations import STEPS

_numbers = itertools.count(1)


def programs() -> Path | None:
    """Give the folder of PostgreSQL's programs, None where there is none that will do."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if (on_path := shutil.which("initdb")) is not None:
        found.append(Path(on_path).resolve().parent)
    return max(found, key=lambda path: str(path), default=None)


class Cluster:
    """A running server; `database` gives an empty database with Whet's schema."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._template = f"whet_{os.getpid()}_template"
        self._admin = psycopg.connect(url, autocommit=True)
        self._admin.execute(f"CREATE DATABASE {self._template} TEMPLATE template0 LOCALE 'C.UTF-8'")
        with connect(self.url_of(self._template), timeout_s=10) as connection:
            schema.init(connection, STEPS)
        self._made = [self._template]

    def url_of(self, name: str) -> str:
        head, _, _ = self.url.rpartition("/")
        return f"{head}/{name}"

    def database(self, *, empty: bool = False) -> str:
        """Make a database and give its address."""
        name = f"whet_{os.getpid()}_{next(_numbers)}"
        template = "template0 LOCALE 'C.UTF-8'" if empty else self._template
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        self._made.append(name)
        return self.url_of(name)

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._made.remove(name)

    def control(self, *arguments: str) -> None:
        """Have pg_ctl do something with the server."""
        assert self._folder is not None, "only a server of the tests' own can be restarted"
        _run("pg_ctl", "-D", str(self._folder / "data"), *arguments)

    @property
    def is_own(self) -> bool:
        """Whether it is a server of the tests' own."""
        return self._folder is not None

    def cut(self, url: str) -> None:
        """Kill every connection to a database."""
        name = url.rpartition("/")[2]
        self._admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )

    def restart(self) -> None:
        """Crash the server and start it again."""
        self.control("-m", "immediate", "-w", "restart")
        self._admin.close()
        self._admin = psycopg.connect(self.url, autocommit=True)

    def close(self) -> None:
        for name in reversed(self._made):
            self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._admin.close()
        if self._folder is not None:
            self.control("-m", "immediate", "-w", "stop")
            shutil.rmtree(self._folder, ignore_errors=True)


def start() -> Cluster:
    """Start a server, or use the one of WHET_TEST_POSTGRES."""
    if url := os.environ.get("WHET_TEST_POSTGRES"):
        return Cluster(url)
    folder = Path(tempfile.mkdtemp(prefix="whet-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    data, port = folder / "data", quiet_port()
    _run(
        "initdb", "-D", str(data), "-U", "whet", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"
    )
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=60"
    _run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start")
    return Cluster(f"postgresql://whet@127.0.0.1:{port}/postgres", folder)


def _run(program: str, *arguments: str) -> None:
    where = programs()
    assert where is not None
    other: dict[str, Any] = (
        {"user": "nobody", "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    done = subprocess.run(
        [where / program, *arguments],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=90,
        **other,
    )
    assert done.returncode == 0, done.stderr.decode()


@cache
def shared() -> Cluster:
    """Give the server of this process's tests; it ends with the process."""
    cluster = start()
    atexit.register(cluster.close)
    return cluster


NO_SERVER = (
    "" if os.environ.get("WHET_TEST_POSTGRES") or programs() else "PostgreSQL's programs are not installed"
)
"""Why the tests can have no server; empty where they can."""
