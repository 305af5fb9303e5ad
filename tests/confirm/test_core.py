"""Pieces on their own: canonical JSON, time, grants, and files that are wrong at the start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import apsw
import httpx2
import pytest

from tests.confirm.running import SUBMIT, ManualClock, Running, alter, touch
from whet.contract.errors import ConfigError, SchemaTooNew, StoreBusy, StoreCorrupt
from whet_confirm import tokens
from whet_confirm.canonical import request_digest
from whet_confirm.grants import GrantRefused, check_grant
from whet_confirm.keys import PublicKey, SigningKey, load_key
from whet_confirm.open import ServicePaths, StartTerms, open_service
from whet_confirm.peers import Peers
from whet_confirm.records import Caller
from whet_confirm.service import CallerLimits


def test_order_of_keys_does_not_matter_and_every_field_does():
    base = ("id", "act", {"a": 1, "b": [1, 2]}, "agent", "s", 1.5)
    same = request_digest("id", "act", {"b": [1, 2], "a": 1}, "agent", "s", 1.5)
    assert request_digest(*base) == same
    for at, other in enumerate(["x", "x", {"a": 1}, "x", "x", 1.6]):
        assert request_digest(*base[:at], other, *base[at + 1 :]) != same  # type: ignore[arg-type]


def test_time_never_goes_back():
    clock = ManualClock()
    line = clock.timeline()
    first = line.now_s()
    clock.wall_s -= 3600
    clock.elapsed_s += 1
    assert line.now_s() == first + 1
    clock.wall_s += 7200
    assert line.now_s() == first + 3600
    clock.wall_s -= 7200
    clock.elapsed_s += 1
    assert line.now_s() == first + 3601
    assert clock.timeline(first + 9000).now_s() == first + 9000


def test_a_grant_is_checked_offline(tmp_path):
    with Running(tmp_path) as server:
        agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
        request = agent.post("/confirm", json=SUBMIT).json()
        assert agent.get(f"/confirm/{request['id']}/grant").status_code == 409
        alice.post(request["approve_url"])
        grant = agent.get(f"/confirm/{request['id']}/grant").json()["grant"]
        jwk = agent.get("/keys").json()["keys"][0]
        now_s = server.service.timeline.now_s()
    key = PublicKey.parse(jwk["x"])
    digest = request_digest(request["id"], "deploy", SUBMIT["details"], "agent", "", request["expires_at"])
    assert digest == request["digest"]
    checked = check_grant(grant, key, digest=digest, now_s=now_s)
    assert (checked.sub, checked.approved_by) == (request["id"], "alice")
    head, body, signature = grant.split(".")
    other = load_key(tmp_path / "other.key", may_make=True).public
    bad = [f"{head}.{body[:-2]}AA.{signature}", f"{head}.{body}.{signature[:-4]}AAAA", "x", "a.b.c", ""]
    for text, by, of, at_s, why in (
        *((text, key, digest, now_s, None) for text in bad),
        (grant, key, "0" * 64, now_s, "another action"),
        (grant, key, digest, now_s + 90_000, "too old"),
        (grant, other, digest, now_s, "not signed"),
    ):
        with pytest.raises(GrantRefused, match=why):
            check_grant(text, by, digest=of, now_s=at_s)


def test_a_key_is_called_by_the_first_sixteen_digits_of_its_hash():
    key = SigningKey(bytes(32))
    assert key.id == key.public.id == "139e3940e64b5491"
    assert PublicKey.parse(f" {key.text}\n").raw == key.raw
    with pytest.raises(ConfigError, match="not an ed25519 public key"):
        PublicKey.parse(key.text[:-1])


@pytest.fixture
def paths(tmp_path):
    """Of a service that was started once."""
    paths = ServicePaths(tmp_path / "c.db", tmp_path / "confirm")
    start(paths)
    return paths


def start(paths, **more):
    service = open_service(paths, policy=None, limits=CallerLimits(), patience_s=0.2, **more)
    service.database.close()


def test_a_key_that_others_can_read_stops_the_start(paths):
    paths.key.chmod(0o640)
    with pytest.raises(ConfigError, match="read by others") as caught:
        start(paths)
    assert "chmod 600" in caught.value.hint


def test_a_missing_key_stops_the_start_once_something_was_signed(paths):
    service = open_service(paths, policy=None, limits=CallerLimits())
    service.database.write_now(
        lambda db: db.execute("INSERT INTO checkpoints VALUES (1, 'x', 1.0, 'k', 's')")
    )
    service.database.close()
    paths.key.unlink()
    with pytest.raises(ConfigError, match="missing") as caught:
        start(paths)
    assert "--new-key" in caught.value.hint
    start(paths, new_key=True)
    assert len(paths.public_key.read_text().split()) == 2


def test_a_start_with_a_new_key_that_fails_leaves_the_old_one_where_it_was(paths, tmp_path):
    older = tmp_path / "older.db"
    first = paths.key.read_bytes()
    shutil.copy(paths.database, older)
    start(paths)
    shutil.copy(older, paths.database)  # rolled back: not served until somebody says why
    for _ in range(2):
        with pytest.raises(ConfigError, match="older than it was"):
            start(paths, new_key=True)
        assert paths.key.read_bytes() == first and paths.public_key.read_text().count("\n") == 1
    start(paths, new_key=True, terms=StartTerms(why="restored"))
    assert (paths.folder / "signing.old").read_bytes() == first
    assert (paths.folder / "signing.old").stat().st_mode & 0o777 == 0o600
    second = paths.key.read_bytes()
    start(paths, new_key=True)
    assert (paths.folder / "signing.old").read_bytes() == first
    assert (paths.folder / "signing.2.old").read_bytes() == second


def test_a_start_with_a_new_key_that_was_killed_is_settled_by_the_next(paths):
    first = paths.key.read_bytes()
    SigningKey.generate().write(paths.new_key)  # before it sealed anything
    start(paths)
    assert paths.key.read_bytes() == first and not paths.new_key.exists()
    start(paths, new_key=True)
    second = paths.key.read_bytes()
    paths.new_key.write_bytes(second)  # after that, and before it was in place
    paths.new_key.chmod(0o600)
    (paths.folder / "signing.old").replace(paths.key)
    start(paths)
    assert paths.key.read_bytes() == second and (paths.folder / "signing.old").read_bytes() == first


def test_a_start_that_fails_forgets_no_mark_of_a_longer_log(paths, tmp_path):
    older = tmp_path / "older.db"
    shutil.copy(paths.database, older)
    start(paths)
    shutil.copy(older, paths.database)
    own = paths.key.read_bytes()
    SigningKey.generate().write(paths.key)
    with pytest.raises(ConfigError, match="not the one that sealed"):
        start(paths, terms=StartTerms(why="restored"))
    paths.key.write_bytes(own)
    with pytest.raises(ConfigError, match="older than it was"):
        start(paths)


def test_a_broken_database_is_not_served(paths):
    paths.database.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StoreCorrupt) as caught:
        start(paths)
    assert "mv " in caught.value.hint


def test_a_newer_database_is_left_alone(paths):
    alter(paths.database, "PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew):
        start(paths)


def test_a_locked_database_is_not_served(paths):
    db = apsw.Connection(str(paths.database))  # of the same library: file locks are the process's
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as caught:
        start(paths)
    db.close()
    assert "fuser" in caught.value.hint


@pytest.mark.slow
def test_a_full_disk_is_503_and_nothing_half_done(tmp_path):
    """In a process of its own, whose files may not grow beyond a limit."""
    code = textwrap.dedent(f"""
        import resource, sys
        from pathlib import Path
        from tests.confirm.running import SUBMIT, Running
        with Running(Path({str(tmp_path)!r}), rate=10_000) as server:
            agent, alice = server.client("submit", "agent"), server.client("approve", "alice")
            body = SUBMIT | {{"details": {{"blob": "x" * 100_000}}}}
            made = agent.post("/confirm", json=SUBMIT).json()
            import signal
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.RLIM_INFINITY))
            answers = [agent.post("/confirm", json=body) for _ in range(60)]
            codes = [answer.status_code for answer in answers]
            assert 503 in codes, codes  # not for good: emptying the log into the file makes room for a while
            assert all("space" in answer.json()["error"] for answer in answers if answer.status_code != 202)
            assert agent.get("/confirm/" + made["id"]).json()["status"] == "pending"
            count = server.rows("SELECT count(*) FROM requests")[0][0]
            assert count == 1 + codes.count(202), (count, codes)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert agent.post("/confirm", json=body).status_code == 202
            assert alice.post(made["approve_url"]).status_code == 200
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_tokens_rotate_and_are_revoked_without_a_restart(server, agent, clock):
    assert agent.get("/confirm").status_code == 200
    token_id = server.rows("SELECT id FROM tokens WHERE name = 'agent'")[0][0]
    _, secret = server.change(lambda tx: tokens.rotate(tx, token_id, by="test", overlap_s=60))
    fresh = {"authorization": f"Bearer {secret}"}
    assert agent.get("/confirm").status_code == 200
    assert agent.get("/confirm", headers=fresh).status_code == 200
    clock.pass_by(61)
    assert agent.get("/confirm").status_code == 401
    new_id = server.rows("SELECT id FROM tokens WHERE expires_at IS NULL AND name = 'agent'")[0][0]
    server.change(lambda tx: tokens.revoke(tx, new_id, by="test"))
    assert agent.get("/confirm", headers=fresh).status_code == 401
    assert secret.encode() not in server.paths.database.read_bytes()


def test_failed_logins_are_recorded_and_slowed_down_and_valid_ones_pass(server, agent):
    stranger = server.client()
    wrong = {"authorization": "Bearer wct_wrong"}
    codes = [stranger.get("/confirm", headers=wrong).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2
    assert agent.get("/confirm").status_code == 200
    assert server.rows("SELECT count(*) FROM events WHERE kind = 'login_failed'") == [(10,)]


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        ("approve", "POST", "/confirm", 403), ("audit", "POST", "/confirm", 403),
        ("submit", "GET", "/audit", 403), ("audit", "GET", "/audit", 200),
        ("audit", "GET", "/audit/events", 200), ("approve", "GET", "/audit/events", 403),
        ("submit", "POST", "/whitelist", 403), ("audit", "GET", "/whitelist", 200),
        ("audit", "POST", "/whitelist", 403), ("", "GET", "/confirm", 401),
        ("", "GET", "/events", 401), ("", "GET", "/keys", 200), ("", "GET", "/metrics", 200),
        ("", "GET", "/openapi.json", 200), ("submit", "GET", "/nothing", 404),
    ],
)  # fmt: skip
def test_roles(shared, role, method, path, status):
    answer = shared.client(role).request(method, path, json=SUBMIT if method == "POST" else None)
    assert answer.status_code == status


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("shared"), rate=1000) as server:
        yield server


def test_every_documented_answer_fits_its_schema(shared):
    import jsonschema

    agent, alice = shared.client("submit", "agent"), shared.client("approve", "alice")
    document = agent.get("/openapi.json").json()

    def fits(answer, path, method):
        responses = document["paths"][path][method]["responses"]
        schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": document["components"]})

    first = agent.post("/confirm", json=SUBMIT)
    fits(first, "/confirm", "post")
    request = first.json()
    fits(agent.get(f"/confirm/{request['id']}"), "/confirm/{id}", "get")
    for _ in range(2):
        fits(alice.post(request["approve_url"]), "/confirm/{id}/approve", "post")
    used = agent.post(f"/confirm/{request['id']}/consume", json={"digest": request["digest"]})
    fits(used, "/confirm/{id}/consume", "post")
    fits(agent.get(f"/confirm/{request['id']}"), "/confirm/{id}", "get")
    stranger = shared.client()
    for who, path in ((alice, "/audit"), (agent, "/health"), (agent, "/confirm"), (stranger, "/confirm")):
        fits(who.get(path), path, "get")
    fits(agent.post("/confirm", content=b"{"), "/confirm", "post")


@pytest.mark.parametrize("kind", ["token", "socket", "open"])
def test_a_status_is_of_the_newest_commit_however_the_caller_is_known(tmp_path, kind):
    peers: Peers = {os.getuid(): Caller("agent", "submit", f"uid:{os.getuid()}")} if kind == "socket" else {}
    with Running(
        tmp_path, is_open=kind == "open", peers=peers, socket=tmp_path / "api.sock", upkeep=False
    ) as server:
        transport = httpx2.HTTPTransport(uds=str(tmp_path / "api.sock")) if kind == "socket" else None
        with httpx2.Client(base_url=server.url, transport=transport) as agent:
            if kind == "token":
                agent.headers["authorization"] = f"Bearer {server.token('submit', 'agent')}"
            request_id = agent.post("/confirm", json=SUBMIT).json()["id"]
            for _ in range(2):
                assert agent.get(f"/confirm/{request_id}").json()["status"] == "pending"
            touch(server.paths, "UPDATE requests SET description = 'other' WHERE id = ?", request_id)
            assert agent.get(f"/confirm/{request_id}").json()["description"] == "other"
