"""Shell commands of the tool in their jail: what they do, what they hear at the wall, what opens it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.support import wait_until
from tests.tools.running import call, context, find_tool
from whet.contract.errors import ToolDenied, ToolError
from whet.contract.tools import ToolOutput
from whet.sandbox import engine, proxy
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.policy import Opening
from whet.sandbox.status import EngineStatus
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture(params=ENGINES, ids=str)
def confined(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Confinement]:
    case: EngineCase = request.param
    status = case.status()
    monkeypatch.setitem(engine.statuses, None, status)
    confinement = Confinement(ConfinementSettings("auto", tmp_path / "whet-home"))
    yield confinement
    confinement.close()


def run(confinement: Confinement, workspace: Path, *commands: str, **more: object) -> list[ToolOutput]:
    shared = SharedProcesses(confine=lambda: confinement)
    terminal = find_tool(ShellTools(shared), "terminal")

    async def each() -> list[ToolOutput]:
        return [await call(terminal, context(workspace), command=command, **more) for command in commands]

    try:
        return asyncio.run(each())
    finally:
        shared.close()


@pytest.mark.slow
def test_a_command_and_the_wall(confined: Confinement, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("kept")
    here, there, slow = run(
        confined, workspace, "echo hi > f; cat f", f"cat {outside}/f", "sleep 60 & echo left"
    )
    assert (here.text, (workspace / "f").read_text()) == ("hi", "hi\n")
    assert there.error_kind == "exit"
    assert f'it would need "read {outside}/f"' in there.text
    assert "kept" not in there.text
    assert "left children" in slow.text
    denial = confined.denial_of("c1")
    assert denial is not None
    assert denial.openings == (Opening("read", str(outside / "f")),)
    confined.set_call_openings("s1", "c1", denial.openings)
    (again,) = run(confined, workspace, f"cat {outside}/f")
    assert again.text == "kept"


@pytest.mark.slow
def test_input_terminal_and_time_limit(confined: Confinement, workspace: Path) -> None:
    (output,) = run(confined, workspace, "cat", stdin="abc\n")
    assert output.text == "abc"
    (size,) = run(confined, workspace, "stty size; test -t 1 && echo tty", pty=True)
    assert size.text == "40 120\ntty"
    (stopped,) = run(confined, workspace, "sleep 60", timeout_s=0.2)
    assert stopped.error_kind == "timeout"


@pytest.mark.slow
def test_what_can_not_be_started_in_a_jail_is_said(confined: Confinement, workspace: Path) -> None:
    for more in ({}, {"stdin": "x"}):
        with pytest.raises(ToolError, match="could not be started"):
            run(confined, workspace, "echo " + "x" * 200_000, **more)
    assert run(confined, workspace, "echo on")[0].text == "on"


@pytest.mark.slow
def test_a_shell_in_its_jail_says_where_it_ended(confined: Confinement, workspace: Path) -> None:
    (workspace / "a b").mkdir()
    for pty in (False, True):
        moved, stayed, outside = run(confined, workspace, "cd 'a b' && false", "pwd", "cd /", pty=pty)
        assert moved.folder == "a b" and moved.exit_code == 1
        assert moved.text == "[exit 1]\n[the next command begins in a b]"
        assert (stayed.text, stayed.folder) == (str(workspace), None)
        assert outside.folder is None and "outside the workspace" in outside.text


@pytest.mark.slow
def test_a_result_says_whether_bytes_came_from_the_network_whatever_the_command_says(
    confined: Confinement, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy's address check is told that loopback is public: there is no other server in a test."""
    assert (
        run(confined, workspace, "echo curl https://x.example/a; curl -s https://x.example/a")[0].received
        is False
    )
    assert run(confined, workspace, "true", background=True)[0].received is False
    if not confined.status().engine.own_network:
        return  # nothing leads out there, whatever was opened
    monkeypatch.setattr(proxy, "is_public", lambda text: text.startswith(("127.", "::1")))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (workspace / "run.sh").write_text(
            f"unset NO_PROXY no_proxy; curl -s http://localhost:{port}/ > made.txt"
        )
        confined.add_openings("s1", [Opening("reach", "localhost")])
        served = threading.Thread(target=_serve_one, args=(server,))
        served.start()
        local, got, later = run(confined, workspace, "true", "sh run.sh", "cat made.txt")
        served.join()
        [runs_on] = run(confined, workspace, "true", background=True)
    assert (local.received, got.received, later.received) == (False, True, False)
    assert (runs_on.received, runs_on.runs_on) == (True, "p1")  # it may get some later
    assert later.text == "there"


def _serve_one(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere")


def test_no_thread_waits_for_a_command_that_is_over_at_once(
    confined: Confinement, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher may have reaped it before this side looks, by its number, whether it runs."""
    started: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda one: (started.append(one.name), start(one))[1])
    run(confined, workspace, *["true"] * 10)
    assert not [name for name in started if name.startswith("wait-")]


@pytest.mark.parametrize("is_there", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_launcher_that_was_tried_out_runs_the_first_command(
    confined: Confinement, workspace: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    wanted = engine.statuses[None].engine
    monkeypatch.setattr(engine, "candidates", lambda: [(wanted.name, wanted, "")])
    monkeypatch.delitem(engine.statuses, None)
    folder = workspace if is_there else workspace / "gone"
    assert confined.command_status(folder, "s1").engine == wanted, "also if it can't be tried out"
    jail = confined.shell_jail(folder, "s1", "c1")
    assert jail is not None and bool(jail.launcher_pid) == is_there
    if is_there:
        first = jail.launcher_pid
        jail.open()
        assert jail.launcher_pid == first


def test_what_was_taken_back_is_said(confined: Confinement, workspace: Path) -> None:
    text = run(confined, workspace, "mkdir .vscode; echo {} > .vscode/tasks.json")[0].text
    assert ".vscode" in text and "took back" in text
    assert not (workspace / ".vscode").exists()


@pytest.mark.slow
def test_a_persons_edit_during_a_command_is_kept_and_named(
    confined: Confinement, workspace: Path, tmp_path: Path
) -> None:
    """What is protected without a mount is put back; who had changed it, nothing tells."""
    (workspace / ".envrc").write_text("old\n") if confined.status().line == "Landlock" else None

    def edit() -> None:
        wait_until((workspace / "started").exists)
        (workspace / ".envrc").write_text("mine\n")
        (workspace / "go").touch()

    editing = threading.Thread(target=edit)
    editing.start()
    [output] = run(confined, workspace, "touch started; while [ ! -e go ]; do sleep 0.02; done")
    editing.join()
    confined.close()
    [kept] = (tmp_path / "whet-home" / "aside").glob("*/.envrc")
    assert kept.read_text() == "mine\n"
    assert ".envrc" in output.text and str(kept.parent.parent) in output.text
    assert not (workspace / ".envrc").exists() or (workspace / ".envrc").read_text() == "old\n"


def test_a_person_may_let_one_call_out(confined: Confinement, workspace: Path, tmp_path: Path) -> None:
    confined.set_call_openings("s1", "c1", [Opening("run", "unconfined")])
    run(confined, workspace, f"echo out > {tmp_path}/out")
    assert (tmp_path / "out").read_text() == "out\n"


def test_a_command_that_is_let_out_writes_no_file_of_a_cache(
    confined: Confinement, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "cached").write_text("safe\n")
    os.link(tmp_path / "cached", workspace / "linked")
    confined.set_call_openings("s1", "c1", [Opening("run", "unconfined")])
    run(confined, workspace, "echo more >> linked")
    assert (workspace / "linked").read_text() == "safe\nmore\n"
    assert (tmp_path / "cached").read_text() == "safe\n"


def test_strict_runs_nothing_where_nothing_holds(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engine.statuses, None, EngineStatus("none", "no sandbox (x); only reading holds"))
    strict = Confinement(ConfinementSettings("strict", tmp_path / "whet-home"))
    with pytest.raises(ToolDenied, match=r"sandbox\.mode is strict"):
        run(strict, workspace, "touch ran")
    assert not (workspace / "ran").exists()
    auto = Confinement(ConfinementSettings("auto", tmp_path / "whet-home"))
    assert run(auto, workspace, "echo ran")[0].text == "ran"


def test_off_says_that_only_reading_holds(workspace: Path, tmp_path: Path) -> None:
    off = Confinement(ConfinementSettings("off", tmp_path / "whet-home"), os.environ)
    assert off.jail(workspace) is None
    words = "commands run with all your rights, and Whet judges only their text"
    assert off.status().line == f"no sandbox: sandbox.mode is off; {words}"
