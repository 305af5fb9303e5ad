"""Requests whose agents wait: what a restarted service knows about them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

import httpx2
import pytest

from tests.confirm.notify.test_push import ask
from tests.confirm.running import Running
from tests.confirm.test_gateway import until
from whet_confirm.attendance import ServiceProcess

CALL = {
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "make"},
    "cwd": "/tmp",
}


@pytest.mark.slow
@pytest.mark.parametrize("returns", [False, True])
def test_a_restarted_service_cancels_requests_whose_agents_have_gone(tmp_path, returns):
    with Running(tmp_path) as server:
        server.agent = server.client("submit", "agent")
        attended, other = ask(server), ask(server)
        path = f"/confirm/{attended}?wait=60&attended=1"

        def wait_for_end() -> None:
            with contextlib.suppress(httpx2.HTTPError):  # the service stops
                server.agent.get(path)

        wait = threading.Thread(target=wait_for_end, daemon=True)
        wait.start()
        until(lambda: server.service.hub.waiting, "the wait")
        token = server.agent.headers["authorization"]
    wait.join(20)
    again = Running(tmp_path)
    again.service.attendance.grace_s = 3600.0 if returns else 0.0
    with again:
        if returns:
            agent = again.client()
            agent.headers["authorization"] = token
            assert agent.get(path.replace("60", "0.1")).json()["status"] == "pending"
            assert again.client("approve", "ann").post(f"/confirm/{attended}/approve").status_code == 200
        else:
            until(lambda: again.stored(attended).status == "cancelled", "the end")
            assert again.stored(attended).reason == "the agent has gone: it stopped waiting"
        assert again.stored(other).status == "pending"
        kinds = [row[0] for row in again.rows("SELECT kind FROM events WHERE request_id = ?", attended)]
        assert kinds.count("attended") == (2 if returns else 1)  # once in each process


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["pipe", "socket"])
def test_a_request_ends_with_an_agent_that_was_killed_and_left_its_hook(tmp_path, channel):
    # Node.js connects to its children by sockets. A shell stands between the agent and its hook.
    ours, theirs = socket.socketpair() if channel == "socket" else (None, None)
    line = f"{sys.executable} -m whet confirm hook || exit 2"
    with Running(tmp_path) as server:
        environ = os.environ | {
            "WHET_CONFIRM_URL": server.url,
            "CONFIRMATION_TOKEN": server.token("submit", "agent"),
            "WHET_HOME": str(tmp_path),
        }
        output = theirs.fileno() if theirs else subprocess.PIPE
        hook = subprocess.Popen(["sh", "-c", line], env=environ, stdin=subprocess.PIPE, stdout=output)
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(CALL).encode())
        hook.stdin.close()
        until(lambda: server.service.hub.waiting, "the wait")
        for end in (theirs, ours, hook.stdout):
            if end is not None:
                end.close()
        until(lambda: server.rows("SELECT 1 FROM requests WHERE status = 'cancelled'"), "the end")
        hook.wait(20)


def test_only_a_process_of_this_machine_can_be_known_to_have_ended():
    now = ServiceProcess.current()
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    assert now.has_ended()  # an earlier process had the same number
    assert ServiceProcess(now.host, ended.pid).has_ended()
    assert not ServiceProcess(now.host, 1).has_ended()
    assert not ServiceProcess("another-machine", ended.pid).has_ended()
