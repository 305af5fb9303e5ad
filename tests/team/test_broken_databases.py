"""Real workers meet databases that refuse them, fill up, are out of connections or cut them off: one clear
line each, and nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from tests.support import output_of, quiet_port, wait_until
from tests.team.cluster import Cluster
from tests.team.processes import environment, start, worker
from tests.team.test_soak import check, own_cluster, script_of
from tests.team.test_workers import ask, has_ended, opened
from whet.contract.errors import StoreError
from whet.store.team import TeamDatabase
from whet.team.queue import DatabaseQueue
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

_OTHER_USER = "nobody"
pytestmark = pytest.mark.slow


def refused(given: dict[str, str], folder: Path, command: str) -> str:
    """Give what a program says that can't begin: one line, and what to do."""
    process = start(command.split(), given, folder)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 1, text
    lines = text.strip().splitlines()
    assert len(lines) <= 2 and lines[0].startswith("error: "), text
    assert "Traceback" not in text and "secret" not in text
    return text


@contextmanager
def as_admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


@contextmanager
def role(admin: psycopg.Connection[Any], name: str) -> Iterator[str]:
    """A role that may not do everything: limits count for it."""
    admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    try:
        yield name
    finally:
        admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
        admin.execute(f"DROP ROLE {name}".encode())


def by(name: str, url: str) -> str:
    return re.sub(r"//([^@/]*@)?", f"//{name}@", url)


@pytest.fixture
def given(url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    with PracticeServer() as model:
        yield environment(url, tmp_path / "home", model, "practice-echo")


@pytest.mark.parametrize("command", ["worker", "team status", "serve --port 0"])
def test_what_a_program_says_that_can_not_use_its_database(
    cluster: Cluster, url: str, given: dict[str, str], tmp_path: Path, command: str
) -> None:
    def said(url: str = url) -> str:
        return refused(given | {"WHET_STORE_URL": url}, tmp_path, command)

    assert "can't reach" in said(f"postgresql://whet:secret@127.0.0.1:{quiet_port()}/whet")
    assert "does not exist" in said(cluster.url_of("nowhere"))
    assert "allowed: postgresql://user@host/database" in said("mysql://whet@db/whet")
    empty = cluster.database(empty=True)
    assert "has no tables of Whet's" in said(empty)
    cluster.drop(empty)
    name = url.rpartition("/")[2]
    with as_admin(url) as admin, role(admin, f"guest_{name}") as guest:
        assert "no right to do this" in said(by(guest, url))
        admin.execute("INSERT INTO migrations (name) VALUES ('m998_next'), ('m999_later')")
        assert "newer Whet (2 steps" in said()
        admin.execute("DELETE FROM migrations WHERE name IN ('m998_next', 'm999_later', 'team_queue')")
        assert "lacks 1 step" in said()
        admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0".encode())
        assert "has no connection left" in said(by(guest, url))


@pytest.mark.parametrize("command", ["worker --turns 1", "serve --port 0", "gateway run"])
def test_a_process_that_serves_others_refuses_to_start_without_a_model(
    given: dict[str, str], tmp_path: Path, command: str
) -> None:
    home = Path(given["WHET_HOME"])
    home.mkdir()
    channel = 'kind = "webhook"\nlisten = "127.0.0.1:0"\nurl = "http://127.0.0.1:9/whet"\n'
    (home / "gateway.toml").write_text(f"[[channel]]\n{channel}")
    given |= {"WHET_MODEL_PROVIDER": "", "WHET_MODEL_MODEL": "", "OPENAI_API_KEY": ""}
    given["GATEWAY_WEBHOOK_SECRET"] = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    assert "no model is named for 127.0.0.1" in refused(given, tmp_path, command)
    given |= {"WHET_MODEL_PROVIDER": "openai", "WHET_MODEL_BASE_URL": ""}
    assert "no key for openai" in refused(given, tmp_path, command)


def test_workers_of_two_versions_work_together(url: str, given: dict[str, str], tmp_path: Path) -> None:
    """A rolling upgrade: the new version's step is there already, the old one's workers go on and begin."""
    with ExitStack() as stack:
        db, queue = stack.enter_context(opened(url))
        stack.enter_context(worker(given, tmp_path))
        with as_admin(url) as admin:
            admin.execute("INSERT INTO migrations (name) VALUES ('m998_next')")
            admin.execute("ALTER TABLE team_turns ADD COLUMN next_version TEXT NOT NULL DEFAULT ''")
        stack.enter_context(worker(given, tmp_path))
        asked = [ask(db, queue, str(number))[0] for number in range(8)]
        wait_until(lambda: all(has_ended(queue, text) for text in asked), 120)


class Stalled:
    """A worker whose model is silent in the middle of a turn, after a call with an effect."""

    def __init__(self, stack: ExitStack, url: str, folder: Path) -> None:
        self.marks = folder / "marks.txt"
        stall = ScriptedReply("never seen", fault=Fault(stall_after=0), when="<one>")
        script = script_of("one", self.marks)
        self.model = stack.enter_context(PracticeServer(script=[*script[:1], stall, *script[1:]]))
        self.given = environment(url, folder / "home", self.model, "practice")
        self.db: TeamDatabase
        self.queue: DatabaseQueue
        self.db, self.queue = stack.enter_context(opened(url))
        self.worker = stack.enter_context(worker(self.given, folder))
        self.asked = {"one": ask(self.db, self.queue, "<one>")}
        self.model.wait_for_stall(1, 60)

    def says(self, *parts: str) -> None:
        """Wait for a line of the worker's that has all of these."""
        while not all(part in (line := output_of(self.worker).readline()) for part in parts):
            assert line, "the worker ended"

    def is_answered(self) -> bool:
        return has_ended(self.queue, self.asked["one"][0])

    def ends(self) -> None:
        """See that the turn is answered, with each effect once and nothing lost."""
        wait_until(self.is_answered, 120)
        check(self.db, self.queue, self.asked, self.marks)


def test_a_turn_goes_on_whose_transactions_the_administrator_ends(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        turn = Stalled(stack, url, tmp_path)
        with as_admin(url) as admin:
            mine = admin.info.backend_pid
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            admin.execute(f"{kill} AND pid <> {mine}".encode())
            turn.model.release()
            while not turn.is_answered():
                admin.execute(f"{kill} AND pid <> {mine} AND random() < 0.2".encode())
        turn.ends()


def test_a_turn_waits_while_the_database_has_no_connection_left(tmp_path: Path) -> None:
    with own_cluster(connections=24) as cluster, ExitStack() as stack:
        url = cluster.database()
        admin = stack.enter_context(as_admin(url))
        for text in ("plain", "hog"):
            admin.execute(f"CREATE ROLE {text} LOGIN".encode())
        for what in ("TABLES", "SEQUENCES"):
            admin.execute(f"GRANT ALL ON ALL {what} IN SCHEMA public TO plain".encode())
        turn = Stalled(stack, by("plain", url), tmp_path)
        admin.execute("ALTER ROLE plain CONNECTION LIMIT 0")  # until the others have taken every place
        admin.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'plain'")
        hogs = stack.enter_context(ExitStack())
        with suppress(psycopg.OperationalError):
            while True:
                hogs.enter_context(closing(psycopg.connect(by("hog", url), autocommit=True)))
        admin.execute("ALTER ROLE plain CONNECTION LIMIT -1")
        turn.model.release()
        turn.says("waiting up to 30 s: the team's database", "has no connection left")
        hogs.close()
        turn.ends()


def test_a_read_that_waits_for_the_database_logs_why(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def count(connection: apsw.Connection) -> int:
        return connection.execute("SELECT count(*) FROM sessions").fetchall()[0][0]

    name = f"reader_{url.rpartition('/')[2]}"
    with as_admin(url) as admin, role(admin, name) as reader:
        for what in ("TABLES", "SEQUENCES"):
            admin.execute(f"GRANT ALL ON ALL {what} IN SCHEMA public TO {reader}".encode())
        with closing(TeamDatabase.open_url(by(reader, url))) as db, ThreadPoolExecutor(1) as pool:
            assert db.read_now(count) == 0
            admin.execute(f"ALTER ROLE {reader} CONNECTION LIMIT 0".encode())
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (reader,)
            )
            waiting = pool.submit(db.read_now, count)
            wait_until(lambda: "waiting up to 30 s: the team's database" in caplog.text)
            admin.execute(f"ALTER ROLE {reader} CONNECTION LIMIT -1".encode())
            assert waiting.result(60) == 0


def test_who_reads_while_the_database_is_silent_sees_why_after_a_second(
    url: str, given: dict[str, str], tmp_path: Path
) -> None:
    assert "hello\n" in start(["chat", "-q", "hello"], given, tmp_path).communicate(timeout=60)[0]
    with as_admin(url) as admin:
        with admin.transaction():
            admin.execute("LOCK TABLE sessions")
            asking = start(["chat", "-c", "-q", "again"], given, tmp_path)
            line = next(line for line in output_of(asking) if line.startswith("waiting"))
            assert re.fullmatch(r"waiting: the team's database postgresql://\S+ does not answer\n", line)
        assert "again\n" in asking.communicate(timeout=60)[0]


def test_who_connects_to_a_silent_server_sees_why_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        url = f"postgresql://whet@127.0.0.1:{server.getsockname()[1]}/whet"
        opening = pool.submit(TeamDatabase.open_url, url)
        wait_until(lambda: "does not answer" in caplog.text)
        server.accept()[0].close()
        with pytest.raises(StoreError, match="can't reach the team's database"):
            opening.result(60)


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A disk of the test's own that the server may write."""
    path = Path(tempfile.mkdtemp(prefix="whet-small-"))
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], timeout=30, capture_output=True
        )
        if done.returncode:
            pytest.skip("mounting is not allowed here")
        try:
            shutil.chown(path, _OTHER_USER)
            yield path
        finally:
            subprocess.run(["umount", "-l", path], check=True, timeout=30)
    finally:
        path.rmdir()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a small disk")
def test_a_turn_waits_while_the_databases_disk_is_full(tmp_path: Path) -> None:
    with small_disk("64m") as path, own_cluster() as cluster, ExitStack() as stack:
        url = cluster.database()
        name = url.rpartition("/")[2]
        with as_admin(cluster.url) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{path}'".encode())
            admin.execute(f"ALTER DATABASE {name} SET TABLESPACE small".encode())
        turn = Stalled(stack, url, tmp_path)
        filler = path / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        with as_admin(url) as admin:
            fill = "INSERT INTO team_events (session, turn, body) SELECT 'f', 'f', repeat('x', 7000)"
            with pytest.raises(psycopg.errors.DiskFull):
                while True:
                    admin.execute(fill)
        turn.model.release()
        turn.says("waiting up to 30 s: the team's database", "has no space left")
        filler.unlink()
        turn.ends()
