"""Database roles with the least rights: each process works with its own, and reaches nothing else."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.confirm.running import ManualClock
from tests.confirm.test_races import race
from tests.late import Late
from tests.support import wait_until
from tests.team.processes import environment, worker
from tests.team.test_confirm import opened as opened_service
from tests.team.test_confirm import verified
from tests.team.test_workers import ask, has_ended, opened, run_whet
from whet.config.paths import Home
from whet.contract.errors import StoreUnwritable
from whet.store.team import grant_agent_role
from whet.team.queue import read_result
from whet_confirm.open import service_paths
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")


@pytest.fixture
def granted(url: str, tmp_path) -> Iterator[tuple[str, list[str]]]:
    """A database with roles, and what `whet team init` printed."""
    with PracticeServer() as server:
        given = environment(url, tmp_path / "init", server, "practice")
        printed = run_whet(given, tmp_path, "team", "init", url, "--roles").splitlines()
    yield url, printed
    with psycopg.connect(url, autocommit=True) as admin:
        for suffix in ("agent", "confirm"):
            admin.execute(f"DROP OWNED BY {admin.info.dbname}_{suffix}".encode())
            admin.execute(f"DROP ROLE {admin.info.dbname}_{suffix}".encode())


def as_role(url: str, suffix: str) -> str:
    return url.replace("://whet@", f"://{url.rpartition('/')[2]}_{suffix}@")


def refused(url: str, *statements: str) -> None:
    for statement in statements:
        with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


@pytest.mark.slow
def test_a_worker_runs_turns_with_a_role_of_its_own(granted, tmp_path):
    url, printed = granted
    agent_url = as_role(url, "agent")
    name = agent_url.partition("://")[2].partition("@")[0]
    assert f'CREATE ROLE "{name}" LOGIN;' in printed
    script = [terminal_reply("echo hi"), ScriptedReply("done")]
    with PracticeServer(script=script) as server, opened(agent_url) as (db, queue):
        given = environment(agent_url, tmp_path / "home", server, "practice")
        with worker(given, tmp_path):
            turn_id, _ = ask(db, queue, "do it")
            wait_until(lambda: has_ended(queue, turn_id), 60)
            ended = read_result(db, turn_id)
        status = run_whet(given, tmp_path, "team", "status")
    assert ended is not None and (ended.reason, ended.error) == ("answered", "")
    assert "0 turns wait," in status
    refused(
        agent_url,
        "SELECT * FROM whet_confirm.events",
        "UPDATE whet_confirm_noted.tail SET number = 0",
        "DELETE FROM migrations",
        "CREATE TABLE mine (x int)",
        "ALTER TABLE messages DISABLE TRIGGER ALL",
        "TRUNCATE messages",
    )


@pytest.mark.slow
def test_a_role_with_more_rights_than_it_needs_is_named(granted, tmp_path, caplog):
    url, agent_url, confirm_url = granted[0], as_role(granted[0], "agent"), as_role(granted[0], "confirm")
    with opened(url) as (db, _), opened(agent_url) as (agent_db, _):
        agent_db.keep_claims()
        assert agent_db.describe_excess() == "" and caplog.text == ""
        db.keep_claims()
        db.keep_claims()
    assert caplog.text.count("owns the tables") == 1 and "reads tables of other schemas" in caplog.text
    caplog.clear()
    with opened_service(service_paths(Home(tmp_path / "confirm"), confirm_url), ManualClock()):
        assert caplog.text == ""
    with opened_service(service_paths(Home(tmp_path / "confirm"), url), ManualClock()):
        assert "_confirm, which does not" in caplog.text
    with PracticeServer() as server:
        given = environment(url, tmp_path / "home", server, "practice")
        assert "whet team init URL --roles" in run_whet(given, tmp_path, "doctor")


@pytest.mark.slow
def test_the_confirmation_service_decides_with_a_role_of_its_own(granted, tmp_path):
    confirm_url = as_role(granted[0], "confirm")
    where = service_paths(Home(tmp_path / "home"), confirm_url)
    clock = ManualClock()
    with opened_service(where, clock) as service:
        assert asyncio.run(race(service, clock, random.Random(1))).total() == 50
        assert verified(service, where) == ()
    refused(
        confirm_url,
        "SELECT * FROM messages",
        "UPDATE team_turns SET body = ''",
        "UPDATE whet_confirm_noted.events SET is_new = false",
        "DROP TRIGGER noted ON whet_confirm.events",
    )


@pytest.mark.slow
def test_init_and_status_count_the_same_steps(url, cluster, tmp_path):
    empty = cluster.database(empty=True)
    with PracticeServer() as server:
        given = environment(empty, tmp_path / "home", server, "practice")
        printed = run_whet(given, tmp_path, "team", "init", empty)
        status = run_whet(given, tmp_path, "team", "status")
    cluster.drop(empty)
    (count,) = re.findall(r"the team's database applied (\d+) steps", printed)
    assert f"schema     {count} steps" in status and "confirmation service's tables there applied" in printed


def test_an_owner_who_may_create_no_roles_is_told_what_an_administrator_runs(url, cluster):
    name = url.rpartition("/")[2]
    with psycopg.connect(cluster.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name}_owner LOGIN".encode())
        admin.execute(f"ALTER DATABASE {name} OWNER TO {name}_owner".encode())
        try:
            with pytest.raises(
                StoreUnwritable, match=f"{name}_owner may not create the role {name}_agent"
            ) as error:
                grant_agent_role(url.replace("://whet@", f"://{name}_owner@"), create=True)
            assert f'CREATE ROLE "{name}_agent" LOGIN, and repeat this' in error.value.hint
        finally:
            admin.execute(f"ALTER DATABASE {name} OWNER TO whet".encode())
            admin.execute(f"DROP ROLE {name}_owner".encode())
