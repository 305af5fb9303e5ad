"""A start after something happened to the files: older copies, foreign rows, clocks that were wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path

import pytest

from tests.confirm.running import SUBMIT, Running, outside, touch
from tests.confirm.test_waiting import Receiver
from whet.contract.errors import ConfigError
from whet.web.tokens import hash_secret
from whet_confirm import audit
from whet_confirm.grants import GrantRefused, check_grant
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths, StartTerms, open_service
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.timeline import Timeline
from whet_confirm.upkeep import notify_witnesses


def opened(paths: ServicePaths, **terms) -> ConfirmService:
    return open_service(paths, policy=None, limits=CallerLimits(), terms=StartTerms(**terms))


def used_approval(folder: Path) -> tuple[ServicePaths, dict]:
    with Running(folder) as server:
        agent, owner = server.client("submit", "agent"), server.client("approve", "alice")
        request = agent.post("/confirm", json=SUBMIT).json()
        owner.post(f"/confirm/{request['id']}/approve")
        touch(server.paths, "VACUUM INTO ?", str(folder / "older.db"))
        used = agent.post(f"/confirm/{request['id']}/consume", json={"digest": request["digest"]})
        assert used.status_code == 200
    return server.paths, request


def roll_back(paths: ServicePaths, folder: Path) -> None:
    for path in paths.database.parent.glob("confirmations.db*"):
        path.unlink()
    shutil.copy(folder / "older.db", paths.database)


@pytest.fixture
def rolled_back(tmp_path):
    """The files of a service with an older copy of its database."""
    paths, _ = used_approval(tmp_path)
    roll_back(paths, tmp_path)
    return paths


@pytest.mark.parametrize("known_by", ["watermark", "checkpoints", "witness"])
def test_an_older_copy_of_the_database_is_not_served(rolled_back, tmp_path, known_by):
    paths = rolled_back
    witness = tmp_path / "elsewhere.jsonl"
    if known_by != "watermark":
        (paths.folder / "latest.json").unlink()
    if known_by == "witness":
        paths.checkpoints.rename(witness)
    with pytest.raises(ConfigError, match="older than it was") as caught:
        opened(paths, witnesses=(witness,) if witness.exists() else ())
    assert "--accept-state" in caught.value.hint


def test_a_restored_copy_is_served_once_somebody_says_why(rolled_back):
    paths = rolled_back
    service = opened(paths, why="restored after the disk died")
    events = [event for event in service.log.history() if event.kind == "state_accepted"]
    assert [json.loads(event.data)["why"] for event in events] == ["restored after the disk died"]
    report = service.database.read_now(lambda db: audit.verify(db, {service.key.id: service.key}))
    service.database.close()
    assert report.problems == ()
    opened(paths).database.close()


def test_another_history_of_the_same_length_is_not_served(rolled_back):
    paths = rolled_back
    mark, checkpoints = (paths.folder / "latest.json"), paths.checkpoints.read_bytes()
    kept = mark.read_bytes()
    mark.unlink()
    paths.checkpoints.unlink()
    service = opened(paths)  # nothing is left that knows better
    for _ in range(20):
        service.database.write_now(lambda db: Tx(db, service.timeline.now_s(), service.key).record("login"))
    service.database.close()
    mark.write_bytes(kept)
    paths.checkpoints.write_bytes(checkpoints)
    with pytest.raises(ConfigError, match="another history"):
        opened(paths)


def test_a_run_that_was_killed_starts_again(tmp_path):
    paths, _ = used_approval(tmp_path)
    (paths.folder / "latest.json").write_bytes(b"")
    opened(paths).database.close()


FORGED_TOKEN = "INSERT INTO tokens VALUES ('t', x'00', 'mallory', 'approve', 1.0, NULL, NULL)"


@pytest.mark.parametrize(
    "sql",
    [
        FORGED_TOKEN,
        "UPDATE tokens SET role = 'admin' WHERE role = 'submit'",
        "DELETE FROM seal",
        "UPDATE seals SET rows = rows + 1",
        "DELETE FROM events WHERE id = (SELECT max(id) FROM events)",
    ],
)
def test_a_database_that_somebody_changed_is_not_served(tmp_path, sql):
    paths, _ = used_approval(tmp_path)
    touch(paths, sql)
    (paths.folder / "latest.json").unlink()
    with pytest.raises(ConfigError, match="is not served"):
        opened(paths)


def test_a_foreign_token_decides_nothing_while_the_service_runs(server, agent):
    request = agent.post("/confirm", json=SUBMIT).json()
    secret = "wct_" + "A" * 43
    writer = outside(server.paths)
    writer.execute(
        "INSERT INTO tokens VALUES ('t', ?, 'mallory', 'approve', 1.0, NULL, NULL)", (hash_secret(secret),)
    )
    writer.close()
    headers = {"authorization": f"Bearer {secret}"}
    answer = agent.post(f"/confirm/{request['id']}/approve", headers=headers)
    assert answer.status_code == 503 and "tokens was changed" in answer.json()["error"]
    assert agent.get(f"/confirm/{request['id']}").json()["status"] == "pending"


@pytest.mark.service(policy='[[rules]]\naction = "deploy"\neffect = "ask"\nquorum = 2\n')
def test_a_forged_vote_meets_no_quorum(server, agent, alice):
    request = agent.post("/confirm", json=SUBMIT).json()
    touch(server.paths, f"INSERT INTO votes VALUES ('{request['id']}', 'bob', 'approve', 1.0, '')")
    answer = alice.post(f"/confirm/{request['id']}/approve")
    assert answer.status_code == 409 and "bob" in answer.json()["error"], answer.text
    assert agent.get(f"/confirm/{request['id']}").json()["status"] == "pending"


@pytest.mark.parametrize("change", ['plan = \'{"rule":"x"}\'', "principal = 'x'", "description = 'harmless'"])
def test_a_record_that_somebody_changed_can_t_be_approved(server, agent, alice, change):
    request = agent.post("/confirm", json=SUBMIT).json()
    touch(server.paths, f"UPDATE requests SET {change} WHERE id = '{request['id']}'")
    answer = alice.post(f"/confirm/{request['id']}/approve")
    assert answer.status_code == 409 and "altered" in answer.json()["error"], answer.text


def test_an_approval_that_somebody_wrote_can_t_be_used(server, agent):
    request = agent.post("/confirm", json=SUBMIT).json()
    touch(server.paths, f"UPDATE requests SET status = 'approved', resolved_at = {time.time()}")
    answer = agent.post(f"/confirm/{request['id']}/consume", json={"digest": request["digest"]})
    assert answer.status_code == 409, answer.text


def test_another_signing_key_is_not_taken_silently(tmp_path):
    paths, _ = used_approval(tmp_path)
    text = paths.key.read_text()
    paths.key.write_text(text[:20] + ("A" if text[20] != "A" else "B") + text[21:])
    with pytest.raises(ConfigError, match="signing key"):
        opened(paths)


YEAR_S = 366 * 86_400.0


def year_ahead(paths: ServicePaths, folder: Path) -> tuple[dict, dict, str]:
    """One run whose clock was a year ahead; gives a pending and an approved request, and a grant."""
    with Running(folder) as server:
        server.service.timeline = Timeline(wall=lambda: time.time() + YEAR_S)
        agent, owner = server.client("submit", "agent"), server.client("approve", "alice")
        pending, approved = (agent.post("/confirm", json=SUBMIT).json() for _ in range(2))
        assert owner.post(f"/confirm/{approved['id']}/approve").status_code == 200
        grant = agent.get(f"/confirm/{approved['id']}/grant").json()["grant"]
    return pending, approved, grant


@pytest.mark.slow
def test_a_clock_that_was_a_year_ahead_is_corrected_by_the_next_start(tmp_path):
    paths = ServicePaths(tmp_path / "confirmations.db", tmp_path / "confirm")
    pending, approved, grant = year_ahead(paths, tmp_path)
    with Running(tmp_path) as server:
        assert abs(server.service.timeline.now_s() - time.time()) < 60
        agent = server.client("submit", "agent")
        assert agent.get(f"/confirm/{pending['id']}").json()["status"] == "expired"
        used = agent.post(f"/confirm/{approved['id']}/consume", json={"digest": approved["digest"]})
        assert used.status_code == 409 and "too old" in used.json()["error"]
        kinds = [event.kind for event in server.service.log.history()]
        assert kinds.count("clock_corrected") == 1
        key = server.service.key
        with pytest.raises(GrantRefused, match="clock"):
            check_grant(grant, key, digest=approved["digest"], now_s=time.time())
        report = server.read(lambda db: audit.verify(db, {key.id: key}))
    assert report.problems == ()


def test_a_clock_that_is_set_back_a_little_revives_nothing(tmp_path):
    with Running(tmp_path) as server:
        server.service.timeline = Timeline(wall=lambda: time.time() + 1800)
        server.client("submit", "agent").post("/confirm", json=SUBMIT)
    service = opened(server.paths)
    ahead_s = service.timeline.now_s() - time.time()
    service.database.close()
    assert 1700 < ahead_s < 1900


def test_a_leap_of_the_clock_within_a_run_moves_no_deadline():
    wall, elapsed = [1_000_000.0], [5.0]
    line = Timeline(wall=lambda: wall[0], elapsed=lambda: elapsed[0])
    wall[0] += YEAR_S
    elapsed[0] += 10
    assert line.now_s() == 1_000_010.0


def test_checkpoints_reach_a_witness_by_http(tmp_path):
    with Receiver() as receiver, Running(tmp_path) as server:
        server.change(lambda tx: tx.checkpoint())

        async def tell() -> None:
            task = asyncio.create_task(notify_witnesses(server.service, [receiver.url]))
            async with asyncio.timeout(20):
                while not receiver.got:
                    await asyncio.sleep(0)
            task.cancel()

        server.run(tell())
    row = json.loads(receiver.got[0][1])["data"]
    mark = audit.Checkpoint(**row)
    service = opened(server.paths)
    keys = audit.read_keys(server.paths.public_key) | {service.key.id: service.key}
    report = service.database.read_now(lambda db: audit.verify(db, keys, [mark]))
    service.database.close()
    assert report.problems == () and mark.size > 0


def test_a_state_that_was_taken_holds_no_sum_that_somebody_added(tmp_path):
    paths = ServicePaths(tmp_path / "c.db", tmp_path / "confirm")
    opened(paths).database.close()
    touch(paths, "INSERT INTO seals VALUES ('more', 1, zeroblob(256))")
    with pytest.raises(ConfigError, match="sums of the tables"):
        opened(paths)
    opened(paths, why="looked at").database.close()
    opened(paths).database.close()
