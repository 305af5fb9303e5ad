"""Seals that are not signed yet: what only the service can make and check, and for how long."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import pytest

from tests.confirm.running import Running, alter, touch
from whet.contract.errors import ConfigError, StoreCorrupt
from whet_confirm import audit, seals, tokens
from whet_confirm.keys import PublicKey, SigningKey
from whet_confirm.ledger import Tx, event_hash
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.upkeep import Upkeep
from whet_confirm.web.audit import AuditWatch


@pytest.fixture
def opened():
    """Open services, which are closed with the test."""
    with ExitStack() as stack:

        def start(paths: ServicePaths, *, new_key: bool = False) -> ConfirmService:
            service = open_service(paths, policy=None, limits=CallerLimits(), new_key=new_key)
            stack.callback(service.database.close)
            return service

        yield start


@pytest.fixture
def busy(opened, tmp_path):
    """A service in the midst of much to do: its last commit holds a code."""
    paths = ServicePaths(tmp_path / "one" / "c.db", tmp_path / "one" / "confirm")
    service = opened(paths)
    service.database.sealer.signed_at_s = math.inf  # no second passes here
    for name in ("alice", "bob"):
        add(service, name)
    assert not sealed(service).is_signed
    return service, paths


def add(service: ConfirmService, name: str) -> None:
    def make(db: apsw.Connection) -> None:
        tokens.create(Tx(db, service.timeline.now_s(), service.key), name, "approve", by="test")

    service.database.write_now(make)


def sealed(service: ConfirmService) -> seals.Seal:
    seal = service.database.read_now(seals.read_seal)
    assert seal is not None
    return seal


@pytest.fixture
def died(busy, tmp_path):
    """What is on disk where the busy service was killed, in another folder."""
    (_, paths), copy = busy, ServicePaths(tmp_path / "c.db", tmp_path / "confirm")
    shutil.copytree(paths.folder, copy.folder)
    (copy.folder / "latest.json").unlink()  # it names the other file
    for end in ("", "-wal"):
        shutil.copy(f"{paths.database}{end}", f"{copy.database}{end}")
    return copy


def check(path: Path, *keys: SigningKey | PublicKey) -> audit.AuditReport:
    """Verify a file with these keys."""
    with closing(apsw.Connection(str(path))) as db:
        return audit.verify(db, {key.id: key for key in keys})


def problems(service: ConfirmService, **keys: SigningKey) -> tuple[str, ...]:
    fields = {service.key.id: keys.get("own", service.key.public)}
    return service.database.read_now(lambda db: audit.verify(db, fields)).problems


def test_a_sum_of_rows_is_stored_as_it_always_was():
    """Other sizes or another order would make every stored seal of an older version a forgery."""
    whole = seals.RowSum().plus(1, 258).plus(1, -2)
    assert (whole.rows, whole.blob) == (2, bytes([0, 1]) + bytes(254))
    assert seals.RowSum().plus(-1, -1).blob == b"\xff" * 256


def test_one_commit_a_second_is_signed_and_so_is_the_last(opened, tmp_path):
    paths = ServicePaths(tmp_path / "c.db", tmp_path / "confirm")
    service = opened(paths)
    assert sealed(service).is_signed
    service.database.sealer.signed_at_s = -math.inf  # long ago
    add(service, "alice")
    assert sealed(service).is_signed
    service.database.sealer.signed_at_s = math.inf
    add(service, "bob")
    assert not sealed(service).is_signed
    service.database.close()
    assert check(paths.database, *audit.read_keys(paths.public_key).values()).problems == ()


def test_upkeep_signs_what_is_not_signed_yet(busy):
    service, _ = busy
    before = service.log.state().size
    upkeep = Upkeep(service)
    asyncio.run(upkeep.tick())
    assert not sealed(service).is_signed  # more may be written
    asyncio.run(upkeep.tick())
    assert sealed(service).is_signed and problems(service) == ()
    assert service.log.state().size == before  # nothing has happened


def test_who_has_the_public_key_alone_is_told_that_it_is_not_signed_yet(busy):
    service, _ = busy
    (text,) = problems(service)
    assert "not signed yet" in text
    assert problems(service, own=service.key) == ()
    (text,) = problems(service, own=SigningKey(os.urandom(32)))
    assert "not signed by this service" in text


def test_a_checkpoint_signs_its_commit(busy):
    service, _ = busy

    def work(db: apsw.Connection) -> None:
        tx = Tx(db, service.timeline.now_s(), service.key)
        for _ in range(100):
            tx.record("login_failed")

    service.database.write_now(work)
    assert sealed(service).is_signed


def test_a_service_that_was_killed_goes_on_and_signs(busy, died, opened):
    again = opened(died)
    assert sealed(again).is_signed and problems(again) == ()


def test_a_new_key_believes_what_the_old_one_had_not_signed_yet(busy, died, opened):
    again = opened(died, new_key=True)
    assert sealed(again).is_signed and sealed(again).signer != busy[0].key.id


def _recoded(db: sqlite3.Connection, code: Callable[[bytes], bytes], key_id: str = "") -> None:
    """Take a token's revocation away or add a holder, bring the sums up to date and seal it as it can be."""
    db.execute("UPDATE tokens SET role = 'admin' WHERE name = 'bob'")
    copy = apsw.Connection(":memory:")
    copy.execute("CREATE TABLE tokens (a, b, c, d, e, f, g)")
    for row in db.execute("SELECT * FROM tokens"):
        copy.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    total = seals.sum_table(copy, "tokens")
    db.execute("UPDATE seals SET rows = ?, sum = ? WHERE name = 'tokens'", (total.rows, total.blob))
    db.execute("UPDATE seal SET newer = NULL")  # both kept sums of tokens
    sums = {
        name: seals.RowSum(rows, int.from_bytes(blob, "little"))
        for name, rows, blob in db.execute("SELECT name, rows, sum FROM seals")
    }
    state = seals.hash_tables({name: seals.hash_sum(name, row_sum) for name, row_sum in sums.items()})
    size, head, old = db.execute("SELECT size, head, key_id FROM seal").fetchone()
    bare = seals.Seal(size, head, state, key_id or old, b"")
    values = (state, bare.key_id, code(bare.message))
    db.execute("UPDATE seal SET state = ?, key_id = ?, signature = ?", values)


OTHER = SigningKey(b"\7" * 32)
FORGED: dict[str, Callable[[sqlite3.Connection, str, bytes], None]] = {
    "the old code kept": lambda db, _, old: _recoded(db, lambda _: old),
    "another service's code": lambda db, _, __: _recoded(db, OTHER.make_code),
    "another service's code under its own name": lambda db, _, __: _recoded(
        db, OTHER.make_code, f"code:{OTHER.id}"
    ),
    "another service's signature": lambda db, _, __: _recoded(db, OTHER.sign, OTHER.id),
    "a code that says it is a signature": lambda db, me, __: _recoded(db, OTHER.make_code, me),
    "a signature that says it is a code": lambda db, _, __: _recoded(db, OTHER.sign),
    "a hash without a key": lambda db, _, __: _recoded(
        db, lambda m: hashlib.blake2b(m, digest_size=32).digest()
    ),
    "a code keyed with the public key": lambda db, _, __: _recoded(
        db, lambda m: hashlib.blake2b(m, key=OTHER.raw, digest_size=32).digest()
    ),
    "no code at all": lambda db, _, __: _recoded(db, lambda _: b""),
    "nobody's name": lambda db, _, __: _recoded(db, lambda _: b"", "code:"),
    "the name doubled": lambda db, me, __: _recoded(db, OTHER.make_code, f"code:code:{me}"),
    "the seal gone": lambda db, _, __: _gone(db),
}


def _gone(db: sqlite3.Connection) -> None:
    db.execute("UPDATE tokens SET role = 'admin' WHERE name = 'bob'")
    db.execute("DELETE FROM seal")
    db.execute("DELETE FROM seals")


@pytest.mark.parametrize("way", FORGED)
def test_who_has_the_database_without_the_key_forges_no_seal(busy, died, opened, way):
    service, paths = busy
    old = sealed(service)
    with closing(sqlite3.connect(died.database)) as db, db:
        FORGED[way](db, service.key.id, old.signature)
    with pytest.raises(ConfigError, match="is not served"):
        opened(died)
    assert not check(died.database, service.key).is_good
    assert not check(died.database, service.key.public).is_good
    # The same under a running service: its next write fails.
    with closing(sqlite3.connect(paths.database)) as db, db:
        FORGED[way](db, service.key.id, old.signature)
    with pytest.raises(StoreCorrupt):
        add(service, "carol")


@pytest.mark.parametrize("end", ["vote", "revealed"])
def test_an_event_that_somebody_wrote_is_sealed_by_no_later_write(busy, end):
    service, paths = busy
    newest = "SELECT id, hash FROM events ORDER BY id DESC LIMIT 1"
    size, head = service.database.read_now(lambda db: db.execute(newest).fetchone() or (0, b""))
    fields = (size + 1, service.timeline.now_s(), end, "A" * 22, "alice", "agent", "{}")
    row = (*fields, event_hash(bytes(head), fields))
    alter(paths.database, "INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", row)
    with pytest.raises(StoreCorrupt, match="not written by this service"):  # one that logs nothing itself
        service.database.write_now(lambda db: db.execute("INSERT INTO facts VALUES ('x', '1')").fetchall())
    with pytest.raises(StoreCorrupt, match="not written by this service"):
        add(service, "carol")


@pytest.mark.parametrize("newer", [None, b"", b"x", b"\x80", "longer"])
def test_sums_in_the_seal_itself_are_sealed_too(busy, died, opened, newer):
    with closing(sqlite3.connect(died.database)) as db, db:
        ((had,),) = db.execute("SELECT newer FROM seal").fetchall()
        assert b"tokens" in had
        db.execute("UPDATE seal SET newer = ?", (had + b"\0" if newer == "longer" else newer,))
    assert not check(died.database, busy[0].key).is_good
    with pytest.raises(ConfigError, match="is not served"):
        opened(died)


def test_what_a_replaced_key_seals_is_not_believed_any_more(busy, opened):
    service, paths = busy
    service.database.close()
    old = service.key
    again = opened(paths, new_key=True)
    add(again, "carol")
    keys = {**again.public_keys, again.key.id: again.key}
    assert again.database.read_now(lambda db: audit.verify(db, keys)).problems == ()
    with closing(sqlite3.connect(paths.database)) as db, db:
        _recoded(db, old.sign, old.id)
    (problem,) = again.database.read_now(lambda db: audit.verify(db, keys)).problems
    assert "a key that was replaced" in problem
    with pytest.raises(StoreCorrupt, match="not signed with a key that is known"):
        add(again, "dora")
    again.database.close()
    with pytest.raises(ConfigError, match="not the one that sealed"):
        opened(paths)


@pytest.mark.slow
def test_the_page_and_the_api_know_replaced_keys_and_no_others(opened, tmp_path):
    with Running(tmp_path) as first:
        old = first.service.key.id
    again = opened(first.paths, new_key=True)
    new = again.key.id
    again.database.close()
    with Running(tmp_path) as server:
        other = SigningKey.generate()
        found = server.run(AuditWatch(server.service).latest_check(is_asked=True))
        assert found.report.problems == () and found.report.checkpoints
        touch(server.paths, "INSERT INTO facts VALUES (?, ?)", f"key:{other.id}", other.text)
        assert [key["kid"] for key in server.client().get("/keys").json()["keys"]] == [old, new]


def test_an_older_seal_put_back_is_found(busy):
    service, paths = busy
    old = sealed(service)
    add(service, "carol")
    sql = "UPDATE seal SET size = ?, head = ?, state = ?, key_id = ?, signature = ?"
    alter(paths.database, sql, (old.size, old.head, old.state, old.key_id, old.signature))
    with pytest.raises(StoreCorrupt):
        add(service, "dora")


def test_the_code_is_of_the_whole_statement_and_of_the_private_half():
    key, again = SigningKey(b"\1" * 32), SigningKey(b"\1" * 32)
    pieces = {"votes": b"v" * 32}
    seal = seals.make_seal(7, b"h" * 32, pieces, key, is_signed=False)
    assert seals.seal_problem(seal, {key.id: again}) == ""
    for size, head, parts, signer in (
        (8, b"h", pieces, key),
        (7, b"i", pieces, key),
        (7, b"h", {"votes": b"w" * 32}, key),
        (7, b"h", pieces, OTHER),
    ):
        other = seals.make_seal(size, head * 32, parts, signer, is_signed=False)
        assert other.signature != seal.signature
    assert "known" in seals.seal_problem(seal, {})
