"""Who is away is stood in for: one seat, one vote, chained as an event."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from tests.confirm.running import SUBMIT, Running
from whet.contract.errors import ConfigError
from whet_confirm.commands.people import away as away_command

POLICY = """
groups = {ops = ["alice", "carol"]}
rules = [
  {action = "deploy", effect = "ask", quorum = "2 of ops"},
  {action = "named", effect = "ask", approvers = ["alice"]},
]
"""


@pytest.fixture
def server(tmp_path):
    with Running(tmp_path, policy=POLICY) as running:
        running.people = {name: running.client("approve", name) for name in ("alice", "bob", "carol")}
        running.agent = running.client("submit", "agent")
        yield running


def away(server: Running, giver: str, stand_in: str, seconds: float = 3600.0):
    body = {"stand_in": stand_in, "until": time.time() + seconds}
    return server.people[giver].post("/delegations", json=body)


def asked(server: Running, **changes: object) -> str:
    return f"/confirm/{server.agent.post('/confirm', json=SUBMIT | changes).json()['id']}"


def test_a_stand_in_takes_the_seat_and_the_giver_has_none_meanwhile(server):
    first = asked(server)
    assert server.people["bob"].post(f"{first}/approve").status_code == 403
    delegation = away(server, "alice", "bob")
    assert delegation.status_code == 201 and delegation.json()["stand_in"] == "bob"
    # Alice, her stand-in and nobody else are no two of ops: it is one seat.
    assert server.people["alice"].post(f"{first}/approve").status_code == 403
    assert server.people["bob"].post(f"{first}/approve").status_code == 202
    assert server.people["carol"].post(f"{first}/approve").status_code == 200
    events = server.rows("SELECT kind, principal, data FROM events WHERE kind IN ('delegated', 'vote')")
    assert events[0][:2] == ("delegated", "alice") and '"stand_in":"bob"' in events[0][2]
    assert '"for":["alice"]' in next(data for _, name, data in events if name == "bob")
    assert server.people["bob"].post(f"{asked(server, action='named')}/approve").status_code == 200


def test_it_ends_with_its_time_when_taken_back_and_by_an_admin(server):
    number = away(server, "alice", "bob").json()["id"]
    assert server.people["carol"].delete(f"/delegations/{number}").status_code == 404
    assert server.people["alice"].delete(f"/delegations/{number}").status_code == 200
    text = asked(server)
    assert server.people["bob"].post(f"{text}/approve").status_code == 403
    assert server.people["alice"].post(f"{text}/approve").status_code == 202
    second = away(server, "alice", "bob").json()["id"]
    assert server.client("admin", "root").delete(f"/delegations/{second}").status_code == 200
    away(server, "alice", "bob")
    server.service.timeline.raise_floor(time.time() + 3601)
    assert server.people["bob"].get("/delegations").json()["delegations"] == []
    assert server.people["bob"].post(f"{asked(server)}/approve").status_code == 403


def test_a_seat_is_not_handed_on_and_not_lent_for_ones_own_request(server):
    away(server, "alice", "bob")
    assert away(server, "bob", "carol").status_code == 201
    text = asked(server)
    assert server.people["carol"].post(f"{text}/approve").status_code == 202  # her own seat, and no other
    assert server.people["carol"].post(f"{text}/approve").json()["status"] == "pending"
    own = server.client("admin", "alice").post("/confirm", json=SUBMIT | {"action": "named"}).json()
    assert server.people["bob"].post(f"/confirm/{own['id']}/approve").status_code == 403


def test_the_commands_say_who_is_away_and_end_it(server):
    run = CliRunner(env=server.access("approve", "alice")).invoke
    assert "bob decides for alice until" in run(away_command, ["--stand-in", "bob", "--until", "2w"]).output
    assert "alice" in run(away_command, []).output
    assert isinstance(run(away_command, ["--stand-in", "bob", "--until", "soon"]).exception, ConfigError)
    assert run(away_command, ["--end", "1"]).exit_code == 0
    assert "Nobody is away" in run(away_command, []).output
