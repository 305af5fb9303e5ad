"""An index is not a proof: a key changed there alone signs nobody in, lets nothing pass, and is found."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw
import pytest

from tests.confirm import index_pages
from tests.confirm.running import SUBMIT, Running
from whet.contract.errors import ConfigError, StoreCorrupt
from whet.web.tokens import hash_secret
from whet_confirm import audit, tokens, whitelist
from whet_confirm.index_check import index_problem_at_start
from whet_confirm.ledger import Tx, event_hash
from whet_confirm.open import ServicePaths, StartTerms, open_service
from whet_confirm.schema import STEPS
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.submit import Submission

pytestmark = pytest.mark.service(upkeep=False)

HASHES, IDS = "sqlite_autoindex_tokens_2", "sqlite_autoindex_tokens_1"
FORGED = "wct_" + "x" * 43


def opened(paths: ServicePaths, *, why: str = "") -> ConfirmService:
    return open_service(paths, policy=None, limits=CallerLimits(), terms=StartTerms(why))


def change(service: ConfirmService, work) -> object:
    return service.database.write_now(lambda db: work(Tx(db, service.timeline.now_s(), service.key)))


def token(service: ConfirmService, name: str, role: str = "approve") -> tuple[str, str]:
    return change(service, lambda tx: tokens.create(tx, name, role, by="test"))  # type: ignore[return-value]


def allow(server: Running, action: str) -> None:
    entry = whitelist.WhitelistRequest(action, "agent", "", 600)
    server.change(lambda tx: whitelist.add(tx, entry, "root"))


def look(paths: ServicePaths) -> tuple[str, ...]:
    with closing(apsw.Connection(str(paths.database))) as db:
        return audit.verify(db, audit.read_keys(paths.public_key)).problems


@pytest.fixture
def paths(tmp_path):
    return ServicePaths(tmp_path / "c.db", tmp_path / "confirm")


@pytest.fixture
def service(paths):
    service = opened(paths)
    yield service
    service.database.close()


@pytest.fixture
def forged(paths):
    """The hash of alice's token replaced in the index alone; gives her real secret."""
    service = opened(paths)
    _, secret = token(service, "alice")
    service.database.close()
    index_pages.overwrite(paths.database, HASHES, hash_secret(secret), hash_secret(FORGED))
    return secret


def test_a_hash_forged_in_the_index_while_the_service_runs_signs_nobody_in(paths, service):
    _, secret = token(service, "alice")
    index_pages.overwrite(paths.database, HASHES, hash_secret(secret), hash_secret(FORGED))
    again = tokens.TOKENS
    with closing(apsw.Connection(str(paths.database))) as db:
        named = db.execute("SELECT name FROM tokens WHERE hash = ?", (hash_secret(FORGED),)).fetchone()
        assert named == ("alice",), "the attack works on a query that believes the index"
        assert again.find(db, again.by_hash, hash_secret(FORGED)) is None
    assert service.authenticate(FORGED) is None


def test_an_id_forged_in_the_index_is_not_somebody_else(paths, service):
    alice, _ = token(service, "alice")
    db = service.database
    index_pages.overwrite(paths.database, IDS, alice.encode(), b"0" * len(alice))
    found = db.read_now(lambda c: tokens.TOKENS.find(c, tokens.TOKENS.by_id, "0" * len(alice)))
    assert found is None


def test_a_start_and_the_audit_find_a_forged_hash(paths, forged):
    (problem,) = look(paths)
    assert HASHES in problem and "\n" not in problem
    with pytest.raises(ConfigError, match=HASHES) as refused:
        opened(paths)
    assert "--accept-state" in str(refused.value.hint)


def test_a_state_that_is_accepted_has_its_indexes_made_anew(paths, forged):
    service = opened(paths, why="restored by hand")
    assert service.authenticate(FORGED) is None
    who = service.authenticate(forged)
    assert who is not None and who.name == "alice"
    service.database.close()
    assert look(paths) == ()


@pytest.mark.fast_rows("events_by_request", "tokens_2")
@pytest.mark.parametrize(
    "index", ["by_rate", "whitelisted", "events_by_request", "sqlite_autoindex_requests_1", HASHES]
)
def test_an_emptied_index_is_found(paths, tmp_path, index):
    with Running(tmp_path, upkeep=False) as server:
        allow(server, "ping")
        assert server.client("submit", "agent").post("/confirm", json=SUBMIT).status_code == 202
        there = server.paths
    index_pages.empty(there.database, index)
    assert any(index in problem for problem in look(there))
    with pytest.raises(ConfigError, match=index):
        opened(there)


def test_an_action_forged_into_the_index_of_the_whitelist_does_not_pass(server):
    allow(server, "ping_it")
    agent = server.client("submit", "agent")
    index_pages.overwrite(server.paths.database, "whitelisted", b"ping_it", b"pay_all")
    answer = agent.post("/confirm", json={**SUBMIT, "action": "pay_all"})
    assert answer.json()["status"] == "pending"


def test_a_request_found_under_another_id_is_not_used(server, agent, alice):
    request = agent.post("/confirm", json=SUBMIT).json()
    own = request["id"].encode()
    index_pages.overwrite(server.paths.database, "sqlite_autoindex_requests_1", own, b"0" * 22)
    assert alice.get(f"/confirm/{'0' * 22}").status_code == 404
    assert alice.post(f"/confirm/{'0' * 22}/approve").status_code == 404


def test_a_rate_forged_in_the_index_stores_nothing(paths, service):
    token(service, "agent", "submit")
    who = service.authenticate(token(service, "agent", "submit")[1])
    assert who is not None
    body = Submission("deploy_it", "x", {"n": 1})
    asyncio.run(service.submit(who, body))
    service.database.close()
    index_pages.overwrite(paths.database, "by_rate", b"deploy_it", b"deploy_xx")
    again = opened(paths, why="to see what it does")  # which makes the index anew
    index_pages.overwrite(paths.database, "by_rate", b"deploy_it", b"deploy_xx")
    with pytest.raises(StoreCorrupt, match="leads to another request"):
        asyncio.run(again.submit(who, Submission("deploy_xx", "x", {"n": 1})))
    again.database.close()


def test_a_start_stops_looking_when_its_time_is_up():
    db = apsw.Connection(":memory:")
    for step in STEPS:
        db.execute(step)
    rows = ((number, "sent", "r", "slack", "sent", 1.0) for number in range(5_000))
    columns = "event_id, kind, request_id, channel, status, updated_at"
    db.executemany(f"INSERT INTO deliveries ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    assert index_problem_at_start(db) == ("", "")
    assert index_problem_at_start(db, -1.0) == ("", "deliveries")


def unsealed(db: apsw.Connection) -> None:
    """Take away what says that the database was sealed, as if an older version had written its log."""
    db.execute("DELETE FROM seal; DELETE FROM seals; DELETE FROM facts WHERE name = 'sealed'")
    db.execute("DELETE FROM checkpoints")
    head = bytes(32)
    for row in db.execute("SELECT * FROM events ORDER BY id").fetchall():
        kind = "noted" if row[2] == "sealed" else row[2]
        fields = (*row[:2], kind, *row[3:7])
        head = event_hash(head, fields)
        db.execute("UPDATE events SET kind = ?, hash = ? WHERE id = ?", (kind, head, row[0]))


@pytest.mark.parametrize(
    ("altered", "said"),
    [
        ("UPDATE tokens SET role = 'admin'", "is not the one in the log"),
        ("UPDATE tokens SET name = 'root'", "is not the one in the log"),
        ("UPDATE tokens SET revoked_at = NULL", "was revoked, and is in use again"),
        ("UPDATE requests SET details = '{}'", "does not fit its digest"),
    ],
)
def test_an_older_database_that_was_changed_is_not_sealed(tmp_path, altered, said):
    with Running(tmp_path, upkeep=False) as server:
        agent = server.client("submit", "agent")
        assert agent.post("/confirm", json=SUBMIT).status_code == 202
        token_id, _ = token(server.service, "gone")
        change(server.service, lambda tx: tokens.revoke(tx, token_id, by="root"))
        there = server.paths
    (there.folder / "latest.json").unlink()
    there.checkpoints.unlink(missing_ok=True)
    with closing(apsw.Connection(str(there.database))) as db:
        unsealed(db)
        db.execute(altered)
    with pytest.raises(ConfigError, match=said):
        opened(there)


def test_an_older_database_is_sealed(tmp_path):
    with Running(tmp_path, upkeep=False) as server:
        agent = server.client("submit", "agent")
        assert agent.post("/confirm", json=SUBMIT).status_code == 202
        there = server.paths
    (there.folder / "latest.json").unlink()
    there.checkpoints.unlink(missing_ok=True)
    with closing(apsw.Connection(str(there.database))) as db:
        unsealed(db)
    opened(there).database.close()
    assert look(there) == ()
