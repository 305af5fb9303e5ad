"""What can be read in two ways is refused, and what looks like a way round does not lead round."""

from __future__ import annotations

import json
import time

import pytest

from tests.confirm.running import SUBMIT, Running, answered
from whet.contract.errors import ConfigError
from whet_confirm.names import is_same_person

HEAD = "Host: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
AMBIGUOUS = [
    "GET /health HTTP/1.1\r\nHost: evil.example\r\n" + HEAD,
    "GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n" + HEAD,
    "GET http://evil.example/health HTTP/1.1\r\n" + HEAD,
    "GET http://evil.example:{port}/health HTTP/1.1\r\n" + HEAD,
    "GET http://evil.example@127.0.0.1:{port}/health HTTP/1.1\r\n" + HEAD,
    "GET http://127.0.0.1:{port}/health HTTP/1.1\r\nConnection: close\r\n\r\n",
    "GET /health\r\n\r\n",
    "POST /confirm HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n" + HEAD + "abcd",
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_head_that_can_be_read_in_two_ways_is_400(shared, text):
    raw = shared.raw(text.format(port=shared.port).encode())
    assert raw.count(b"HTTP/1.1 4") == 1 and answered(raw)[0] == 400


def test_an_absolute_address_of_this_service_is_answered(shared):
    text = "GET http://127.0.0.1:{port}/health HTTP/1.1\r\n" + HEAD
    assert answered(shared.raw(text.format(port=shared.port).encode()))[0] == 200


@pytest.mark.parametrize("name", ["Agent", "AGENT", "agenT"])
def test_a_name_spelled_differently_is_the_same_person(server, agent, name):
    request = agent.post("/confirm", json=SUBMIT).json()
    with pytest.raises(ConfigError, match="one person with two names"):
        server.token("approve", name)
    # A token of an older version, made when that was not refused.
    server.token("approve", "alice")
    server.write("UPDATE tokens SET name = ? WHERE name = 'alice'", name)
    other = server.client("approve", "carol")
    secret = server.token("approve", "bob")
    server.write("UPDATE tokens SET name = ? WHERE name = 'bob'", name)
    headers = {"authorization": f"Bearer {secret}"}
    answer = other.post(f"/confirm/{request['id']}/approve", headers=headers)
    assert answer.status_code == 403 and answer.json()["reason"] == "own_request"


def test_names_that_look_alike_are_told_apart_as_actions_are():
    assert is_same_person("\uff41gent", "agent") and is_same_person("ag\u200bent", "Agent")
    assert not is_same_person("agent1", "agent")


@pytest.mark.service(policy='[[rules]]\naction = "deploy"\neffect = "ask"\nquorum = 2\n')
def test_one_person_with_two_spellings_is_no_quorum_of_two(server):
    agent, first = server.client("submit", "agent"), server.client("approve", "alice")
    request = agent.post("/confirm", json=SUBMIT).json()
    secret = server.token("approve", "bob")
    server.write("UPDATE tokens SET name = 'Alice' WHERE name = 'bob'")
    assert first.post(f"/confirm/{request['id']}/approve").status_code == 202
    again = first.post(f"/confirm/{request['id']}/approve", headers={"authorization": f"Bearer {secret}"})
    assert again.status_code == 202 and again.json()["status"] == "pending"


@pytest.mark.parametrize(
    "more", ["quorum = 2", "second_factor = true", 'approvers = ["bob"]', "web_only = true"]
)
def test_the_whitelist_does_not_stand_for_several_people(tmp_path, more):
    policy = f'[[rules]]\naction = "deploy"\neffect = "ask"\n{more}\n'
    with Running(tmp_path, policy=policy) as server:
        agent, admin = server.client("submit", "agent"), server.client("admin", "root")
        admin.post("/whitelist", json={"action": "deploy", "principal": "*", "seconds": 60})
        assert agent.post("/confirm", json=SUBMIT).json()["status"] == "pending"


@pytest.mark.slow
def test_a_large_submission_holds_nobody_up(tmp_path):
    """It is read on another thread. CPU times, as a wait for an answer says how busy the machine is."""
    large = {**SUBMIT, "details": {"rows": [{"n": number, "x": number / 7} for number in range(30_000)]}}
    body = json.dumps(large, separators=(",", ":")).encode()
    assert 900_000 < len(body) < 1_048_576
    with Running(tmp_path, rate=1000) as server:
        agent = server.client("submit", "agent")
        all_s, loop_s, own_s = time.process_time(), server.loop_cpu_s(), time.thread_time()
        for _ in range(5):
            answer = agent.post("/confirm", content=body, headers={"idempotency-key": "k"})
            assert answer.status_code == 202
        loop_s, own_s = server.loop_cpu_s() - loop_s, time.thread_time() - own_s
        all_s = time.process_time() - all_s - own_s
    assert loop_s < all_s / 3
