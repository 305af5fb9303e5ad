"""Processes below the tools: buffers, stopping, what is kept and what close leaves."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.growing import grows_in_proportion
from tests.store.support import run_child
from tests.support import own_children
from tests.tools.running import Commands, until
from whet.contract.errors import ToolError
from whet.tools.kept_output import KeptOutput
from whet.tools.output import strip_terminal_control
from whet.tools.process import Processes, is_group_alive
from whet.tools.session_processes import SessionProcesses
from whet.tools.spawn import ProcessSpec
from whet.tools.toolsets.terminal import ShellLimits


def command(text: str, folder: Path, *, keep_stdin: bool = False) -> ProcessSpec:
    return ProcessSpec(
        text, folder, dict(os.environ), stdin=b"" if keep_stdin else None, keep_stdin=keep_stdin
    )


def test_output_keeps_head_and_tail_whatever_the_pieces() -> None:
    rng = random.Random(7)
    for _ in range(300):
        cap = rng.randrange(5, 60)
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(200))).translate(None, b"\r\b\x1b")
        output = KeptOutput(cap)
        position = 0
        while position < len(data):
            size = rng.choice([1, 2, 7, 90])
            output.append(data[position : position + size])
            position += size
        for offset in {0, len(data) // 2, len(data)}:
            head, lost, tail = output.since(offset)
            assert len(head) + lost + len(tail) == len(data) - offset
            assert data[offset:].startswith(head)
            assert data[offset:].endswith(tail)
            if len(data) <= cap:
                assert lost == 0
        head, _, tail = output.since(0)
        assert len(head) + len(tail) == min(cap, len(data))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the children")
async def test_a_key_that_interrupts_us_reaches_nothing_that_we_started(tmp_path: Path) -> None:
    processes, before = Processes(), own_children()
    processes.start(command("sleep 987", tmp_path))
    started = own_children() - before
    assert len(started) == 2, "the command, and who stops it should we die"
    assert {os.getsid(pid) for pid in started} == started
    processes.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("trap '' TERM; echo up; while :; do sleep 0.01; done", 137),
        ("(trap '' TERM; echo up; while :; do sleep 0.01; done) & wait", 143),
    ],
    ids=["the command", "a grandchild"],
)
async def test_what_ignores_a_polite_request_is_killed(
    commands: Commands, tmp_path: Path, text: str, code: int
) -> None:
    process = commands.processes.start(command(text, tmp_path))
    await until(lambda: process.output.total_bytes > 0)
    await process.stop(grace_s=0.1)
    assert process.exit_code == code
    await until(lambda: not is_group_alive(process.pid))


async def test_what_cleans_up_when_asked_is_given_the_time(tmp_path: Path) -> None:
    processes = Processes()
    cleans = "trap 'sleep 0.1; echo clean; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    process = processes.start(command(cleans, tmp_path))
    await until(lambda: process.output.total_bytes > 0)
    await process.stop(grace_s=30)
    assert process.exit_code == 3 and process.output.since(0)[0].endswith(b"clean\n")
    processes.close()


async def test_a_command_that_is_put_aside_runs_on_in_the_background(tmp_path: Path) -> None:
    commands = Commands(tmp_path, ShellLimits(output_cap_chars=2_000))
    await commands.terminal("sleep 987", background=True)
    running = asyncio.ensure_future(commands.terminal("echo up; sleep 987"))
    await until(lambda: "up" in commands.printed)
    assert commands.processes.move_to_background() == 1
    output = await running
    assert output.text == (
        "up\n[the person put it into the background, where it runs on as p2; see it with process]"
    )
    assert (output.runs_on, output.exit_code, output.error_kind) == ("p2", None, "")
    assert "p2 running" in (await commands.process("poll", "p2")).text
    assert commands.processes.move_to_background() == 0
    running = asyncio.ensure_future(commands.terminal("seq 900; echo much; sleep 987"))
    await until(lambda: "much" in commands.printed)
    assert commands.processes.move_to_background() == 1
    assert 1_500 < len((await running).text) <= 2_000
    commands.processes.close()


@pytest.mark.slow
async def test_close_kills_everything_and_reaps_it(tmp_path: Path) -> None:
    processes = Processes()
    stubborn = processes.start(command("trap '' TERM; echo up; while :; do sleep 0.01; done", tmp_path))
    polite = processes.start(command("echo up; sleep 987", tmp_path, keep_stdin=True))
    await until(lambda: min(stubborn.output.total_bytes, polite.output.total_bytes) > 0)
    processes.publish(polite)
    processes.close()
    assert (stubborn.exit_code, polite.exit_code) == (137, 143)
    assert processes.list_background() == []
    assert not any(os.path.exists(f"/proc/{pid}") for pid in [stubborn.pid, polite.pid])


async def test_close_after_the_loop_has_ended(tmp_path: Path) -> None:
    processes = Processes()
    process = processes.start(command("sleep 987", tmp_path, keep_stdin=True))
    processes.publish(process)
    pid = processes.list_background()[0].pid
    processes.close()
    assert not os.path.exists(f"/proc/{pid}")


async def test_only_the_last_finished_ones_are_kept_and_the_running_stay(tmp_path: Path) -> None:
    processes = Processes(keep_finished=2)
    running = processes.start(command("sleep 987", tmp_path))
    processes.publish(running)
    for _ in range(4):
        process = processes.start(command("true", tmp_path))
        await process.wait(30)
        processes.publish(process)
    assert [process.id for process in processes.list_background()] == ["p1", "p4", "p5"]
    processes.close()


async def test_too_many_at_once_are_refused(tmp_path: Path) -> None:
    processes = Processes(max_background=1)
    processes.check_room()
    processes.publish(processes.start(command("sleep 987", tmp_path)))
    with pytest.raises(ToolError, match="1 background processes run already"):
        processes.check_room()
    processes.close()


async def test_other_sessions_leave_room_and_what_was_kept(tmp_path: Path) -> None:
    processes = Processes(keep_finished=1, max_background=1)
    ada, ben = SessionProcesses(processes, "a1", ["a2"]), SessionProcesses(processes, "b1")
    finished = ada.start(command("true", tmp_path))
    await finished.wait(30)
    ada.publish(finished)
    for view in (ben, ben):
        process = view.start(command("true", tmp_path))
        await process.wait(30)
        view.publish(process)
    ben.publish(ben.start(command("sleep 987", tmp_path)))
    with pytest.raises(ToolError, match="run already"):
        ben.check_room()
    ada.check_room()
    assert [[process.id for process in view.list_background()] for view in (ada, ben)] == [
        ["p1"],
        ["p3", "p4"],
    ]
    assert SessionProcesses(processes, "a2").get("p1") is None and ben.get("p1") is None
    assert SessionProcesses(processes, "a2", ["a1"]).get("p1") is finished
    processes.close()


async def test_input_that_nobody_reads_is_bounded(tmp_path: Path) -> None:
    processes = Processes()
    process = processes.start(command("sleep 987", tmp_path, keep_stdin=True))
    process.write(b"x" * 900_000)
    with pytest.raises(ToolError, match="does not read"):
        process.write(b"x" * 900_000)
    processes.close()


@pytest.mark.fast_rows("[9G", "]0;", "a\\r")
@pytest.mark.parametrize(
    "piece",
    ["\x1b[", "\x1b]0;", "a\r", "\x1b", "\x1bP", "\x1b[0;", " " * 8 + "\r", "\x1b[A", "\x1b[9G", "\x9d1;"],
)
def test_text_is_cleaned_in_time_that_grows_with_its_size(piece: str) -> None:
    text = piece * (80_000 // len(piece))
    assert grows_in_proportion(lambda size: strip_terminal_control(text[:size]), 5_000)


_LEAVE = """
import asyncio, os, signal, sys
from pathlib import Path
from whet.tools.kept_output import KeptOutput
from whet.tools.process import Processes
from whet.tools.spawn import ProcessSpec

async def main():
    processes = Processes()
    over = processes.start(ProcessSpec("true", Path("/"), dict(os.environ)))
    await over.wait(10)
    processes.forget(over)
    # The child of the shell has to go too, and one that does not listen to SIGTERM.
    spec = ProcessSpec("trap '' TERM; sleep 600 & wait; sleep 600", Path("/"), dict(os.environ))
    left = processes.start(spec)
    print(left.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_command_does_not_outlive_a_killed_program() -> None:
    code, output = run_child(_LEAVE)
    assert code == -9
    group = int(output)
    asyncio.run(until(lambda: not is_group_alive(group), 20))
