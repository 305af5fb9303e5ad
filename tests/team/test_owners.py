"""Who lives is told by leases: two machines or containers of a team may have the same host name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.store.support import child
from tests.support import output_of, wait_until
from whet.clock import SystemClock
from whet.contract.delegation import HelperWish
from whet.store import claims, helper_rows, jobs
from whet.store.helper_rows import HelperRow
from whet.store.team import TeamDatabase

LEASE_S = 1.0
LIVING_LEASE_S = 3.0  # a busy machine may renew a lease two seconds late
_OTHER = """
import sys
from whet.store import claims, helper_rows
from whet.store.team import TeamDatabase

db = TeamDatabase.open_url(sys.argv[1], lease_s=float(sys.argv[2]))
owner = claims.owner_name("other")
assert db.write_now(lambda c: helper_rows.take(c, "h1", owner))
db.keep_claims()
print(owner, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def db(url: str) -> Iterator[TeamDatabase]:
    with closing(TeamDatabase.open_url(url, lease_s=LEASE_S)) as database:
        database.write_now(lambda c: helper_rows.add(c, HelperRow("h1", "p", 0, "1.1", HelperWish("x"), "s")))
        yield database


@contextmanager
def other_process(url: str, lease_s: float = LEASE_S) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = child(_OTHER, url, str(lease_s))
    try:
        lines = iter(output_of(process).readline, "")  # the first may warn of the role's rights
        yield process, next(line.strip() for line in lines if line.endswith(" other\n"))
    finally:
        process.kill()
        process.communicate(timeout=60)


def take(db: TeamDatabase) -> bool:
    return db.write_now(lambda c: helper_rows.take(c, "h1", claims.owner_name("mine")))


def lease(db: TeamDatabase) -> str:
    return db.read_now(lambda c: c.execute("SELECT lease_until::text FROM team_processes").fetchall())[0][0]


def test_a_job_of_a_container_with_this_ones_host_name_is_left_to_it(db: TeamDatabase) -> None:
    clock = SystemClock()
    host, _, born, _, token = claims.owner_name("t").split(" ")
    for theirs in (f"{host} 999999999 {born} 0123 {token}", f"{host} 1 {born} 0123 {token}", f"{host} 1 - x"):
        job_id = db.write_now(lambda c: jobs.enqueue(c, jobs.NewJob("review", "{}"), clock))
        job = db.write_now(lambda c, theirs=theirs: jobs.lease(c, ("review",), theirs, 600, clock))
        assert job is not None and job.id == job_id
        assert db.write_now(lambda c: jobs.lease(c, ("review",), claims.owner_name("m"), 600, clock)) is None
        assert db.write_now(lambda c, job=job: jobs.complete(c, job, clock))


@pytest.mark.slow
def test_a_helper_is_another_processes_while_that_keeps_its_lease(db: TeamDatabase, url: str) -> None:
    with other_process(url, LIVING_LEASE_S) as (process, owner):
        assert owner.endswith(" other")
        for _ in range(7):  # more than a lease, which is renewed six times
            seen = lease(db)
            assert not take(db)
            wait_until(lambda seen=seen: lease(db) != seen, 60)
        process.kill()
        process.wait(60)
        wait_until(lambda: take(db), 60)
        helper_row = db.read_now(lambda c: helper_rows.get(c, "h1"))
        assert helper_row.owner == claims.owner_name("mine")


@pytest.mark.slow
def test_who_was_stopped_too_long_ends_no_helper_that_another_runs(db: TeamDatabase, url: str) -> None:
    def ended(owner: str) -> bool:
        row = HelperRow("h1", "p", 1, "1.1", HelperWish("x"), "s", reason="failed", error="fenced")
        return db.write_now(lambda c: helper_rows.end_helper(c, row, owner))

    with other_process(url) as (process, owner):
        process.kill()
        process.wait(60)
        wait_until(lambda: take(db), 60)
    assert not ended(owner)
    assert db.read_now(lambda c: helper_rows.get(c, "h1")).state == "open"
    assert ended(claims.owner_name("mine"))
