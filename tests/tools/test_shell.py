"""terminal and process, with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import cancel_task, let_pass, open_files
from tests.tools.running import Commands, until
from whet.contract.errors import BadInput, ToolError
from whet.contract.tools import ToolOutput
from whet.tools.process import Processes
from whet.tools.shell import LiveFeed
from whet.tools.toolsets.terminal import ShellLimits


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_output_is_merged_in_order_with_the_exit_code(commands: Commands) -> None:
    output = commands.run("echo one; echo two >&2; echo three; exit 3")
    assert output == ToolOutput("one\ntwo\nthree\n[exit 3]", "exit", 3, cpu_s=output.cpu_s)


@pytest.mark.parametrize(
    ("command", "arguments", "text", "code"),
    [
        ("echo hi", {}, "hi", 0),
        ("echo hi", {"timeout_s": 0}, "hi", 0),  # 0: the usual limit
        ("true", {}, "[no output, exit 0]", 0),
        ("kill -SEGV $$", {}, "[exit 139: SIGSEGV]", 139),
        ("exit 129", {}, "[exit 129: SIGHUP]", 129),
        ("exit 128", {}, "[exit 128]", 128),
        ("exit 255", {}, "[exit 255]", 255),
        ("cat; echo done", {}, "done", 0),
        ("cat", {"stdin": "given ü\n"}, "given ü", 0),
        ("wc -c", {"stdin": "x" * 900_000}, "900000", 0),
        ("exec 0<&-; sleep 0.05; echo closed", {"stdin": "x" * 900_000}, "closed", 0),
    ],
)
def test_a_result_says_how_the_command_ended(
    commands: Commands, command: str, arguments: dict[str, Any], text: str, code: int
) -> None:
    output = commands.run(command, **arguments)
    assert output == ToolOutput(text, "exit" if code else "", code, cpu_s=output.cpu_s)


def test_a_shell_in_the_workspace_on_the_search_path_runs_no_command(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / ".venv/bin"
    own.mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (own / "bash").write_text("#!/bin/sh\necho OWN\n")
    (own / "bash").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")
    assert [commands.run("echo hi", workdir=folder).text for folder in ("", "sub")] == ["hi", "hi"]


@pytest.mark.slow
def test_a_gigabyte_costs_no_memory(commands: Commands) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu_s, start_s = time.process_time(), time.monotonic()
    text = commands.run("echo start; yes | head -c 1G; echo the end").text
    assert text.startswith("start\ny\n") and text.endswith("y\nthe end")
    assert "[... 1,073,7" in text and len(text) <= 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000
    assert time.process_time() - cpu_s < 20  # each byte is looked at a few times at most
    # 20 pieces of 4 KB a second at most, however long the machine takes.
    assert len(commands.printed) <= 4_096 * (20 * (time.monotonic() - start_s) + 2)


def test_long_lines_of_wide_characters_stay_within_the_cap(commands: Commands) -> None:
    text = commands.run(f"{sys.executable} -c \"print('漢' * 50000)\"").text
    first, left_out, last = re.split(r"\n\[\.\.\. ([\d,]+) bytes left out \.\.\.\]\n", text)
    assert "\ufffd" not in text and len(text) <= 30_000
    assert len((first + last).encode()) + int(left_out.replace(",", "")) == 150_001
    shorter = commands.run(f"{sys.executable} -c \"print('漢' * 35000)\"").text
    assert "[... 5,400 of 35,000 characters cut ...]" in shorter


async def test_a_command_without_end_is_stopped_with_all_its_children(commands: Commands) -> None:
    command = "sleep 987 & echo $!; (sleep 987 & echo $!; wait) & echo before; wait"
    running = asyncio.ensure_future(commands.terminal(command, timeout_s=60))
    await until(lambda: len(commands.printed.split()) == 3)
    let_pass(60)
    output = await running
    assert output.error_kind == "timeout" and "before" in output.text and "stopped after 60 s" in output.text
    pids = [int(line) for line in output.text.splitlines() if line.isdigit()]
    assert len(pids) == 2 and not any(map(is_running, pids))


async def test_an_editor_that_waits_for_keys_is_named(commands: Commands) -> None:
    command = "echo 'Vim: Warning: Output is not to a terminal'; sleep 987"
    running = asyncio.ensure_future(commands.terminal(command, timeout_s=60))
    await until(lambda: bool(commands.printed))
    let_pass(60)
    assert "vim waited for keys: give all of them in stdin" in (await running).text


@pytest.mark.slow
async def test_a_daemon_that_holds_the_output_open_does_not_hang_the_tool(
    commands: Commands, tmp_path: Path
) -> None:
    started_s = time.monotonic()
    output = await commands.terminal(
        "(echo $BASHPID; until [ -e go ]; do sleep 0.02; done; echo later; exec sleep 987) & echo up"
    )
    assert time.monotonic() - started_s < 60
    assert output.exit_code == 0 and not output.is_error
    assert "still run in the background as p1" in output.text and output.runs_on == "p1"
    pid = next(int(line) for line in output.text.splitlines() if line.isdigit())
    assert is_running(pid)
    [process] = commands.processes.list_background()
    total = process.output.total_bytes
    (tmp_path / "go").touch()
    await until(lambda: process.output.total_bytes > total)
    assert (await commands.process("poll")).text.startswith("later\n[p1 exit 0, children still")
    commands.processes.close()
    assert not is_running(pid)


async def test_children_that_redirected_their_output_are_reported_and_killed_too(commands: Commands) -> None:
    output = await commands.terminal("sleep 987 >/dev/null 2>&1 & echo $!")
    assert "background as p1" in output.text and output.runs_on == "p1"
    await commands.process("kill")
    assert not is_running(int(output.text.splitlines()[0]))


@pytest.mark.parametrize(("letters", "is_binary"), [(50, False), (49, True)])
def test_a_few_broken_characters_make_no_binary_of_a_text(
    commands: Commands, tmp_path: Path, letters: int, is_binary: bool
) -> None:
    (tmp_path / "out").write_bytes(b"a" * letters + b"\xff" * 10)
    assert commands.run("cat out").text.startswith("[binary output, 59 bytes") == is_binary


def test_terminal_control_is_taken_out(commands: Commands) -> None:
    output = commands.run(r"printf '\033[31mred\033[0m \033]0;title\007x\a\n10%%\r55%%\r100%%\ncrlf\r\n'")
    assert output.text == "red x\n100%\ncrlf"
    assert "\x1b" not in commands.printed and "\a" not in commands.printed


async def test_output_is_shown_while_the_command_runs_and_not_too_often(
    commands: Commands, tmp_path: Path
) -> None:
    started_s = time.monotonic()
    command = "echo first; until [ -e go ]; do sleep 0.02; done; seq 1 20000"
    running = asyncio.ensure_future(commands.terminal(command))
    await until(lambda: "first" in commands.printed)
    assert not running.done()
    (tmp_path / "go").touch()
    await running
    assert len(commands.shown) <= 20 * (time.monotonic() - started_s) + 3
    assert "20000" in commands.shown[-1]


@pytest.mark.parametrize("text", ["é", "漢", "😀", "aé", "漢é"])
async def test_a_character_waits_for_its_other_part_before_it_is_shown(text: str) -> None:
    for cut in range(1, len(text.encode())):
        shown: list[str] = []
        feed = LiveFeed(shown.append)
        for part in (text.encode()[:cut], text.encode()[cut:], b"\x80" * 5, b"a\0b", b"x" * 5_000):
            feed.take(part)
            feed.close()
        assert "".join(shown) == text + r"\x80" * 5 + r"a\x00b" + "x" * 4_096
        assert "" not in shown


@pytest.mark.slow
def test_a_character_cut_in_two_is_shown_whole(commands: Commands) -> None:
    command = r"printf 'caf\xc3'; sleep 0.15; printf '\xa9 \xf0\x9f'; sleep 0.15; printf '\x98\x80'"
    assert commands.run(command).text == commands.printed == "café 😀"


async def test_a_cancel_kills_the_group_and_passes(commands: Commands) -> None:
    await commands.terminal("true")  # the first opens the guardian's pipe
    files = open_files()
    running = asyncio.ensure_future(commands.terminal("sleep 987 & echo $! $$; wait"))
    await until(lambda: len(commands.printed.split()) == 2)
    await cancel_task(running)
    assert not any(is_running(int(pid)) for pid in commands.printed.split())
    assert not open_files() - files


async def test_a_second_cancel_kills_at_once_what_ignores_the_first(commands: Commands) -> None:
    command = "trap '' TERM; echo $$; while :; do sleep 0.01; done"
    running = asyncio.ensure_future(commands.terminal(command))
    await until(lambda: bool(commands.printed.split()))
    pid = int(commands.printed)
    running.cancel()
    await asyncio.sleep(0)
    assert is_running(pid)
    await cancel_task(running)
    await until(lambda: not is_running(pid))


def _refuse_pidfd(_pid: int) -> int:
    raise OSError("no pidfd here")


@pytest.mark.parametrize(
    "options", [{}, {"open_pidfd": None}, {"open_pidfd": _refuse_pidfd}], ids=["pidfd", "thread", "refused"]
)
def test_it_works_in_a_loop_on_another_thread(tmp_path: Path, options: dict[str, Any]) -> None:
    outputs: list[ToolOutput] = []

    async def work() -> None:
        commands = Commands(tmp_path, processes=Processes(**options))
        with closing(commands.processes):
            outputs.append(await commands.terminal("echo there; exit 5"))
            outputs.append(await commands.terminal("sleep 987", timeout_s=0.1))
            await commands.terminal("exit 7", background=True)
            outputs.append(await commands.process("wait"))

    thread = threading.Thread(target=asyncio.run, args=(work(),), daemon=True)
    thread.start()
    thread.join(20)
    ends = [(output.error_kind, output.exit_code) for output in outputs]
    assert ends == [("exit", 5), ("timeout", 143), ("exit", 7)]


def test_a_terminal_when_one_is_demanded(commands: Commands) -> None:
    text = commands.run("test -t 0 && test -t 1 && stty size; echo > /dev/tty; cat; echo over", pty=True).text
    assert text.split() == ["40", "120", "over"]
    assert commands.run("test -t 1").exit_code == 1
    answered = commands.run("read -p 'name? ' name; echo hello $name", pty=True, stdin="Ada\n")
    assert answered.text.endswith("hello Ada")


async def test_two_commands_run_at_once(commands: Commands, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader, writer = await asyncio.gather(
        commands.terminal("cat pipe"), commands.terminal("echo across > pipe")
    )
    assert (reader.text, writer.exit_code) == ("across", 0)


def test_working_folders_inside_the_workspace(commands: Commands, tmp_path: Path) -> None:
    odd = tmp_path / "a folder" / "ünï -x"
    odd.mkdir(parents=True)
    (tmp_path / "in").symlink_to(odd)
    folders = {"": tmp_path, "a folder/ünï -x": odd, str(odd): odd, "in/..": odd.parent}
    for workdir, folder in folders.items():
        assert commands.run("pwd -P", workdir=workdir).text == str(folder)


@pytest.mark.parametrize("workdir", ["..", "/", "out", "missing", "file", "nul\0", "a" * 5000])
def test_working_folders_that_are_refused(commands: Commands, tmp_path: Path, workdir: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "out").symlink_to("/tmp")
    with pytest.raises(BadInput, match="workdir"):
        commands.run("pwd", workdir=workdir)


def test_commands_that_the_system_can_not_take(commands: Commands) -> None:
    files = open_files()
    with pytest.raises(BadInput, match="1 MB"):
        commands.run("cat", stdin="x" * 1_000_001)
    with pytest.raises(BadInput, match="null byte"):
        commands.run("echo \0")
    with pytest.raises(ToolError, match="could not be started") as refused:
        commands.run("echo " + "x" * 200_000)
    assert "write it to a file" in refused.value.hint
    assert not open_files() - files


def test_the_command_gets_that_environment(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "X_API_KEY": "hidden", "Y_TOKEN": "passed", "Z": "plain"}
    commands = Commands(tmp_path, ShellLimits(pass_variables=["Y_TOKEN"]), environment)
    with closing(commands.processes):
        assert commands.run("echo [$X_API_KEY] $Y_TOKEN $Z").text == (
            "[] passed plain\n[commands don't get X_API_KEY, which looks like a secret; the person can allow"
            " it with: whet config set sandbox.variables X_API_KEY]"
        )
        failed = commands.run("echo 'KeyError: X_API_KEY'; exit 1").text
        assert "commands don't get X_API_KEY, which" in failed
        assert commands.run("echo plain").text == "plain"


async def test_a_background_process_from_start_to_end(commands: Commands) -> None:
    started = await commands.terminal("while read x; do echo got $x; done; exit 4", background=True)
    assert "background as p1" in started.text and (started.runs_on, started.over) == ("p1", "")
    await commands.process("write", text="one")
    await until(lambda: commands.processes.list_background()[0].output.total_bytes == 8)
    first = await commands.process("poll")
    assert first.text.startswith("got one\n[p1 running") and not first.over
    assert "no new output" in (await commands.process("poll")).text
    await commands.process("write", text="tw", newline=False)
    await commands.process("write", text="o", eof=True)
    last = await commands.process("wait")
    assert last.text.startswith("got two\n[p1 exit 4")
    assert (last.error_kind, last.exit_code, last.over) == ("exit", 4, "p1")
    assert (await commands.process("poll")).exit_code == 4
    assert "p1 exit 4" in (await commands.process("list")).text
    with pytest.raises(ToolError, match="input is closed"):
        await commands.process("write", text="late")


async def test_a_time_limit_that_does_not_hold_in_the_background_is_named(commands: Commands) -> None:
    limited = await commands.terminal("sleep 987", background=True, timeout_s=1)
    assert limited.text.endswith(
        "[timeout_s does not end it in the background; process with action kill does]"
    )
    assert "timeout_s" not in (await commands.terminal("sleep 987", background=True)).text


async def test_what_a_process_says_as_it_is_killed_is_shown(commands: Commands) -> None:
    says = "(trap '' TERM; yes | head -c 300000; echo last words) & exit"
    await commands.terminal(f'trap "{says}" TERM; echo up; sleep 987 & wait', background=True)
    await commands.until_printed()
    assert "last words" in (await commands.process("kill")).text


@pytest.mark.slow
async def test_wait_gives_up_and_kill_ends_the_group(commands: Commands) -> None:
    await commands.terminal("sleep 987 & echo $!; wait", background=True)
    await commands.until_printed()
    waited = await commands.process("wait", timeout_s=0.3)
    assert "p1 running" in waited.text and not waited.is_error
    killed = await commands.process("kill")
    assert "p1 exit 143" in killed.text and not killed.is_error
    assert not is_running(int(waited.text.split()[0]))


async def test_a_background_flood_is_bounded_and_says_what_was_lost(tmp_path: Path) -> None:
    commands = Commands(tmp_path, ShellLimits(output_cap_chars=2000))
    with closing(commands.processes):
        await commands.terminal("seq 1 200000; echo end", background=True)
        text = (await commands.process("wait")).text
    assert text.startswith("1\n2\n") and "bytes left out" in text
    assert "\n200000\nend\n[p1 exit 0" in text and len(text) <= 2000


async def test_an_interactive_program_in_the_background(commands: Commands) -> None:
    await commands.terminal("read -s -p 'code: ' c; echo; echo [$c]", background=True, pty=True)
    process = commands.processes.list_background()[0]
    await until(lambda: b"code: " in process.output.since(0)[0])
    await commands.process("write", text="42")
    assert "[42]" in (await commands.process("wait")).text


async def test_unknown_processes_are_answered_with_the_known_ones(commands: Commands) -> None:
    assert (await commands.process("list")).text == "no background processes"
    with pytest.raises(BadInput, match="there are none"):
        await commands.process("poll", "p9")
    await commands.terminal("true", background=True)
    with pytest.raises(BadInput, match="known: p1"):
        await commands.process("kill", "")


async def test_commands_leave_no_descriptor_behind(commands: Commands) -> None:
    await commands.terminal("true")
    before = open_files()
    for number in range(10):
        text = "cat" if number % 3 else "cd . && cat"
        await commands.terminal(text, stdin="x", pty=number % 2 == 0)
    assert not open_files() - before
