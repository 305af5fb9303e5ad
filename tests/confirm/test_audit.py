from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.confirm.running import ManualClock, alter
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet_confirm import audit, requests, retention
from whet_confirm.commands.files import open_files
from whet_confirm.decide import DecisionInput, cancel, consume, decide
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.records import ApprovalPlan, Caller
from whet_confirm.risk import RiskReadings
from whet_confirm.service import CallerLimits
from whet_confirm.submit import Submission, judge_submission, store
from whet_confirm.watermark import last_mark

AGENT, ALICE = Caller("agent", "submit"), Caller("alice", "approve")
POLICY = ConfirmPolicy()


def fill(folder: Path, count: int) -> ServicePaths:
    """A database with `count` requests: approved and used, denied, cancelled, pending."""
    paths = ServicePaths(folder / "c.db", folder / "confirm")
    service = open_service(paths, policy=None, limits=CallerLimits())
    clock = ManualClock()
    clock.wall_s = service.timeline.now_s()
    timeline = clock.timeline()

    def one(db: apsw.Connection, number: int) -> None:
        clock.pass_by(0.5)
        tx = Tx(db, timeline.now_s(), service.key)
        submission = Submission("deploy", f"no {number}", {"n": number})
        judged = judge_submission(submission, AGENT, POLICY, tx.now_s)
        request = store(tx, judged, 10**9, 1, RiskReadings()).request
        assert request is not None
        if number % 4 < 2:
            verdict = "approve" if number % 4 == 0 else "deny"
            decide(tx, DecisionInput(request.id, verdict, "why"), ALICE, POLICY)
        if number % 4 == 0:
            consume(tx, request.id, AGENT, (request.digest, ""), 100.0)
        if number % 4 == 2:
            cancel(tx, request.id, AGENT, "")

    def many(db: apsw.Connection) -> None:
        for number in range(count):
            one(db, number)

    service.database.write_now(many)
    service.database.close()
    return paths


def look(path: Path, paths: ServicePaths, outside=()) -> audit.AuditReport:
    with closing(apsw.Connection(str(path))) as db:
        return audit.verify(db, audit.read_keys(paths.public_key), outside)


def checkpoints(path: Path) -> list[audit.Checkpoint]:
    with closing(apsw.Connection(str(path))) as db:
        return [audit.Checkpoint(*row) for row in db.execute("SELECT * FROM checkpoints ORDER BY size")]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("log"), 120)


def test_an_untouched_log_is_good(paths):
    report = look(paths.database, paths)
    assert report.is_good and report.events > 300 and report.records == 120 and report.checkpoints >= 3


def mutate(db: sqlite3.Connection, dice: random.Random) -> str:
    """Change the log in one way that nobody could miss on purpose."""
    last = db.execute("SELECT max(id) FROM events").fetchone()[0]
    number = dice.randint(1, last - 1)
    kind = dice.choice(["byte", "byte", "byte", "remove", "swap", "insert", "cut", "time"])
    if kind == "byte":
        column = dice.choice(["kind", "request_id", "principal", "owner", "data", "hash"])
        value = db.execute(f"SELECT CAST({column} AS BLOB) FROM events WHERE id = ?", (number,)).fetchone()[0]
        if not value:
            return mutate(db, dice)
        at = dice.randrange(len(value))
        changed = value[:at] + bytes([value[at] ^ (1 << dice.randrange(7))]) + value[at + 1 :]
        new = changed if column == "hash" else changed.decode("utf-8", "surrogateescape")
        try:
            db.execute(f"UPDATE events SET {column} = ? WHERE id = ?", (new, number))
        except UnicodeEncodeError:
            return mutate(db, dice)
    elif kind == "remove":
        db.execute("DELETE FROM events WHERE id = ?", (number,))
    elif kind == "swap":
        rows = db.execute("SELECT * FROM events WHERE id IN (?, ?)", (number, number + 1)).fetchall()
        db.execute("DELETE FROM events WHERE id IN (?, ?)", (number, number + 1))
        for row, place in zip(rows, (number + 1, number), strict=True):
            db.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", (place, *row[1:]))
    elif kind == "insert":
        row = db.execute("SELECT * FROM events WHERE id = ?", (last,)).fetchone()
        db.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", (last + 1, *row[1:]))
    elif kind == "cut":
        db.execute("DELETE FROM events WHERE id > ?", (dice.randint(1, 299),))
    else:
        db.execute("UPDATE events SET at = at + 0.001 WHERE id = ?", (number,))
    return kind


def run_mutations(paths: ServicePaths, folder: Path, count: int) -> None:
    dice = random.Random(20261121)
    missed = []
    for number in range(count):
        copy = folder / "copy.db"
        shutil.copy(paths.database, copy)
        with closing(sqlite3.connect(copy)) as db, db:
            kind = mutate(db, dice)
        if look(copy, paths).is_good:
            missed.append((number, kind))
    assert not missed


@pytest.mark.slow
def test_forty_random_mutations_are_all_found(paths, tmp_path):
    run_mutations(paths, tmp_path, 40)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_thousand_random_mutations_are_all_found(paths, tmp_path):
    run_mutations(paths, tmp_path, 1000)


RECORD_CHANGES = [
    "status = 'denied', resolved_by = 'mallory'", "resolved_by = 'mallory'", "reason = 'other'",
    "details = '{\"n\":99}'", "action = 'wipe'", "requester = 'x'", "session_key = 'x'",
    "expires_at = expires_at + 1", "digest = replace(digest, substr(digest, 1, 1), 'z')",
    "resolved_at = resolved_at + 1", "consumed_at = NULL", "details = 'junk'", "description = 'x'",
    "principal = 'x'", "callback_url = 'x'", "execution = 'x'",
]  # fmt: skip


@pytest.mark.fast_rows("action =", "details = 'junk'", "digest", "resolved_at", "status")
@pytest.mark.parametrize("change", RECORD_CHANGES)
def test_a_changed_record_is_found(paths, tmp_path, change):
    copy = tmp_path / "copy.db"
    shutil.copy(paths.database, copy)
    alter(copy, f"UPDATE requests SET {change} WHERE seq = 5")  # approved and used
    (problem,) = look(copy, paths).problems
    assert problem.startswith("request ")


@pytest.mark.parametrize(
    ("change", "words"),
    [("UPDATE requests SET action = 'wipe'", "does not fit"), ("DELETE FROM requests", "record is gone")],
)
@pytest.mark.parametrize(("count", "named"), [(1, 1), (19, 19), (20, 20), (21, 20)])
def test_of_many_changed_or_removed_records_twenty_are_named(paths, tmp_path, change, words, count, named):
    copy = tmp_path / "copy.db"
    shutil.copy(paths.database, copy)
    alter(copy, f"{change} WHERE seq <= ?", (count,))
    assert sum(words in problem for problem in look(copy, paths).problems) == named


def test_a_vote_without_the_signature_that_its_rule_demands_is_found(tmp_path):
    paths = fill(tmp_path, 1)
    service = open_service(paths, policy=None, limits=CallerLimits())

    def work(db: apsw.Connection) -> None:
        tx = Tx(db, service.timeline.now_s(), service.key)
        judged = judge_submission(Submission("deploy", "", {}), AGENT, POLICY, tx.now_s)
        strict = msgspec.structs.replace(judged.request, plan=ApprovalPlan(needs_passkey=True))
        request = store(tx, msgspec.structs.replace(judged, request=strict), 10**9, 1, RiskReadings()).request
        assert request is not None
        requests.cast_vote(tx, request, ALICE, ("approve", ""), {})

    service.database.write_now(work)
    service.database.close()
    (problem,) = look(paths.database, paths).problems
    assert "demands a passkey, and the vote of alice has no signature" in problem


def restamped(paths: ServicePaths, copy: Path) -> None:
    """What somebody with the file but without the key can do: cut the log and its checkpoints off."""
    shutil.copy(paths.database, copy)
    for sql in (
        "DELETE FROM events WHERE id > 150",
        "DELETE FROM checkpoints WHERE size > 150",
        "DELETE FROM requests WHERE id NOT IN (SELECT request_id FROM events)",
    ):
        alter(copy, sql)


def test_a_cut_log_is_found_by_a_checkpoint_that_was_kept_elsewhere(paths, tmp_path):
    kept = checkpoints(paths.database)[-1:]
    copy = tmp_path / "copy.db"
    restamped(paths, copy)
    assert any("cut off" in problem for problem in look(copy, paths, kept).problems)


def test_a_checkpoint_of_another_key_counts_for_nothing(paths, tmp_path):
    other = fill(tmp_path, 40)
    foreign = checkpoints(other.database)
    assert foreign and "key that is not known" in look(paths.database, paths, foreign).problems[0]


def test_pruning_keeps_the_log_verifiable(tmp_path):
    paths = fill(tmp_path, 120)
    service = open_service(paths, policy=None, limits=CallerLimits())
    db = service.database
    ((before_s,),) = db.read_now(lambda c: c.execute("SELECT at FROM events WHERE id = 250").fetchall())
    cut = db.read_now(lambda c: retention.plan_pruning(c, before_s))
    assert cut.size == 200 and cut.requests > 40
    archive = list(db.read_now(lambda c: [*audit.export(c, 0, cut.size)]))
    assert len(archive) == 200
    at_s, key = service.timeline.now_s(), service.key
    db.write_now(lambda c: retention.record_pruning(Tx(c, at_s, key), cut, "test"))
    while db.write_now(lambda c: retention.prune_batch(c, cut)):
        pass
    db.close()
    report = look(paths.database, paths)
    assert report.problems == () and report.records == 120 - cut.requests
    alter(paths.database, "UPDATE events SET principal = 'x' WHERE id = 201")
    assert not look(paths.database, paths).is_good


def test_a_checkpoint_that_was_taken_out_of_the_exported_file_is_found(paths):
    kept = checkpoints(paths.database)
    with closing(apsw.Connection(str(paths.database))) as db:
        assert audit.find_removed_checkpoints(db, kept) == []
        assert audit.find_removed_checkpoints(db, kept[:-1]) == []
        assert "taken out" in audit.find_removed_checkpoints(db, [kept[0], *kept[2:]])[0]


def test_digests_of_older_versions_stay_right(paths, tmp_path):
    """They spelled whole floats otherwise; a record is checked by the text that its digest was made of."""
    from whet_confirm.canonical import request_digest, stored_digest

    old = stored_digest("id", "act", '{"n":1152921504606846976}', "agent", "", 2.0)
    assert old != request_digest("id", "act", {"n": 2.0**60}, "agent", "", 2.0)
    assert old == request_digest("id", "act", {"n": 2**60}, "agent", "", 2.0)


def test_checkpoints_that_are_no_text_are_one_clear_error(tmp_path):
    path = tmp_path / "checkpoints.jsonl"
    path.write_bytes(b'{"size": "\xff\xfe"}\n')
    with pytest.raises(ConfigError, match="can't read checkpoints"):
        audit.read_checkpoints(path)
    assert last_mark(path) is None


def test_a_database_that_may_not_be_looked_at_is_one_clear_error(tmp_path):
    too_long = tmp_path / ("x" * 300)
    with pytest.raises(ConfigError, match="can't look at"), open_files(Home(tmp_path), too_long):
        pass
