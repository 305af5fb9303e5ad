"""A worker of an older commit beside one of this version, on a database that was upgraded while it ran."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.support import wait_until
from tests.team.cluster import Cluster
from tests.team.processes import environment, start, worker
from tests.team.test_soak import check, script_of
from tests.team.test_workers import ask, has_ended, opened
from whet_lab.practice.server import PracticeServer

OLDER = "bcfae4f5"
RELEASED = "9c64f17f"
"""0.4.0"""
_SHAPE = (
    "SELECT p.oid::regprocedure::text, p.prosrc, p.prorettype::regtype::text FROM pg_proc p"
    " WHERE p.pronamespace = 'public'::regnamespace UNION ALL"
    " SELECT indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public' UNION ALL"
    " SELECT table_name, column_name, coalesce(column_default, '') FROM information_schema.columns"
    " WHERE table_schema = 'public' ORDER BY 1, 2"
)
_ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def extract_older(folder: Path, commit: str = OLDER) -> Path:
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=_ROOT, capture_output=True, timeout=60)
    if archive.returncode:
        pytest.skip("the history does not reach back to the older commit")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def run(given: dict[str, str], folder: Path, *arguments: str) -> tuple[int, str]:
    process = start([*arguments], given, folder)
    return process.wait(timeout=120), process.communicate()[0]


def test_a_worker_goes_on_while_its_database_is_upgraded_and_is_refused_when_it_starts_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    url, marks, names = cluster.database(empty=True), tmp_path / "marks.txt", [f"t{at}" for at in range(12)]
    script = [reply for name in names for reply in script_of(name, marks)]
    with PracticeServer(script=script) as model, ExitStack() as stack:
        given = environment(url, tmp_path / "home", model, "practice")
        older = given | {"PYTHONPATH": str(extract_older(tmp_path / "older"))}
        assert run(older, tmp_path, "team", "init", url)[0] == 0
        first = stack.enter_context(worker(older, tmp_path, turns=1))
        assert run(given, tmp_path, "team", "init", url)[0] == 0
        second = stack.enter_context(worker(given, tmp_path, turns=1))
        db, queue = stack.enter_context(opened(url))
        asked = {name: ask(db, queue, f"<{name}>") for name in names}
        wait_until(lambda: all(has_ended(queue, turn_id) for turn_id, _ in asked.values()), 240)
        check(db, queue, asked, marks)
        owners = db.read_now(lambda c: c.execute("SELECT DISTINCT owner FROM team_turns").fetchall())
        assert {int(owner.split(" ")[1]) for (owner,) in owners} == {first.pid, second.pid}
        status, line = run(older, tmp_path, "worker")
        assert status == 1 and len(line.splitlines()) <= 2
        assert "was set up by a newer Whet" in line and "upgrade Whet on this machine" in line
    cluster.drop(url)


@pytest.mark.parametrize("commit", (OLDER, RELEASED))
def test_an_older_database_brought_up_is_as_a_new_one(cluster: Cluster, tmp_path: Path, commit: str) -> None:
    def read_shape(url: str) -> list[tuple[str, str, str]]:
        with psycopg.connect(url) as admin:
            return admin.execute(_SHAPE).fetchall()

    new_url, old_url = cluster.database(empty=True), cluster.database(empty=True)
    given = os.environ | {"WHET_HOME": str(tmp_path / "home")}
    older = given | {"PYTHONPATH": str(extract_older(tmp_path / "older", commit))}
    for variables, url in ((given, new_url), (older, old_url), (given, old_url)):
        assert run(variables, tmp_path, "team", "init", url)[0] == 0
    assert read_shape(old_url) == read_shape(new_url)
