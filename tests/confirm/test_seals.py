"""Seals that are not signed yet: what only the service can make and check, and for how long."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.confirm.running import Running, touch
from whet.contract.errors import ConfigError, StoreCorrupt
from whet_confirm import audit, seals, tokens
from whet_confirm.keys import SigningKey
from whet_confirm.ledger import Tx, event_hash
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.upkeep import Upkeep
from whet_confirm.web.audit import AuditWatch


def opened(paths: ServicePaths, *, new_key: bool = False) -> ConfirmService:
    return open_service(paths, policy=None, limits=CallerLimits(), new_key=new_key)


def busy(folder: Path) -> tuple[ConfirmService, ServicePaths]:
    """A service in the midst of much to do: its last commit holds a code."""
    paths = ServicePaths(folder / "c.db", folder / "confirm")
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
    found = service.database.read_now(seals.read_seal)
    assert found is not None
    return found


def died(paths: ServicePaths, folder: Path) -> ServicePaths:
    """What is on disk where the service was killed, in another folder."""
    there = ServicePaths(folder / "c.db", folder / "confirm")
    shutil.copytree(paths.folder, there.folder)
    (there.folder / "latest.json").unlink()  # it names the other file
    for end in ("", "-wal"):
        shutil.copy(f"{paths.database}{end}", f"{there.database}{end}")
    return there


def problems(service: ConfirmService, **keys: SigningKey) -> tuple[str, ...]:
    known = {service.key.id: keys.get("own", service.key.public)}
    return service.database.read_now(lambda db: audit.verify(db, known)).problems


def test_a_sum_of_rows_is_stored_as_it_always_was():
    """Other sizes or another order would make every stored seal of an older version a forgery."""
    whole = seals.RowSum().plus(1, 258).plus(1, -2)
    assert (whole.rows, whole.blob) == (2, bytes([0, 1]) + bytes(254))
    assert seals.RowSum().plus(-1, -1).blob == b"\xff" * 256


def test_one_commit_a_second_is_signed_and_so_is_the_last(tmp_path):
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
    db = apsw.Connection(str(paths.database))
    report = audit.verify(db, audit.read_keys(paths.public_key))
    db.close()
    assert report.is_good, report.problems


def test_upkeep_signs_what_is_not_signed_yet(tmp_path):
    service, _ = busy(tmp_path)
    before = service.log.state().size
    upkeep = Upkeep(service)
    asyncio.run(upkeep.tick())
    assert not sealed(service).is_signed  # more may be written
    asyncio.run(upkeep.tick())
    assert sealed(service).is_signed and problems(service) == ()
    assert service.log.state().size == before  # nothing has happened
    service.database.close()


def test_who_has_the_public_key_alone_is_told_that_it_is_not_signed_yet(tmp_path):
    service, _ = busy(tmp_path)
    (said,) = problems(service)
    assert "not signed yet" in said
    assert problems(service, own=service.key) == ()
    (said,) = problems(service, own=SigningKey(os.urandom(32)))
    assert "not signed by this service" in said
    service.database.close()


def test_a_checkpoint_signs_its_commit(tmp_path):
    service, _ = busy(tmp_path)

    def work(db: apsw.Connection) -> None:
        tx = Tx(db, service.timeline.now_s(), service.key)
        for _ in range(100):
            tx.record("login_failed")

    service.database.write_now(work)
    assert sealed(service).is_signed
    service.database.close()


def test_a_service_that_was_killed_goes_on_and_signs(tmp_path):
    service, paths = busy(tmp_path / "one")
    there = died(paths, tmp_path)
    service.database.close()
    again = opened(there)
    assert sealed(again).is_signed and problems(again) == ()
    again.database.close()


def test_a_new_key_believes_what_the_old_one_had_not_signed_yet(tmp_path):
    service, paths = busy(tmp_path / "one")
    there = died(paths, tmp_path)
    service.database.close()
    again = opened(there, new_key=True)
    assert sealed(again).is_signed and sealed(again).signer != service.key.id
    again.database.close()


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
    state = seals.hash_tables({name: seals.hash_sum(name, one) for name, one in sums.items()})
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
def test_who_has_the_database_without_the_key_forges_no_seal(tmp_path, way):
    service, paths = busy(tmp_path / "one")
    there = died(paths, tmp_path)
    old = sealed(service)
    db = sqlite3.connect(there.database)
    FORGED[way](db, service.key.id, old.signature)
    db.commit()
    db.close()
    with pytest.raises(ConfigError, match="is not served"):
        opened(there)
    looked = apsw.Connection(str(there.database))
    for key in (service.key, service.key.public):
        assert not audit.verify(looked, {key.id: key}).is_good
    looked.close()
    # The same under a running service: its next write fails.
    changed = sqlite3.connect(paths.database)
    FORGED[way](changed, service.key.id, old.signature)
    changed.commit()
    changed.close()
    with pytest.raises(StoreCorrupt):
        add(service, "carol")
    service.database.close()


@pytest.mark.parametrize("end", ["vote", "revealed"])
def test_an_event_that_somebody_wrote_is_sealed_by_no_later_write(tmp_path, end):
    service, paths = busy(tmp_path)
    size, head = service.database.read_now(
        lambda db: db.execute("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1").fetchone() or (0, b"")
    )
    fields = (size + 1, service.timeline.now_s(), end, "A" * 22, "alice", "agent", "{}")
    db = sqlite3.connect(paths.database)
    db.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", (*fields, event_hash(bytes(head), fields)))
    db.commit()
    db.close()
    with pytest.raises(StoreCorrupt, match="not written by this service"):  # one that logs nothing itself
        service.database.write_now(lambda db: db.execute("INSERT INTO facts VALUES ('x', '1')").fetchall())
    with pytest.raises(StoreCorrupt, match="not written by this service"):
        add(service, "carol")
    service.database.close()


@pytest.mark.parametrize("newer", [None, b"", b"x", b"\x80", "longer"])
def test_sums_in_the_seal_itself_are_sealed_too(tmp_path, newer):
    service, paths = busy(tmp_path / "one")
    there = died(paths, tmp_path)
    service.database.close()
    db = sqlite3.connect(there.database)
    ((had,),) = db.execute("SELECT newer FROM seal").fetchall()
    assert b"tokens" in had
    db.execute("UPDATE seal SET newer = ?", (had + b"\0" if newer == "longer" else newer,))
    db.commit()
    db.close()
    looked = apsw.Connection(str(there.database))
    assert not audit.verify(looked, {service.key.id: service.key}).is_good
    looked.close()
    with pytest.raises(ConfigError, match="is not served"):
        opened(there)


def test_what_a_replaced_key_seals_is_not_believed_any_more(tmp_path):
    service, paths = busy(tmp_path / "one")
    service.database.close()
    old = service.key
    again = opened(paths, new_key=True)
    add(again, "carol")
    keys = {**again.public_keys, again.key.id: again.key}
    assert again.database.read_now(lambda db: audit.verify(db, keys)).problems == ()
    db = sqlite3.connect(paths.database)
    _recoded(db, old.sign, old.id)
    db.commit()
    db.close()
    (said,) = again.database.read_now(lambda db: audit.verify(db, keys)).problems
    assert "a key that was replaced" in said
    with pytest.raises(StoreCorrupt, match="not signed with a key that is known"):
        add(again, "dora")
    again.database.close()
    with pytest.raises(ConfigError, match="not the one that sealed"):
        opened(paths)


@pytest.mark.slow
def test_the_page_and_the_api_know_replaced_keys_and_no_others(tmp_path):
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


def test_an_older_seal_put_back_is_found(tmp_path):
    service, paths = busy(tmp_path)
    old = sealed(service)
    add(service, "carol")
    db = sqlite3.connect(paths.database)
    sql = "UPDATE seal SET size = ?, head = ?, state = ?, key_id = ?, signature = ?"
    db.execute(sql, (old.size, old.head, old.state, old.key_id, old.signature))
    db.commit()
    db.close()
    with pytest.raises(StoreCorrupt):
        add(service, "dora")
    service.database.close()


def test_the_code_is_of_the_whole_statement_and_of_the_private_half(tmp_path):
    key, again = SigningKey(b"\1" * 32), SigningKey(b"\1" * 32)
    pieces = {"votes": b"v" * 32}
    seal = seals.make_seal(7, b"h" * 32, pieces, key, is_signed=False)
    assert seals.seal_problem(seal, {key.id: again}) == ""
    for other in (
        seals.make_seal(8, b"h" * 32, pieces, key, is_signed=False),
        seals.make_seal(7, b"i" * 32, pieces, key, is_signed=False),
        seals.make_seal(7, b"h" * 32, {"votes": b"w" * 32}, key, is_signed=False),
        seals.make_seal(7, b"h" * 32, pieces, OTHER, is_signed=False),
    ):
        assert other.signature != seal.signature
    assert "known" in seals.seal_problem(seal, {})
