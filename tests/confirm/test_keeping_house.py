"""What the service does by itself goes on where something of it can't be done."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.confirm.running import SUBMIT, Running, touch
from tests.confirm.test_unreadable_rows import NO_TEXT, spoil, told_of
from whet_confirm.audit import read_checkpoints
from whet_confirm.names import REQUEST_ID
from whet_confirm.open import ServicePaths
from whet_confirm.service import ConfirmService
from whet_confirm.upkeep import TICK_S, Upkeep, follow_other_processes, notify_witnesses
from whet_confirm.web.view import describe_event

pytestmark = pytest.mark.service(upkeep=False)

_ALTERED = f"UPDATE events SET kind = {NO_TEXT}"


def test_an_end_that_can_not_be_written_is_tried_twice_a_second(server, clock):
    request_id = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()["id"]
    spoil(server.paths.database, request_id, f"description = {NO_TEXT}")
    clock.pass_by(4000.0)
    upkeep = Upkeep(server.service)
    server.run(upkeep.tick())
    assert upkeep.wait_s() == pytest.approx(TICK_S)


def test_the_end_is_signed_and_exported(tmp_path):
    with Running(tmp_path, upkeep=False) as server:
        server.client("submit", "agent").post("/confirm", json=SUBMIT)
        files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
        server.run(Upkeep(server.service, files[0], None, files[1]).seal())
        state = server.service.log.state()
        assert state.checkpoint_size == state.size > 0
        for file in files:
            (mark,) = read_checkpoints(file)
            assert (mark.size, mark.head) == (state.size, state.head)


def test_a_log_that_was_altered_is_pruned_only_if_asked_to(tmp_path):
    with Running(tmp_path) as server:
        request_id = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()["id"]
        server.client("approve", "alice").post(f"/confirm/{request_id}/deny")
        paths = server.paths
    prune = ("confirm", "prune", "--older-than", "0s", "--db-path", str(paths.database))
    touch(paths, "UPDATE requests SET status = 'approved'")
    refused = forked.run(prune, tmp_path, environ={"WHET_HOME": str(tmp_path)})
    assert refused.code == 1 and "was altered" in refused.err and "--even-if-altered" in refused.err
    done = forked.run((*prune, "--even-if-altered"), tmp_path, environ={"WHET_HOME": str(tmp_path)})
    assert done.code == 0 and "Took 1 request" in done.out


def test_a_submission_writes_at_most_twenty_kilobytes_to_the_disk(tmp_path):
    count = 100
    with Running(tmp_path, upkeep=False) as server:
        agent, log = server.client("submit", "agent"), Path(f"{server.paths.database}-wal")
        before_bytes = log.stat().st_size
        for number in range(count):
            assert agent.post("/confirm", json=SUBMIT | {"action": f"a{number}"}).status_code == 202
        assert (log.stat().st_size - before_bytes) / count < 20_000


def test_ids_are_drawn_anew_in_a_process_that_was_forked():
    script = (
        "import os\n"
        "from whet_confirm.names import new_request_id\n"
        "ids = [new_request_id(1.0) for _ in range(200)]\n"
        "is_child = os.fork() == 0\n"
        "ids += [new_request_id(1.0) for _ in range(200)]\n"
        "os.write(1, ''.join(f'{text}\\n' for text in ids[200 if is_child else 0:]).encode())\n"
        "is_child or os.wait()\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ids = shown.stdout.split()
    assert len(ids) == 600
    assert len(set(ids)) == len(ids)
    assert all(REQUEST_ID.fullmatch(text) for text in ids)


def test_an_idempotency_key_is_kept_for_two_days(server, clock):
    agent, key = server.client("submit", "agent"), {"idempotency-key": "k"}
    request_id = agent.post("/confirm", json=SUBMIT, headers=key).json()["id"]
    upkeep = Upkeep(server.service)
    clock.pass_by(48 * 3600.0)
    server.run(upkeep.tick())
    assert agent.post("/confirm", json=SUBMIT, headers=key).json()["id"] == request_id
    clock.pass_by(3599.0)  # it looks once an hour
    server.run(upkeep.tick())
    assert server.rows("SELECT count(*) FROM idempotency") == [(1,)]
    clock.pass_by(1.0)
    server.run(upkeep.tick())
    assert agent.post("/confirm", json=SUBMIT, headers=key).json()["id"] != request_id


def _altered(service: ConfirmService, changed: str) -> None:
    touch(ServicePaths(service.database.path, service.database.path.parent), changed)


async def _goes_on(
    work: asyncio.Task[None], service: ConfirmService, caplog: pytest.LogCaptureFixture
) -> None:
    while not told_of(caplog, "trying again"):
        assert not work.done(), work
        await asyncio.sleep(0)
    work.cancel()


def test_who_follows_other_processes_goes_on_where_one_wrote_nonsense(server, caplog):
    server.client("submit", "agent").post("/confirm", json=SUBMIT)
    service = server.service
    service.hub.last_id = 0
    _altered(service, _ALTERED)

    async def play() -> None:
        await _goes_on(asyncio.create_task(follow_other_processes(service)), service, caplog)

    server.run(play())


def test_witnesses_are_told_later_where_a_checkpoint_can_not_be_read(server, caplog):
    server.change(lambda tx: tx.checkpoint())
    _altered(server.service, f"UPDATE checkpoints SET head = {NO_TEXT}")

    async def play() -> None:
        work = asyncio.create_task(notify_witnesses(server.service, ["http://127.0.0.1:9/"]))
        await _goes_on(work, server.service, caplog)

    server.run(play())


def test_an_event_whose_data_was_altered_is_still_shown(server):
    request_id = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()["id"]
    _altered(server.service, "UPDATE events SET data = 'junk'")
    (event,) = server.service.log.history(request_id=request_id)
    assert describe_event(event)["word"].endswith("(its data can't be read)")
