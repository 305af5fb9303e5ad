"""Thirty ways in which an agent might approve its own request, and the line of defence that stops each.

`service`: the running service refuses, whoever asks. `files`: an installed service's files and socket belong
to another user. `gate`: the boundary that gate and sandbox forbid names it. `redaction`: what is read is
masked.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import venv
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from tests.confirm.running import SUBMIT, Running
from tests.confirm.test_sight import page_of
from tests.support import each
from whet.contract.errors import ConfigError
from whet.log import mask
from whet_confirm.boundary import boundary_of, is_same_user
from whet_confirm.commands.install import find_hidden_path, install
from whet_confirm.peers import find_peers

HOME = Path("/home/ann/.whet")
COMMANDS = [
    "cat $WHET_HOME/confirm/approve.token",
    "cat /home/ann/.whet/confirm/approve.token",
    "cat ~/.whet/confirm/*.token approve.token",
    "cp /home/ann/.whet/confirm/signing.key /tmp/k",
    "sqlite3 /home/ann/.whet/confirmations.db 'INSERT INTO votes VALUES (1)'",
    "python3 -c \"import sqlite3; sqlite3.connect('/home/ann/.whet/confirmations.db')\"",
    "whet confirm approve Vbcxaq87vcBOtz6bZ2Lbhe",
    "whet -p work confirm approve ID",
    "whet confirm token create --role approve --name bob",
    "whet confirm policy allow deploy --principal agent --for 1h",
    "whet confirm setup --yes --channel telegram --chat 1 --user-id 2",
    "whet confirm serve --insecure-no-auth --port 6001",
    "curl -X POST http://127.0.0.1:6000/confirm/Vbcxaq87vcBOtz6bZ2Lbhe/approve",
    "curl http://localhost:6080/login -d token=x",
    "curl http://127.1:6000/confirm/$ID/approve",
    "python3 -m whet_confirm.serve",
    "python3 -c 'from whet.confirm.client import BlockingClient'",
    "python3 -c 'from whet_confirm.client import BlockingClient'",
    "curl --unix-socket /run/whet-confirm/api.sock http://x/confirm",
    "curl -H 'Authorization: Bearer wct_" + "A" * 43 + "' http://elsewhere/",
    "echo whet-ed25519-" + "A" * 43,
]


@each("command", COMMANDS)
def test_gate_the_boundary_names_what_a_command_would_touch(command):
    assert boundary_of(HOME).touched_by(command)


def test_gate_the_agents_own_business_is_not_forbidden():
    own = ["whet confirm list", "cat README.md", "curl http://127.0.0.1:8000/", "grep -rn approve src"]
    assert [command for command in own if boundary_of(HOME).touched_by(command)] == []


@pytest.mark.parametrize(
    ("path", "is_forbidden"),
    [("confirm/approve.token", True), ("confirm/signing.key", True), ("confirmations.db", True),
     ("confirmations.db-wal", True), ("confirm/submit.token", False), ("sessions.db", False)],
)  # fmt: skip
def test_gate_paths_are_forbidden_also_through_links(tmp_path, path, is_forbidden):
    (tmp_path / "confirm").mkdir()
    (tmp_path / path).write_text("x")
    link = tmp_path / "innocent"
    link.symlink_to(tmp_path / path)
    boundary = boundary_of(tmp_path)
    assert boundary.forbids(tmp_path / path) is is_forbidden and boundary.forbids(link) is is_forbidden


def test_redaction_the_shapes_of_its_secrets_are_masked(tmp_path):
    with Running(tmp_path) as server:
        secrets = [server.token("approve", "alice"), server.paths.key.read_text().strip()]
    for secret in secrets:
        for text in (secret, json.dumps({"out": secret}), f"x={secret};", f"https://h/?t={secret}"):
            assert secret not in mask(text)


def attempts(server: Running, request: dict) -> list[tuple[str, httpx2.Response]]:
    """Calls with what an agent has: its own token."""
    agent, other = server.client("submit", "agent"), server.client()
    made_up = {"authorization": "Bearer wct_" + "A" * 43}
    entry = {"action": "deploy", "principal": "*", "seconds": 60}
    where = f"/confirm/{request['id']}"
    return [
        ("its own token", agent.post(f"{where}/approve")),
        ("another name in the body", agent.post(f"{where}/approve", json={"approver": "alice (human)"})),
        ("no token", other.post(f"{where}/approve")),
        ("a made-up token", other.post(f"{where}/approve", headers=made_up)),
        ("amending", agent.post(f"{where}/amend", json={"details": {}, "digest": request["digest"]})),
        ("the whitelist", agent.post("/whitelist", json=entry)),
        ("using it unapproved", agent.post(f"{where}/consume", json={"digest": request["digest"]})),
        ("the page's form", other.post(f"/r/{request['id']}/decide", data={"verdict": "approve"})),
        ("its token on the page", other.post("/login", data={"token": server.token("submit", "agent")})),
        ("an approve token of its name", server.client("approve", "agent").post(f"{where}/approve")),
    ]


def test_service_ten_calls_that_an_agent_can_make_approve_nothing(tmp_path):
    with Running(tmp_path) as server:
        request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
        answers = attempts(server, request)
        assert [name for name, answer in answers if answer.status_code < 400] == []
        assert server.stored(request["id"]).is_pending
    assert len(answers) + len(COMMANDS) + 2 >= 30


def at_socket(path: Path) -> httpx2.Client:
    return httpx2.Client(
        base_url="http://localhost", transport=httpx2.HTTPTransport(uds=str(path)), timeout=30
    )


@pytest.mark.slow
def test_service_a_user_at_the_socket_is_who_the_kernel_says(tmp_path):
    me = str(os.geteuid())
    for role, may in (("approve", True), ("submit", False)):
        folder = tmp_path / role
        folder.mkdir()
        peers = find_peers([me], []) if role == "approve" else find_peers([], [me])
        with Running(folder, socket=folder / "api.sock", peers=peers) as server:
            request = server.client("submit", "somebody").post("/confirm", json=SUBMIT).json()
            with at_socket(folder / "api.sock") as client:
                answer = client.post(f"/confirm/{request['id']}/approve")
            assert (answer.status_code == 200) is may, answer.text
            record = server.stored(request["id"])
            assert record.is_pending is not may and (not may or record.resolved_by != "somebody")


def test_service_a_user_who_is_not_named_needs_a_token_at_the_socket(tmp_path):
    with Running(
        tmp_path, socket=tmp_path / "api.sock", peers=find_peers(["0"], []) if os.geteuid() else {}
    ) as server:
        assert server.port
        with at_socket(tmp_path / "api.sock") as client:
            assert client.get("/confirm").status_code == 401


def test_files_nothing_of_the_service_can_be_read_by_others(server):
    server.client("submit", "agent").post("/confirm", json=SUBMIT)
    files = [path for path in (server.paths.database, *server.paths.folder.iterdir()) if path.is_file()]
    loose = [p.name for p in files if stat.S_IMODE(p.stat().st_mode) & 0o077 and p.name != "signing.pub"]
    assert loose == [] and is_same_user(server.paths.folder)


def test_files_install_says_what_it_would_do_and_hardens_the_unit():
    done = CliRunner().invoke(install, ["--approver", "ann", "--submitter", "bot", "--dry-run"])
    assert done.exit_code == 0, done.output
    for line in (
        "User=whet-confirm", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "UMask=0077",
        "CapabilityBoundingSet=", "--approver ann --submitter bot", "--no-first-tokens",
        "RestrictSUIDSGID=yes",
    ):  # fmt: skip
        assert line in done.output
    both = CliRunner().invoke(install, ["--approver", "ann", "--submitter", "ann", "--dry-run"])
    assert isinstance(both.exception, ConfigError)


def test_paths_that_the_unit_hides_are_found_behind_links(monkeypatch):
    monkeypatch.chdir("/tmp")
    assert find_hidden_path(["/usr/bin/env", "/opt/whet/bin/whet", None, "/homes/a", "/tmpfs"]) == ""
    for path in ("/home/ann/bin/whet", "/root/.local/bin/python3", "/tmp/venv/bin/whet", "/var/tmp/whet"):
        assert find_hidden_path(["/usr/bin/env", path]) == path
    assert find_hidden_path(["/opt/../home/ann/whet"]) == "/home/ann/whet"
    assert find_hidden_path(["/proc/self/cwd"]) == "/tmp"
    assert find_hidden_path(["/proc/self/cwd/whet"]) == "/tmp/whet"


@pytest.mark.slow
def test_files_install_names_an_interpreter_that_the_unit_hides(tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    words = [str(python), "-m", "whet", "confirm", "install", "--approver", "ann", "--dry-run"]
    done = subprocess.run(
        words, env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and f"the service can't read {python}" in done.stderr


def test_files_install_refuses_an_interpreter_that_the_unit_hides(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # nothing is installed if it is not refused
    done = CliRunner().invoke(install, ["--approver", "ann"])
    assert isinstance(done.exception, ConfigError) and done.output == ""
    assert f"the service can't read {tmp_path / 'python'}" in done.exception.message


@pytest.mark.slow
def test_every_page_says_where_the_service_does_not_run_apart(tmp_path):
    me = str(os.geteuid())
    agents = (({}, True), (find_peers([], ["54321"]), False), (find_peers([], [me]), True))
    for number, (peers, is_said) in enumerate(agents):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Running(folder, peers=peers) as server, page_of(server) as browser:
            for path in ("/", "/history", "/log"):
                assert ("does not run apart" in browser.get(path).text) is is_said
