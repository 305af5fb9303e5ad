"""High-risk actions wait for a human at the confirmation service, whatever dies meanwhile, and run once."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.cli.running import Tty
from tests.confirm.process import Served
from tests.stories.program import Program, assert_requests_are_sound, does, said, use
from tests.support import quiet_port
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

SHIP = use("terminal", command="./ship 1.0")


@pytest.fixture
def server():
    with PracticeServer() as server:
        server.install([does(SHIP), ScriptedReply("That was it."), ScriptedReply("Nothing more.")])
        yield server
        assert_requests_are_sound(server)


@pytest.fixture
def service(tmp_path):
    with Served(tmp_path, "--port", str(quiet_port()), home="service") as served:
        yield served


@pytest.fixture
def program(tmp_path, server, service):
    program = Program(
        tmp_path,
        server,
        environ={
            "WHET_CONFIRM_URL": f"http://127.0.0.1:{service.port}",
            "WHET_CONFIRM_ACTIONS": "terminal(./ship *) = publish_package",
            "CONFIRMATION_TOKEN": service.token("submit"),
        },
    )
    ship = program.work / "ship"
    ship.write_text('#!/bin/sh\necho "shipped $1" >> shipped.txt\n')
    ship.chmod(0o755)
    return program


def pending(service: Served) -> dict[str, Any]:
    """Wait for the request that waits."""
    deadline = time.monotonic() + 30
    while not (requests := service.call("GET", "/confirm?status=pending", role="approve")[1]["requests"]):
        assert time.monotonic() < deadline, "nothing was submitted"
    assert len(requests) == 1
    return requests[0]


def decide(service: Served, request: dict[str, Any], verdict: str, **body: str) -> None:
    code, answer = service.call("POST", f"/confirm/{request['id']}/{verdict}", body, role="approve")
    assert code == 200, answer


def record(service: Served, request: dict[str, Any]) -> dict[str, Any]:
    return service.call("GET", f"/confirm/{request['id']}", role="approve")[1]


def kill_and_approve(program: Program, service: Served) -> dict[str, Any]:
    """Kill the agent while its request waits, then approve the request, and return it."""
    running = program.start_asking("ship it")
    request = pending(service)
    os.kill(running.pid, signal.SIGKILL)
    running.done()
    decide(service, request, "approve")
    return request


def shipped(program: Program) -> str:
    path = program.work / "shipped.txt"
    return path.read_text() if path.exists() else ""


def last_result(server: PracticeServer) -> str:
    return next(text for role, text in reversed(said(server.requests[-1])) if role == "tool")


@pytest.mark.slow
def test_an_approved_action_runs_once_and_its_record_is_closed(program, server, service):
    running = program.start_asking("ship it", "--stream-json")
    request = pending(service)
    assert shipped(program) == ""
    assert request["action"] == "publish_package"
    assert request["details"]["arguments"] == {"command": "./ship 1.0"}
    deadline = time.monotonic() + 30
    while '"type":"confirmation_asked"' not in running.out:
        assert time.monotonic() < deadline, "it does not say that it waits"
        os.sched_yield()
    decide(service, request, "approve")
    done = running.done()
    assert done.code == 0
    assert shipped(program) == "shipped 1.0\n", last_result(server)
    closed = record(service, request)
    assert closed["consumed_at"] and closed["executed_at"], closed


@pytest.mark.slow
def test_a_denial_reaches_the_model_with_its_reason(program, server, service):
    running = program.start_asking("ship it")
    decide(service, pending(service), "deny", reason="not on a Friday")
    assert running.done().code == 0
    assert shipped(program) == ""
    assert "not on a Friday" in last_result(server)
    assert "Denied by owner at the confirmation service" in last_result(server)


@pytest.mark.slow
def test_an_agent_killed_while_it_waits_finds_its_own_request_again(program, server, service):
    request = kill_and_approve(program, service)
    environ = {**program.environ, "WHET_HOME": str(program.home)}
    with Tty(["chat", "--continue", "--yes", *program.flags], program.work, environ=environ) as tty:
        tty.wait_for("cut off")
        tty.type("/resume\r", "That was it.")
        assert tty.leave("\x04") == 0
    assert shipped(program) == "shipped 1.0\n"
    everything = service.call("GET", "/confirm?limit=50", role="approve")[1]["requests"]
    assert [one["id"] for one in everything] == [request["id"]]
    assert record(service, request)["executed_at"]


@pytest.mark.slow
def test_new_words_after_a_kill_run_no_call_that_waited(program, server, service):
    request = kill_and_approve(program, service)
    assert program.ask("go on", "--continue").code == 0
    assert shipped(program) == ""
    assert "Not run" in last_result(server)
    everything = service.call("GET", "/confirm?limit=50", role="approve")[1]["requests"]
    assert [one["id"] for one in everything] == [request["id"]]


@pytest.mark.slow
def test_a_service_killed_while_somebody_waits_is_waited_for(program, server, service):
    running = program.start_asking("ship it")
    request = pending(service)
    service.kill()
    service.start()
    decide(service, request, "approve")
    assert running.done().code == 0
    assert shipped(program) == "shipped 1.0\n"


@pytest.mark.slow
def test_without_the_service_nothing_runs(program, server, service):
    service.kill()
    done = program.ask("ship it", "--stream-json")
    assert done.code == 0
    assert "was not told" not in done.out, "a call that never ran has nothing to report"
    assert shipped(program) == ""
    assert "can't be reached" in last_result(server)


@pytest.mark.slow
def test_ctrl_c_withdraws_the_request(program, server, service):
    running = program.start_asking("ship it", "--stream-json")
    request = pending(service)
    os.kill(running.pid, signal.SIGINT)
    done = running.done()
    assert done.code == 130
    assert "the request was withdrawn" in done.out
    assert record(service, request)["status"] == "cancelled"
    assert shipped(program) == ""


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_ctrl_c_in_an_approved_action_is_reported(program, service, is_there):
    with (program.work / "ship").open("a") as script:
        script.write("sleep 60\n")
    running = program.start_asking("ship it", "--stream-json")
    request = pending(service)
    decide(service, request, "approve")
    deadline = time.monotonic() + 30
    while not shipped(program):
        assert time.monotonic() < deadline, "it does not run"
        os.sched_yield()
    assert service.process is not None
    service.process.send_signal(signal.SIGCONT if is_there else signal.SIGSTOP)
    os.kill(running.pid, signal.SIGINT)
    done = running.done()
    service.process.send_signal(signal.SIGCONT)
    assert done.code == 130
    assert ("was not told how the action ended: no answer within 3 s" in done.out) is not is_there
    closed = record(service, request)
    assert closed.get("execution", "") == ("failed" if is_there else ""), closed
    assert closed.get("execution_note", "") == (
        "interrupted: It was stopped while it ran." if is_there else ""
    )


@pytest.mark.slow
def test_an_allow_rule_does_not_stand_in_for_the_human(program, server, service):
    program.environ["WHET_APPROVAL_ALLOW"] = "terminal(./ship *)"
    running = program.start_asking("ship it")
    decide(service, pending(service), "deny")
    assert running.done().code == 0
    assert shipped(program) == ""


@pytest.mark.slow
def test_a_deny_rule_comes_before_the_service(program, server, service):
    program.environ["WHET_APPROVAL_DENY"] = "terminal(./ship *)"
    assert program.ask("ship it").code == 0
    assert "Denied by policy" in last_result(server)
    assert service.call("GET", "/confirm?limit=5", role="approve")[1]["requests"] == []


@pytest.mark.slow
def test_a_token_that_may_not_submit_is_a_denial_with_the_reason(program, server, service):
    program.environ["CONFIRMATION_TOKEN"] = "nonsense"
    assert program.ask("ship it").code == 0
    assert shipped(program) == ""
    assert "refused" in last_result(server)


@pytest.mark.soak
def test_a_wait_shorter_than_the_service_allows_ends_with_the_time_that_it_took(program, server, service):
    program.environ["WHET_CONFIRM_TIMEOUT_S"] = "8"
    running = program.start_asking("ship it")
    assert pending(service)["timeout_seconds"] == 30
    assert running.done().code == 0
    assert "Nobody decided at the confirmation service within 30 s" in last_result(server)
