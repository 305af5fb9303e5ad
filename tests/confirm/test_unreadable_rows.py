"""A stored request that can't be read keeps nobody from what they need of the others."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.notify.test_notifier import SECRET, Receiver
from tests.confirm.people import channel, off
from tests.confirm.running import SUBMIT, field_of, touch
from tests.confirm.test_sight import page_of
from whet.contract.errors import StoreCorrupt
from whet_confirm import decide, recovery
from whet_confirm.audit import verify
from whet_confirm.callbacks import Callbacks
from whet_confirm.http import shapes
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths
from whet_confirm.records import ConfirmRequest
from whet_confirm.requests import RequestFilter
from whet_confirm.upkeep import Upkeep

pytestmark = pytest.mark.service(upkeep=False)

NO_TEXT = "CAST(x'ff' AS TEXT)"
JUNK = [
    "plan = 'junk'", "plan = '[]'", f"plan = {NO_TEXT}", "details = 'junk'", "details = '[1]'",
    f"details = {NO_TEXT}", f"description = {NO_TEXT}", "expires_at = 1e300", "created_at = -1e300",
]  # fmt: skip


def spoil(path: Path, request_id: str, change: str) -> None:
    """Write to the database as another program."""
    touch(ServicePaths(path, path.parent), f"UPDATE requests SET {change} WHERE id = ?", request_id)


def told_of(caplog: pytest.LogCaptureFixture, words: str = "is left out") -> list[str]:
    errors = (record for record in caplog.records if record.levelno >= logging.WARNING)
    return [text for error in errors if words in (text := error.getMessage())]


def names(hook: Receiver, request: ConfirmRequest) -> int:
    return sum(request.id.encode() in body for _, body in hook.got)


@pytest.mark.fast_rows("details = 'junk'", "plan = CAST", "expires_at")
@pytest.mark.parametrize("change", JUNK)
async def test_others_are_told_of_and_the_log_says_once_what_is_left_out(desk, caplog, change):
    first, broken, last = [await desk.submit(f"action-{number}") for number in range(3)]
    spoil(desk.service.database.path, broken.id, change)
    with Receiver() as hook:
        async with desk.notifying(channel("webhook", url=hook.url), {"CONFIRMATION_WEBHOOK_SECRET": SECRET}):
            await off(hook.wait, lambda: len(hook.got) >= 2, "the others")
            later = await desk.submit("later")
            await off(hook.wait, lambda: len(hook.got) >= 3, "a later one")
            await desk.until(lambda: told_of(caplog), "the log")
        assert [names(hook, one) for one in (first, last, later)] == [1, 1, 1]
        assert not names(hook, broken)
    assert len(told_of(caplog)) == 1
    assert not told_of(caplog, "can't be stored")


@pytest.mark.fast_rows("details = 'junk'")
@pytest.mark.parametrize("change", JUNK)
async def test_without_channels_the_log_has_the_others(desk, caplog, change):
    broken, good = await desk.submit("broken"), await desk.submit("good")
    spoil(desk.service.database.path, broken.id, change)
    async with desk.notifying():
        await desk.until(lambda: told_of(caplog, f"/r/{good.id}"), "the log")


async def test_a_vote_that_can_not_be_read_ends_no_notices_of_others(desk, caplog):
    secret = desk.token("ann")
    broken, good = await desk.submit("broken"), await desk.submit("good")
    path = desk.service.database.path
    spoil(path, broken.id, """plan = '{"quorum":[[{"count":2}]]}'""")
    touch(ServicePaths(path, path.parent), "INSERT INTO votes VALUES (?, 'x', 'junk', 1.0, '')", broken.id)
    with Receiver() as hook:
        async with desk.notifying(channel("webhook", url=hook.url), {"CONFIRMATION_WEBHOOK_SECRET": SECRET}):
            await off(hook.wait, lambda: names(hook, good), "the other")
            await desk.until(lambda: told_of(caplog), "the log")
    assert (await desk.decide(broken, desk.who(secret), "deny")).kind == "altered"


@pytest.mark.fast_rows("created_at", "details = 'junk'", "plan = CAST", "status")
@pytest.mark.parametrize("change", [*JUNK, "status = 'junk'", "original = 'junk', edited_by = 'x'"])
def test_a_list_and_its_pages_have_the_others(server, agent, change):
    request_ids = [agent.post("/confirm", json=SUBMIT).json()["id"] for _ in range(3)]
    spoil(server.paths.database, request_ids[1], change)
    listed = agent.get("/confirm?limit=2").json()
    first, _, last = request_ids
    assert [request["id"] for request in listed[shapes.RequestList.__struct_fields__[1]]] == [last, first]
    assert agent.get(f"/confirm/{request_ids[1]}").status_code == 503
    assert agent.get(f"/confirm/{request_ids[0]}").status_code == 200
    assert [request.id for request in server.service.list(RequestFilter(limit=1))] == [last]
    more = RequestFilter(before_seq=3, limit=1)
    assert [request.id for request in server.service.list(more)] == [first]


PENDING = [text for text in JUNK if "expires_at" not in text]


@pytest.mark.fast_rows("details = 'junk'")
@pytest.mark.parametrize("change", PENDING)
def test_the_deadlines_of_others_are_kept(server, agent, clock, caplog, change):
    request_ids = [agent.post("/confirm", json=SUBMIT).json()["id"] for _ in range(3)]
    spoil(server.paths.database, request_ids[1], change)
    clock.pass_by(4000.0)
    server.run(Upkeep(server.service).tick())
    kinds = {request_id: server.kinds(request_id) for request_id in request_ids}
    # SQLite can't change a row with a text that is none; any other ends as they all do.
    ended = ["submitted"] if NO_TEXT in change else ["submitted", "expired"]
    whole = ["submitted", "expired"]
    assert [*kinds.values()] == [whole, ended, whole]


def test_the_log_does_not_vouch_for_what_somebody_wrote_before_the_end(server, clock):
    request_id = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()["id"]
    spoil(server.paths.database, request_id, "plan = 'junk'")
    clock.pass_by(4000.0)
    assert server.change(lambda tx: decide.expire(tx, 9)) == 1
    keys = server.service.public_keys
    report = server.read(lambda db: verify(db, keys))
    assert any(request_id in line and "altered" in line for line in report.problems), report.problems


@pytest.mark.fast_rows("details = 'junk'")
@pytest.mark.parametrize("change", PENDING)
@pytest.mark.service(
    policy='[groups]\nops = ["bob"]\n[[rules]]\neffect = "ask"\nquorum = 2\nescalate_to = "ops"\n'
)
def test_the_next_group_hears_of_others(server, agent, clock, change):
    request_ids = [agent.post("/confirm", json=SUBMIT).json()["id"] for _ in range(2)]
    spoil(server.paths.database, request_ids[0], change)
    clock.pass_by(200.0)
    server.run(Upkeep(server.service).tick())
    kinds = [server.kinds(request_id) for request_id in request_ids]
    assert kinds[1] == ["submitted", "escalated"]
    is_read = not change.startswith(("plan", "created_at")) and NO_TEXT not in change
    assert ("escalated" in kinds[0]) == is_read
    again = server.change(lambda tx: decide.escalate(tx, 9, server.service.policy_file.policy))
    assert again == 0


async def test_a_start_with_a_corrected_clock_ends_all_that_can_be(desk, monkeypatch):
    monkeypatch.setattr(recovery, "BATCH", 2)
    requests = [await desk.submit(f"action-{number}") for number in range(5)]
    spoil(desk.service.database.path, requests[0].id, f"details = {NO_TEXT}")
    spoil(desk.service.database.path, requests[1].id, "plan = 'junk'")
    service = desk.service
    service.database.write_now(lambda db: recovery.correct_clock(Tx(db, time.time(), service.key), 9999.0))
    ended = [desk.events(request)[-1] for request in requests]
    assert ended == ["submitted", "expired", "expired", "expired", "expired"]


@pytest.mark.service(private_callbacks=True)
def test_webhooks_of_others_are_sent(server, agent, caplog):
    body = SUBMIT | {"callback_url": "http://127.0.0.1:9/hook"}
    request_ids = [agent.post("/confirm", json=body).json()["id"] for _ in range(2)]
    for request_id in request_ids:
        assert agent.post(f"/confirm/{request_id}/cancel", json={}).status_code == 200
    spoil(server.paths.database, request_ids[0], f"principal = {NO_TEXT}")
    due: list[Any] = []
    callbacks = Callbacks(server.service, "whsec_AAAA", allow_private=True)
    callbacks.start_due(due.append)
    assert [item.request_id for item in due] == [request_ids[1]]
    assert len(told_of(caplog)) == 1


async def test_what_can_not_be_read_is_said_to_who_asks_for_it(desk):
    request = await desk.submit()
    spoil(desk.service.database.path, request.id, f"reason = {NO_TEXT}")
    with pytest.raises(StoreCorrupt, match=r"a text in .* can't be read"):
        desk.service.get(request.id)
    with pytest.raises(StoreCorrupt, match=r"a text in .* can't be read"):
        desk.service.database.read_now(lambda db: db.execute("SELECT reason FROM requests").fetchall())


@pytest.mark.slow
def test_the_page_lets_decide_on_the_others(server, agent):
    requests = [agent.post("/confirm", json=SUBMIT).json() for _ in range(3)]
    with page_of(server) as browser:
        for request in requests:
            browser.get(f"/r/{request['id']}")
        spoil(server.paths.database, requests[0]["id"], "plan = 'junk'")
        spoil(server.paths.database, requests[1]["id"], "details = '{\"a\":1e999}'")
        assert requests[2]["id"] in browser.get("/").text
        page = browser.get("/several").text
        assert f'name="r.{requests[2]["id"]}"' in page and f'name="r.{requests[1]["id"]}"' not in page
        csrf = field_of(page, "csrf")
        ticked = {f"r.{one['id']}": one["digest"] for one in (requests[0], requests[2])}
        form = {"csrf": csrf, "verdict": "deny", "reason": "", **ticked}
        response = browser.post("/several", data=form, headers={"origin": str(browser.base_url).rstrip("/")})
        assert "Not decided: a request&#39;s plan" in response.text, response.text
        found = server.service.get(requests[2]["id"])
        assert found is not None and found.status == "denied"
