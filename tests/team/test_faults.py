"""What is wrong with a team's database is said in one line, with what to do."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

import apsw
import psycopg
import pytest
from click.testing import CliRunner

from tests.store.support import new_log, user
from tests.support import FixedClock, quiet_port
from tests.team.cluster import Cluster
from whet.cli.team import team
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import SchemaTooNew, StoreBusy, StoreError, StoreFull, StoreUnwritable
from whet.postgres import schema
from whet.postgres.connection import connect
from whet.postgres.driver import hide_password
from whet.postgres.faults import translate_error
from whet.store.database import StateDatabase
from whet.store.migrations import STEPS
from whet.store.team import TeamDatabase, init
from whet.store.transcript import Transcript

_PATH = f"{os.environ['PATH']}:/usr/sbin"


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection]:
    with closing(connect(url)) as connection:
        yield connection


def refused(url: str, kind: type[StoreError], *, patience_s: float = 1.0) -> StoreError:
    with pytest.raises(kind) as caught:
        TeamDatabase.open_url(url, patience_s=patience_s)
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


def test_an_address_where_nobody_listens_or_no_database_is(url, cluster):
    store_error = refused(f"postgresql://whet:secret@127.0.0.1:{quiet_port()}/whet", StoreUnwritable)
    assert "can't reach" in store_error.message and "secret" not in store_error.message + store_error.hint
    store_error = refused(cluster.url_of("nowhere"), StoreUnwritable)
    assert (
        "refused the connection: database" in store_error.message and "does not exist" in store_error.message
    )
    assert "the database's name" in store_error.hint


@pytest.mark.slow
def test_an_empty_database_an_older_and_a_newer_schema(url, admin, cluster):
    empty = cluster.database(empty=True)
    assert "has no tables of Whet's" in refused(empty, StoreError).message
    assert init(empty) == list(schema.all_steps(STEPS)) and init(empty) == []
    cluster.drop(empty)
    admin.execute("DELETE FROM migrations WHERE name = 'team_queue'")
    store_error = refused(url, StoreError)
    assert store_error.message == "the team's database lacks 1 step of this version's schema"
    assert store_error.hint == "bring it up to date: whet team init URL"
    admin.execute("INSERT INTO migrations (name) VALUES ('team_queue'), ('m998_next')")
    TeamDatabase.open_url(url).close()  # one step newer: workers are replaced one by one
    admin.execute("INSERT INTO migrations (name) VALUES ('m999_later')")
    assert "newer Whet (2 steps" in refused(url, SchemaTooNew).message
    with pytest.raises(SchemaTooNew):
        init(url)


def test_a_database_that_was_set_up_lets_no_other_role_in(url, admin):
    admin.execute("CREATE ROLE outsider LOGIN")
    outsider = url.replace("whet@", "outsider@")
    try:
        with closing(psycopg.connect(outsider)) as connection:
            connection.execute("SELECT pg_try_advisory_lock(1)")
        init(url)
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(outsider)
    finally:
        admin.execute("DROP ROLE outsider")


def test_a_role_without_rights_and_a_database_without_connections(url, admin, cluster):
    name = url.rpartition("/")[2]
    admin.execute("DROP ROLE IF EXISTS guest")
    admin.execute("CREATE ROLE guest LOGIN")
    guest = url.replace("whet@", "guest@")
    try:
        assert "no right to do this" in refused(guest, StoreUnwritable).message
        admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0".encode())
        store_error = refused(guest, StoreBusy)
        assert "has no connection left" in store_error.message and "max_connections" in store_error.hint
    finally:
        admin.execute("DROP ROLE guest")


def test_a_full_disk_and_a_replica_are_named():
    full = translate_error(psycopg.errors.DiskFull("could not extend file"), "postgresql://db/whet")
    assert isinstance(full, StoreFull) and full.message.startswith(
        "the team's database postgresql://db/whet has no space"
    )
    replica = translate_error(psycopg.errors.ReadOnlySqlTransaction("no"), "postgresql://db/whet")
    assert isinstance(replica, StoreUnwritable) and "replica" in replica.message
    assert hide_password("postgresql://ann:pw@db/whet?password=x") == "postgresql://ann@db/whet"


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["sessions (id int)", "migrations (id int, migration text)"])
def test_a_database_of_another_program_is_left_as_it_is(cluster: Cluster, theirs: str) -> None:
    there = cluster.database(empty=True)
    with closing(connect(there)) as admin:
        admin.execute(f"CREATE TABLE {theirs}".encode())
        with pytest.raises(StoreError, match=f"tables of another program's .{theirs.split()[0]}.$"):
            init(there)
        names = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert [f"{name} " for (name,) in names] == [theirs.partition("(")[0]]
    if theirs.startswith("migrations"):
        assert "another program" in refused(there, StoreError).message
    cluster.drop(there)


def test_a_database_without_utf8_and_an_old_server_are_refused(cluster: Cluster) -> None:
    there = cluster.database(empty=True, how="template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match="encoding is LATIN1, not UTF8") as caught:
        init(there)
    assert "--encoding UTF8" in caught.value.hint
    cluster.drop(there)
    with pytest.raises(StoreError, match="the server is PostgreSQL 14; Whet needs 15 or newer"):
        schema.refuse_old(140_012)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hun@ter2@127.0.0.1/whet",
        "postgresql://ann:hun/ter2@127.0.0.1/whet",
        "postgresql://ann:hun ter2@127.0.0.1/whet",
        "postgresql://ann:hun?ter2@127.0.0.1/whet",
        "postgresql://a n@n/:hun#ter2@127.0.0.1/whet",
        "postgresql://ann:hun%zzter2@127.0.0.1/whet",
        "postgresql://127.0.0.1/whet?password=hun%zz",
        "postgresql://127.0.0.1/whet?foo=bar",
    ],
)
def test_an_address_that_can_not_be_read_shows_no_part_of_its_password(url: str) -> None:
    store_error = refused(url, StoreError, patience_s=0)
    assert "is not an address that can be read" in store_error.message and "%40 for @" in store_error.hint
    assert not re.search("hun|ter2", store_error.message + store_error.hint)


@contextmanager
def pooled(url: str, *more: str) -> Iterator[str]:
    """Give the address of a pooler before the database, which shares connections out by transaction."""
    program, port, server = shutil.which("pgbouncer", path=_PATH), quiet_port(), urlsplit(url)
    lines = [
        "[databases]",
        f"* = host={server.hostname} port={server.port} user={server.username}",
        "[pgbouncer]",
        *("listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir ="),
        *("auth_type = any", "pool_mode = transaction", *more),
    ]
    other = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with NamedTemporaryFile("w", suffix=".ini") as settings:
        settings.write("\n".join(lines) + "\n")
        settings.flush()
        Path(settings.name).chmod(0o644)
        command = [str(program), settings.name]
        with subprocess.Popen(command, cwd="/", stderr=subprocess.PIPE, text=True, **other) as pooler:
            try:
                assert pooler.stderr is not None
                while "process up" not in pooler.stderr.readline():
                    pass
                yield f"postgresql://whet@127.0.0.1:{port}{server.path}"
            finally:
                pooler.terminate()


@pytest.mark.skipif(shutil.which("pgbouncer", path=_PATH) is None, reason="pgbouncer is not installed")
@pytest.mark.parametrize("more", [(), ("ignore_startup_parameters = options",)])
def test_a_pooler_is_refused_before_anybodys_lock_is_held(url: str, more: tuple[str, ...]) -> None:
    with pooled(url, *more) as there:
        for use in (init, TeamDatabase.open_url):
            with pytest.raises(StoreError, match="is a connection pooler") as caught:
                use(there)
            assert "name the server itself" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-1, 1])
async def test_clocks_an_hour_apart_take_nothing_over(url, hours):
    with closing(TeamDatabase.open_url(url)) as db:
        here, there = FixedClock(), FixedClock(ids_after=100)
        there.moment += timedelta(hours=hours)
        log = await new_log(db, here)
        await log.begin_turn(user("x"))
        other = await Transcript.open(db, "s1", there)
        assert await other.claim_unfinished_turn() is None
        with pytest.raises(StoreBusy):
            await other.begin_turn(user("y"))


@pytest.mark.slow
def test_a_transaction_that_the_administrator_ends_is_run_again(url, cluster):
    runs: list[int] = []

    def work(connection) -> None:
        runs.append(1)
        connection.execute("INSERT INTO moved (origin, part, name, at) VALUES ('x', 'y', 'z', '')")
        if len(runs) == 1:
            cluster.cut(url)
        connection.execute("SELECT 1")

    with closing(TeamDatabase.open_url(url)) as db:
        db.write_now(work)
        assert db.read_now(lambda c: c.execute("SELECT count(*) FROM moved").fetchone()) == (1,)
    assert len(runs) == 2


def test_a_reader_sees_one_state_and_can_not_write(url):
    numbers = itertools.count()
    with closing(TeamDatabase.open_url(url)) as db:

        def work(connection) -> tuple[int, int]:
            """A read may begin again."""
            before = connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
            asyncio.run(new_log(db, SystemClock(), f"s{next(numbers)}"))
            return before, connection.execute("SELECT count(*) FROM sessions").fetchone()[0]

        before, after = db.read_now(work)
        assert before == after == next(numbers) - 1
        with pytest.raises(StoreError):
            db.read_now(lambda c: c.execute("DELETE FROM sessions"))


def test_both_databases_have_the_same_tables_and_columns(admin: psycopg.Connection, tmp_path: Path):
    """A step that is added to the one is there in the other, too."""
    own_columns = (
        "SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table'"
        " AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE 'messages\\_%' ESCAPE '\\'"
        " AND m.name NOT LIKE 'session\\_titles%' ESCAPE '\\'"
    )
    team_columns = (
        b"SELECT table_name::text, column_name::text FROM information_schema.columns"
        b" WHERE table_schema = 'public'"
    )
    with closing(StateDatabase.open(tmp_path / "state.db", SystemClock())) as own:
        wanted = set(own.read_now(lambda c: c.execute(own_columns).fetchall()))
    there = set(admin.execute(team_columns).fetchall())
    assert wanted <= there
    assert {table for table, _ in there - wanted} == {
        "claims",
        "message_words",
        "team_commits",
        "team_events",
        "team_processes",
        "team_questions",
        "team_said",
        "team_turns",
    }


@pytest.mark.slow
@pytest.mark.parametrize("lists", ["execute", "executemany"])
def test_every_text_comes_back_as_it_was(url, lists):
    """A NUL goes over as two private characters; a text that holds those two is another text."""
    alphabet = "\0\uf7f0\uf7f1\uf7f2a"
    texts = ["".join(one) for size in range(6) for one in itertools.product(alphabet, repeat=size)]
    with closing(TeamDatabase.open_url(url)) as db:

        def work(connection: apsw.Connection) -> None:
            connection.execute("CREATE TABLE texts (place BIGINT, what TEXT)")
            if lists == "executemany":
                connection.executemany("INSERT INTO texts VALUES (?, ?)", list(enumerate(texts)))
            else:
                for number, text in enumerate(texts[:200]):
                    connection.execute("INSERT INTO texts VALUES (?, ?)", (number, text))

        db.write_now(work)
        rows = db.read_now(lambda c: c.execute("SELECT what FROM texts ORDER BY place").fetchall())
    assert [row[0] for row in rows] == (texts if lists == "executemany" else texts[:200])


@pytest.mark.slow
def test_the_commands_say_what_they_did(url, cluster, monkeypatch, tmp_path):
    empty = cluster.database(empty=True)
    monkeypatch.setenv("WHET_HOME", str(tmp_path))
    runner = CliRunner()

    def run(*arguments: str) -> str:
        result = runner.invoke(team, list(arguments), obj=Home(tmp_path))
        return result.output if result.exception is None else str(result.exception)

    assert run("init", "mysql://x").startswith("that is not the address of a PostgreSQL database")
    assert run("init", empty).startswith("the team's database applied ")
    assert run("init", empty).startswith("the team's database is up to date")
    assert run("status").startswith("this home uses its own file")
    monkeypatch.setenv("WHET_STORE_URL", empty)
    assert json.loads(run("status", "--json"))["sessions"] == 0
    assert "no answer within 0 s: no worker runs" in run("ask", "x", "--timeout", "0")
    assert json.loads(run("status", "--json"))["waiting"] == 1


@pytest.mark.slow
def test_setting_up_repeats_no_password(url: str, tmp_path: Path) -> None:
    secret = url.replace("whet@", "whet:hunter2@", 1)
    result = CliRunner().invoke(team, ["init", secret], obj=Home(tmp_path))
    assert result.exit_code == 0 and "hunter2" not in result.output and ".pgpass" in result.output
    result = CliRunner().invoke(team, ["init", url], obj=Home(tmp_path))
    assert f"whet config set store.url {url}" in result.output
