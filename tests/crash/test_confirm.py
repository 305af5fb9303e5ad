"""kill -9 of the confirmation service under load, and races between two processes on one database."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.confirm.process import Served
from whet_confirm import audit
from whet_confirm.keys import load_key

BODY = {"action": "deploy", "description": "d", "details": {"n": 1}, "timeout_seconds": 3600}


class Load:
    """Agents that submit and people that decide, until the service dies; remembers what was acknowledged."""

    def __init__(self, served: Served, seed: int) -> None:
        self._served = served
        self._dice = random.Random(seed)
        self.submitted: list[str] = []
        self.decided: dict[str, str] = {}
        self.enough = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(3)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(30)

    def _work(self, number: int) -> None:
        try:
            while True:
                status, fields = self._served.call("POST", "/confirm", BODY, role="submit")
                assert status == 202, fields
                self.submitted.append(fields["id"])
                verb = "approve" if (number + len(self.submitted)) % 2 else "deny"
                status, done = self._served.call(
                    "POST", f"/confirm/{fields['id']}/{verb}", {}, role="approve"
                )
                assert status == 200, done
                self.decided[fields["id"]] = done["status"]
                if len(self.submitted) > 15:
                    self.enough.set()
        except (OSError, ValueError, http_errors()):
            self.enough.set()  # killed under our hands, which is the point


def http_errors() -> type[Exception]:
    import http.client

    return http.client.HTTPException


def run_kills(folder: Path, rounds: int) -> None:
    """Kill the service at a random moment under load, start it again, and look for what was acknowledged."""
    dice = random.Random(7)
    everything: dict[str, str] = {}
    pending: set[str] = set()
    served = Served(folder, "--rate-limit", "1000000")
    for number in range(rounds):
        served.start()
        for request_id in dice.sample(sorted(everything), min(5, len(everything))):
            record = served.call("GET", f"/confirm/{request_id}", role="submit")[1]
            assert record["status"] == everything[request_id], (number, record)
        for request_id in pending:
            # Its decision was under way at the kill: it is there whole or not at all.
            assert served.call("GET", f"/confirm/{request_id}", role="submit")[0] == 200
        with Load(served, number) as load:
            load.enough.wait(30)
            time.sleep(dice.random() * 0.05)  # the moment of the kill is what the test varies
            served.kill()
        everything |= load.decided
        pending = set(load.submitted) - set(load.decided)
    check_database(served, everything)
    print(f"{rounds} kills, {len(everything)} acknowledged decisions")


def check_database(served: Served, decided: dict[str, str]) -> None:
    """Every acknowledged decision is in the file, unchanged, and the log verifies."""
    with closing(apsw.Connection(str(served.home / "confirmations.db"))) as db:
        stored: dict[str, Any] = dict(db.execute("SELECT id, status FROM requests").fetchall())
        assert {text: stored.get(text) for text in decided} == decided
        own = load_key(served.home / "confirm" / "signing.key", may_make=False)  # it may not be signed yet
        assert audit.verify(db, {own.id: own}).problems == ()
        twice = db.execute(
            "SELECT request_id FROM events WHERE kind = 'decided' GROUP BY request_id HAVING count(*) > 1"
        ).fetchall()
        assert not twice


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_service_is_killed(tmp_path):
    run_kills(tmp_path, 3)


@pytest.mark.soak
def test_nothing_acknowledged_is_lost_in_two_hundred_kills(tmp_path):
    run_kills(tmp_path, 200)


def run_races(folder: Path, count: int) -> None:
    """Two processes on one database; the same request is decided in both at the same moment."""
    with Served(folder, "--rate-limit", "1000000") as first:
        database = str(first.home / "confirmations.db")
        second = Served(folder, "--rate-limit", "1000000", "--db-path", database)
        with second:
            for number in range(count):
                fields = first.call("POST", "/confirm", BODY, role="submit")[1]
                codes: list[int] = []
                gate = threading.Barrier(2)

                def go(served: Served, verb: str, path=fields["id"], codes=codes, gate=gate) -> None:
                    gate.wait(30)
                    codes.append(served.call("POST", f"/confirm/{path}/{verb}", {}, role="approve")[0])

                pairs = [(first, "approve"), (second, "deny")]
                threads = [threading.Thread(target=go, args=pair, daemon=True) for pair in pairs]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(30)
                assert sorted(codes) == [200, 409], number
            # A decision in one process wakes who waits in the other.
            fields = first.call("POST", "/confirm", BODY, role="submit")[1]
            woken: list[dict[str, Any]] = []
            path = f"/confirm/{fields['id']}"
            thread = threading.Thread(
                target=lambda: woken.append(second.call("GET", f"{path}?wait=30", role="submit")[1]),
                daemon=True,
            )
            thread.start()
            second.wait_for_metric("whet_confirm_waiting_clients 1")
            first.call("POST", f"{path}/approve", {}, role="approve")
            thread.join(30)
            assert woken[0]["status"] == "approved"


@pytest.mark.slow
def test_two_processes_never_both_decide(tmp_path):
    run_races(tmp_path, 12)


@pytest.mark.soak
@pytest.mark.timeout(7_200)  # beside other work there are four races a second
def test_two_processes_never_both_decide_in_ten_thousand_races(tmp_path):
    run_races(tmp_path, 10_000)


@pytest.mark.slow
def test_waiters_reattach_and_limits_hold_after_a_kill(tmp_path):
    served = Served(tmp_path, "--rate-limit", "2")
    with served:
        fields = [served.call("POST", "/confirm", BODY, role="submit")[1] for _ in range(2)]
        assert served.call("POST", "/confirm", BODY, role="submit")[0] == 429
        served.kill()
    with served:
        assert served.call("POST", "/confirm", BODY, role="submit")[0] == 429
        results: list[dict[str, Any]] = []
        path = f"/confirm/{fields[0]['id']}"
        thread = threading.Thread(
            target=lambda: results.append(served.call("GET", f"{path}?wait=30", role="submit")[1]),
            daemon=True,
        )
        thread.start()
        served.wait_for_metric("whet_confirm_waiting_clients 1")
        served.call("POST", f"{path}/approve", {}, role="approve")
        thread.join(30)
        assert results[0]["status"] == "approved"
