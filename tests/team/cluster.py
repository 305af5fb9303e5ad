"""A PostgreSQL server of the tests' own, or the one that WHET_TEST_POSTGRES names."""

from __future__ import annotations

import atexit
import itertools
import os
from functools import cache
from typing import TYPE_CHECKING

from tests.late import Late
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.practice.database import TrialServer, programs
from whet.store.migrations import STEPS

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")

_numbers = itertools.count(1)
NO_SERVER = (
    "" if os.environ.get("WHET_TEST_POSTGRES") or programs() else "PostgreSQL's programs are not installed"
)
"""Why the tests can have no server; empty where they can."""


class Cluster:
    """A running server; `database` gives an empty database with Whet's schema."""

    def __init__(self, url: str, own: TrialServer | None = None) -> None:
        self.url = url
        self.own = own
        self._template = f"whet_{os.getpid()}_template"
        self._admin = psycopg.connect(url, autocommit=True)
        self._made: list[str] = []
        self._create(self._template, "template0 LOCALE 'C.UTF-8'")
        with connect(self.url_of(self._template), timeout_s=30) as connection:
            schema.init(connection, STEPS)

    def url_of(self, name: str) -> str:
        head, _, _ = self.url.rpartition("/")
        return f"{head}/{name}"

    def database(self, *, empty: bool = False, how: str = "template0 LOCALE 'C.UTF-8'") -> str:
        """Make a database and give its address; `empty`: without Whet's schema, made so."""
        name = f"whet_{os.getpid()}_{next(_numbers)}"
        template = how if empty else self._template
        return self._create(name, f"{template} STRATEGY FILE_COPY")

    def _create(self, name: str, how: str) -> str:
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {how}".encode())
        self._made.append(name)
        return self.url_of(name)

    def drop(self, url: str) -> None:
        if self.own is not None:
            return  # it goes with its server
        name = url.rpartition("/")[2]
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        self._made.remove(name)

    def cut(self, url: str) -> None:
        """Kill every connection to a database."""
        name = url.rpartition("/")[2]
        self._admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )

    def restart(self) -> None:
        """Crash the server and start it again."""
        assert self.own is not None, "only a server of the tests' own can be restarted"
        self._admin.close()
        self.own.control("-m", "immediate", "-w", "restart")
        self._admin = psycopg.connect(self.url, autocommit=True)

    def close(self) -> None:
        if self.own is None:
            for name in reversed(self._made):
                self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        self._admin.close()
        if self.own is not None:
            self.own.close()


@cache
def shared() -> Cluster:
    """Give the server of this process's tests; it ends with the process."""
    if url := os.environ.get("WHET_TEST_POSTGRES"):
        cluster = Cluster(url)
    else:
        own = TrialServer()
        cluster = Cluster(own.url, own)
    atexit.register(cluster.close)
    return cluster
