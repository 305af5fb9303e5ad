"""Whatever is changed in the database from outside is found: any column of any table, rows taken or added."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.confirm.running import Running
from whet_confirm import audit, factors, stand_ins, whitelist
from whet_confirm.keys import base64url
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths

POLICY = """
groups = {ops = ["alice", "bob"]}
rules = [{action = "deploy_*", effect = "ask", quorum = "2 of ops", escalate_to = "ops"}]
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A database with at least one row in each table."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "policy.toml").write_text(POLICY)
    with Running(folder, policy=folder / "policy.toml", rate=1000) as server:
        agent = server.client("submit", "agent")
        alice, bob = server.client("approve", "alice"), server.client("approve", "bob")
        for number in range(6):
            body = {
                "action": "deploy_shop" if number % 2 else "send_mail",
                "description": f"no {number}",
                "details": {"n": number},
                "callback_url": "http://203.0.113.1/hook",
                "accepts_edits": True,
            }
            request = agent.post("/confirm", json=body, headers={"idempotency-key": f"k{number}"}).json()
            alice.get(f"/confirm/{request['id']}")
            alice.post(f"/confirm/{request['id']}/approve", json={"reason": "fine"})
            if number % 3 == 1:
                bob.post(f"/confirm/{request['id']}/approve")
            if number % 2 == 0:
                agent.post(f"/confirm/{request['id']}/consume", json={"digest": request["digest"]})
                report = {"result": "executed", "note": "went well"}
                agent.post(f"/confirm/{request['id']}/report", json=report)

        rows = (
            "people VALUES ('dora', 'i', 's', 'approve', 1.0, 2.0)",
            "passkeys VALUES ('p', 'alice', 'k', 'localhost', 0, 1.0, NULL)",
            "web_sessions VALUES ('h', 'k', 'c', 1.0, 2.0)",
            "deliveries (event_id, kind, request_id, channel, status, updated_at)"
            " VALUES (1, 'submitted', 'x', 'log', 'sent', 1.0)",
            "receipts VALUES ('x', 'push/d', 1.0, 2.0)",
            "whitelist_limits VALUES (1, 'x', 'times', '', 3, 1)",
            "devices VALUES ('d', 'alice', 't', 'phone', 'https://e', 'k', 's', '', '', 1.0)",
        )

        def more(tx: Tx) -> None:
            whitelist.add(tx, whitelist.WhitelistRequest("ping", "agent", "", 600), "root")
            factors.enrol(tx, "alice", by="root")
            stand_ins.delegate(tx, "bob", "alice", tx.now_s + 600)
            stand_ins.set_groups(tx, "alice", ["oidc:ops"], tx.now_s + 600)
            for row in rows:
                tx.connection.execute(f"INSERT INTO {row}")

        server.change(more)
        assert "send_mail" in agent.get("/confirm").text
    return server.paths


def look(path: Path, paths: ServicePaths) -> audit.AuditReport:
    with closing(apsw.Connection(str(path))) as db:
        return audit.verify(db, audit.read_keys(paths.public_key), audit.read_checkpoints(paths.checkpoints))


def tables(db: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = {name: [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({name})")] for name in names}
    return {name: columns for name, columns in rows.items() if not name.startswith("sqlite_")}


def other(value: Any, kind: str, dice: random.Random) -> object:
    """Another value of the column's type."""
    if kind == "INTEGER":
        return int(value or 0) + dice.choice([1, -1, 7])
    if kind == "REAL":
        return float(value or 0.0) + dice.choice([0.001, 1.0, -3600.0])
    if kind == "BLOB":
        return bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) and value else b"x"
    text = str(value or "")
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice("xyz0") + text[at:]


def quietly(change, paths: ServicePaths, folder: Path) -> audit.AuditReport | None:
    """What `verify` says after a change from outside; None where SQLite did not take the change."""
    copy = folder / "copy.db"
    shutil.copy(paths.database, copy)
    db = sqlite3.connect(copy)
    try:
        schema = db.execute("PRAGMA schema_version").fetchone()
        change(db)
        db.commit()
        if not db.total_changes and db.execute("PRAGMA schema_version").fetchone() == schema:
            return None
    except sqlite3.IntegrityError:
        return None
    finally:
        db.close()
    return look(copy, paths)


def test_nothing_is_wrong_at_first_and_no_table_is_empty(paths):
    report = look(paths.database, paths)
    assert report.problems == ()
    db = sqlite3.connect(paths.database)
    empty = [name for name in tables(db) if not db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
    db.close()
    assert empty == []


def columns(paths: ServicePaths) -> list[tuple[str, str, str]]:
    db = sqlite3.connect(paths.database)
    rows = [(table, name, kind) for table, those in tables(db).items() for name, kind in those]
    db.close()
    return rows


@pytest.mark.slow
def test_any_column_of_any_table_that_is_changed_is_found(paths, tmp_path):
    dice, missed, count = random.Random(16), [], 0
    for table, name, kind in columns(paths):

        def change(db: sqlite3.Connection, table: str = table, name: str = name, kind: str = kind) -> None:
            rows = db.execute(f"SELECT {name} FROM {table}").fetchall()
            number = dice.randrange(len(rows))
            keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
            key = db.execute(f"SELECT {', '.join(keys)} FROM {table} LIMIT 1 OFFSET {number}").fetchone()
            old = db.execute(f"SELECT {name} FROM {table} LIMIT 1 OFFSET {number}").fetchone()[0]
            where = " AND ".join(f"{one} = ?" for one in keys)
            db.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (other(old, kind, dice), *key))

        report = quietly(change, paths, tmp_path)
        count += report is not None
        if report is not None and report.is_good:
            missed.append((table, name))
    assert not missed and count > 90


@pytest.mark.slow
def test_any_row_that_is_taken_or_added_is_found(paths, tmp_path):
    missed = []
    for table in dict.fromkeys(table for table, _, _ in columns(paths)):
        row = f"(SELECT rowid FROM {table} LIMIT 1)"
        for sql in (f"DELETE FROM {table}", f"DELETE FROM {table} WHERE rowid = {row}"):
            try:
                report = quietly(lambda db, sql=sql: db.execute(sql), paths, tmp_path)
            except sqlite3.OperationalError:  # no rowid here
                continue
            if report is not None and report.is_good:
                missed.append(sql)
    forged = (
        "INSERT INTO votes SELECT id, 'bob', 'approve', 1.0, '' FROM requests WHERE status = 'pending'",
        "INSERT INTO tokens VALUES ('t', x'00', 'mallory', 'approve', 1.0, NULL, NULL)",
        "INSERT INTO whitelist VALUES (99, 'deploy_shop', '*', '', 'root', 1.0, 9e9, NULL)",
        "INSERT INTO second_factors SELECT 'mallory', sealed, 1.0, 0, 0, 0.0 FROM second_factors",
        "INSERT INTO views SELECT id, 'bob', 1.0 FROM requests LIMIT 1",
        "INSERT INTO facts VALUES ('key:ffff', 'x')",
        "INSERT INTO idempotency SELECT principal, 'o', body_hash, request_id, at FROM idempotency LIMIT 1",
        "INSERT INTO requests SELECT seq + 100, substr(id, 1, 21) || '_', action, action_key, description,"
        " details, requester, session_key, principal, status, created_at, expires_at, timeout_seconds,"
        " resolved_at, resolved_by, reason, digest, plan, policy_version, is_high_risk, accepts_edits,"
        " original, edited_by, callback_url, escalates_at, escalated_at, consumed_at, consumed_by,"
        " consume_key, executed_at, execution, execution_note, rate_number FROM requests",
        "CREATE TRIGGER quiet AFTER UPDATE ON requests BEGIN DELETE FROM votes; END",
        "CREATE TABLE more (x)",
        "DROP INDEX by_rate",
    )
    for sql in forged:
        report = quietly(lambda db, sql=sql: db.execute(sql), paths, tmp_path)
        if report is None or report.is_good:
            missed.append(sql)
    assert not missed


def test_a_log_that_was_chained_again_without_the_key_is_found(paths, tmp_path):
    """Whoever has the file and knows the format can chain events; only the key can seal them."""

    def change(db: sqlite3.Connection) -> None:
        from whet_confirm.ledger import event_hash

        size, head = db.execute("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
        fields = (size + 1, 1.8e9, "vote", "x", "bob", "agent", "{}")
        db.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", (*fields, event_hash(head, fields)))
        db.execute("UPDATE seal SET size = ?, head = ?", (size + 1, event_hash(head, fields)))

    report = quietly(change, paths, tmp_path)
    assert report is not None and not report.is_good


@pytest.mark.slow
def test_the_sums_follow_every_kind_of_write(tmp_path):
    """Replaced rows, ignored ones, failed and retried works: the sums are those of a fresh count."""
    with Running(tmp_path, upkeep=False) as server:
        db, dice = server.service.database, random.Random(5)

        def work(connection: apsw.Connection) -> None:
            for _ in range(20):
                name, number = f"f{dice.randrange(12)}", dice.random()
                match dice.randrange(5):
                    case 0:
                        connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(number)))
                    case 1:
                        connection.execute("INSERT OR IGNORE INTO views VALUES (?, 'p', ?)", (name, number))
                    case 2:
                        connection.execute("UPDATE views SET at = ? WHERE request_id > ?", (number, name))
                    case 3:
                        connection.execute("DELETE FROM facts WHERE name = ?", (name,))
                    case _:
                        connection.execute("UPDATE OR REPLACE views SET request_id = ?", (name,))
            if dice.random() < 0.3:
                raise ValueError(base64url(b"undone"))

        for _ in range(60):
            try:
                db.write_now(work)
            except ValueError:
                continue
    assert look(server.paths.database, server.paths).problems == ()
