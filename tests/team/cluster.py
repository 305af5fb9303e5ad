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
from whet.store.migrations import STEPS
from whet_lab.practice.database import TrialServer, find_programs

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")

_numbers = itertools.count(1)
_SHAPE = (
    "SELECT md5(string_agg(m::text, ' ' ORDER BY m::text)), 0, 0 FROM migrations m"
    " UNION ALL SELECT 'sizes', count(*), sum(reltuples)::bigint FROM pg_class WHERE oid >= 16384"
    " UNION ALL SELECT 'limit', datconnlimit, 0 FROM pg_database WHERE datname = current_database()"
) + "".join(
    f" UNION ALL SELECT '{catalog}', count(*), max(xmin::text::bigint) FROM {catalog} WHERE {key} >= 16384"
    for catalog, key in (
        *(("pg_attribute", "attrelid"), ("pg_index", "indexrelid"), ("pg_statistic", "starelid")),
        *((f"pg_{name}", "oid") for name in ("class", "attrdef", "constraint", "proc", "trigger", "type")),
    )
)
"""When the schema was last changed, what is known of its tables, and how many connections are allowed; copies
of a database keep it."""
_USERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
_EMPTY = """
SET session_replication_role = replica; -- no trigger
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT oid::regclass FROM pg_class
    WHERE relkind = 'r' AND oid >= 16384 AND relname <> 'migrations' AND pg_relation_size(oid) > 0
  LOOP
    EXECUTE 'DELETE FROM ' || name;
  END LOOP;
  PERFORM setval(seqrelid, 1, false) FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL;
END $$
"""
NO_SERVER = (
    ""
    if os.environ.get("WHET_TEST_POSTGRES") or find_programs()
    else "PostgreSQL's programs are not installed"
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
        self._free: list[str] = []
        self._create(self._template, "template0 LOCALE 'C.UTF-8'")
        with connect(self.url_of(self._template)) as connection:
            schema.init(connection, STEPS)
            self._shape = connection.execute(_SHAPE.encode()).fetchall()

    def url_of(self, name: str) -> str:
        head, _, _ = self.url.rpartition("/")
        return f"{head}/{name}"

    def database(self, *, empty: bool = False, how: str = "template0 LOCALE 'C.UTF-8'") -> str:
        """Give the address of a database that nobody uses; `empty`: without Whet's schema, made so."""
        if self._free and not empty:
            return self._free.pop()
        name = self._name()
        template = how if empty else self._template
        return self._create(name, f"{template} STRATEGY FILE_COPY")

    def _name(self) -> str:
        return f"whet_{os.getpid()}_{next(_numbers)}"

    def _create(self, name: str, how: str) -> str:
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {how}".encode())
        self._made.append(name)
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Empty a database for the next test: to make one takes several times as long, and 8 MB. One whose
        schema was changed, that was analyzed or that somebody still uses is removed."""
        name = url.rpartition("/")[2]
        if self._is_left(name) and self._is_emptied(url) and self._is_left(name):
            new = self._name()  # what this process remembers of the old one is not about it
            self._admin.execute(f"ALTER DATABASE {name} RENAME TO {new}".encode())
            self._admin.execute(f"GRANT CONNECT, TEMPORARY ON DATABASE {new} TO PUBLIC".encode())
            self._made[self._made.index(name)] = new
            self._free.append(self.url_of(new))
            return
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        self._made.remove(name)

    def _is_left(self, name: str) -> bool:
        """Whether nobody uses a database. Who has just left is counted for a moment, in which the server lets
        a change of its name wait for a tenth of a second."""
        for _ in range(50):
            if self._admin.execute(_USERS, (name,)).fetchone() == (0,):
                return True
            self._admin.execute("SELECT pg_sleep(0.002)")
        return False

    def _is_emptied(self, url: str) -> bool:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                if connection.execute(_SHAPE.encode()).fetchall() != self._shape:
                    return False
                connection.execute(_EMPTY)
                return True
        except psycopg.Error:
            return False

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
        with psycopg.connect(own.url, autocommit=True) as connection:  # plans are a test's own doing
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute("SELECT pg_reload_conf()")
        cluster = Cluster(own.url, own)
    atexit.register(cluster.close)
    return cluster
