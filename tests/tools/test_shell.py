"""terminal and process, with real processes."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import cancel_task, let_pass, open_files
from tests.tools.running import call, context, find_tool, until
from whet.contract.errors import BadInput, ToolError
from whet.contract.tools import Tool, ToolOutput
from whet.tools.process import Processes
from whet.tools.shell import LiveFeed
from whet.tools.toolsets.terminal import SharedProcesses, ShellLimits, ShellTools


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def run(processes: Processes, folder: Path, command: str, **arguments: Any) -> ToolOutput:
    terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
    return asyncio.run(call(terminal, context(folder), command=command, **arguments))


@contextmanager
def with_tools(processes: Processes, limits: ShellLimits | None = None) -> Iterator[tuple[Tool, Tool]]:
    try:
        terminal, process = ShellTools(SharedProcesses(processes), limits or ShellLimits())
        yield terminal, process
    finally:
        processes.close()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_output_is_merged_in_order_with_the_exit_code(processes: Processes, tmp_path: Path) -> None:
    output = run(processes, tmp_path, "echo one; echo two >&2; echo three; exit 3")
    assert output == ToolOutput("one\ntwo\nthree\n[exit 3]", "exit", 3, cpu_s=output.cpu_s)


def test_a_line_between_two_long_progress_bars_is_shown(processes: Processes, tmp_path: Path) -> None:
    bar = "for n in $(seq 4000); do printf '\\r%0100d' $n; done; echo"
    output = run(processes, tmp_path, f"{bar}; echo THE MIDDLE; {bar}; echo THE END")
    assert output.text.splitlines()[1::2] == ["THE MIDDLE", "THE END"] and "left out" not in output.text


def test_success_and_silence_are_said(processes: Processes, tmp_path: Path) -> None:
    for command, more, text in (
        ("echo hi", {}, "hi"),
        ("echo hi", {"timeout_s": 0}, "hi"),  # 0: the usual limit
        ("true", {}, "[no output, exit 0]"),
    ):
        output = run(processes, tmp_path, command, **more)
        assert output == ToolOutput(text, "", 0, cpu_s=output.cpu_s)


def test_a_shell_in_the_workspace_on_the_search_path_runs_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, sub = tmp_path / ".venv/bin", tmp_path / "sub"
    own.mkdir(parents=True)
    sub.mkdir()
    (own / "bash").write_text("#!/bin/sh\necho OWN\n")
    (own / "bash").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")
    made = Processes()
    for folder in ("", "sub"):
        assert run(made, tmp_path, "echo hi", workdir=folder).text == "hi"
    made.close()


def test_a_signal_is_named(processes: Processes, tmp_path: Path) -> None:
    output = run(processes, tmp_path, "kill -SEGV $$")
    assert (output.text, output.exit_code) == ("[exit 139: SIGSEGV]", 139)
    for code, said in ((129, "[exit 129: SIGHUP]"), (128, "[exit 128]"), (255, "[exit 255]")):
        assert run(processes, tmp_path, f"exit {code}").text == said


def test_reading_stdin_gets_end_of_file_or_what_was_given(processes: Processes, tmp_path: Path) -> None:
    assert run(processes, tmp_path, "cat; echo done").text == "done"
    assert run(processes, tmp_path, "cat", stdin="given ü\n").text == "given ü"
    big = "x" * 900_000
    assert run(processes, tmp_path, "wc -c", stdin=big).text == "900000"
    assert run(processes, tmp_path, "exec 0<&-; sleep 0.05; echo closed", stdin=big).text == "closed"
    with pytest.raises(BadInput, match="1 MB"):
        run(processes, tmp_path, "cat", stdin="x" * 1_000_001)


@pytest.mark.slow
def test_a_gigabyte_costs_no_memory(processes: Processes, tmp_path: Path) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu_s, start_s = time.process_time(), time.monotonic()
    shown: list[str] = []
    terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
    output = asyncio.run(
        call(terminal, context(tmp_path, shown), command="echo start; yes | head -c 1G; echo the end")
    )
    assert output.text.startswith("start\ny\n")
    assert output.text.endswith("y\nthe end")
    assert "[... 1,073,7" in output.text
    assert len(output.text) <= 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000
    assert time.process_time() - cpu_s < 6
    # 20 pieces of 4 KB a second at most, however long the machine takes.
    assert sum(map(len, shown)) <= 4_096 * (20 * (time.monotonic() - start_s) + 2)


def test_long_lines_of_wide_characters_stay_within_the_cap(processes: Processes, tmp_path: Path) -> None:
    output = run(processes, tmp_path, f"{sys.executable} -c \"print('漢' * 50000)\"")
    assert "bytes left out" in output.text
    assert "\ufffd" not in output.text
    assert len(output.text) <= 30_000
    shorter = run(processes, tmp_path, f"{sys.executable} -c \"print('漢' * 35000)\"")
    assert "[... 5,400 of 35,000 characters cut ...]" in shorter.text


async def test_a_command_without_end_is_stopped_with_all_its_children(
    processes: Processes, tmp_path: Path
) -> None:
    command = "sleep 987 & echo $!; (sleep 987 & echo $!; wait) & echo before; wait"
    shown: list[str] = []
    with with_tools(processes) as (terminal, _):
        ctx = context(tmp_path, shown)
        running = asyncio.ensure_future(call(terminal, ctx, command=command, timeout_s=60))
        await until(lambda: len("".join(shown).split()) == 3)
        let_pass(60)
        output = await running
        assert output.error_kind == "timeout"
        assert "before" in output.text
        assert "stopped after 60 s" in output.text
        pids = [int(line) for line in output.text.splitlines() if line.isdigit()]
        assert len(pids) == 2
        assert not any(map(is_running, pids))


@pytest.mark.slow
async def test_a_daemon_that_holds_the_output_open_does_not_hang_the_tool(
    processes: Processes, tmp_path: Path
) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        started_s = time.monotonic()
        command = (
            "(echo $BASHPID; until [ -e go ]; do sleep 0.02; done; echo later; exec sleep 987) & echo up"
        )
        output = await call(terminal, ctx, command=command)
        assert time.monotonic() - started_s < 60
        assert output.exit_code == 0
        assert not output.is_error
        assert "still run in the background as p1" in output.text and output.runs_on == "p1"
        pid = next(int(line) for line in output.text.splitlines() if line.isdigit())
        assert is_running(pid)
        (tmp_path / "go").touch()
        found = processes.get("p1")
        assert found is not None
        total = found.output.total_bytes
        await until(lambda: found.output.total_bytes > total)
        assert (await call(process, ctx, action="poll", id="p1")).text.startswith(
            "later\n[p1 exit 0, children still"
        )
        processes.close()
        assert not is_running(pid)


async def test_children_that_redirected_their_output_are_reported_and_killed_too(
    processes: Processes, tmp_path: Path
) -> None:
    with with_tools(processes) as (terminal, process):
        output = await call(terminal, context(tmp_path), command="sleep 987 >/dev/null 2>&1 & echo $!")
        pid = int(output.text.splitlines()[0])
        assert "background as p1" in output.text and output.runs_on == "p1"
        await call(process, context(tmp_path), action="kill", id="p1")
        assert not is_running(pid)


def test_binary_output_is_described(processes: Processes, tmp_path: Path) -> None:
    output = run(processes, tmp_path, r"printf '\x7fELF\0\0\0\0'; head -c 5000 /dev/zero")
    assert output.text == (
        "[binary output, 5,008 bytes, begins 7f 45 4c 46 00 00 00 00 00 00 00 00 00 00 00 00; "
        "redirect it to a file]"
    )


def test_a_few_broken_characters_make_no_binary_of_a_text(processes: Processes, tmp_path: Path) -> None:
    for letters, is_binary in ((50, False), (49, True)):
        (tmp_path / "out").write_bytes(b"a" * letters + b"\xff" * 10)
        assert run(processes, tmp_path, "cat out").text.startswith("[binary output, 59 bytes") == is_binary


def test_terminal_control_is_taken_out(processes: Processes, tmp_path: Path) -> None:
    command = r"printf '\033[31mred\033[0m \033]0;title\007x\a\n10%%\r55%%\r100%%\ncrlf\r\n'"
    shown: list[str] = []
    terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
    output = asyncio.run(call(terminal, context(tmp_path, shown), command=command))
    assert output.text == "red x\n100%\ncrlf"
    assert "\x1b" not in "".join(shown)
    assert "\a" not in "".join(shown)


async def test_output_is_shown_while_the_command_runs_and_not_too_often(
    processes: Processes, tmp_path: Path
) -> None:
    shown: list[str] = []
    with with_tools(processes) as (terminal, _):
        command = "echo first; until [ -e go ]; do sleep 0.02; done; seq 1 20000"
        started_s = time.monotonic()
        running = asyncio.ensure_future(call(terminal, context(tmp_path, shown), command=command))
        await until(lambda: "first" in "".join(shown))
        assert not running.done()
        (tmp_path / "go").touch()
        await running
        assert len(shown) <= 20 * (time.monotonic() - started_s) + 3
        assert "20000" in shown[-1]


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
def test_a_character_cut_in_two_is_shown_whole(processes: Processes, tmp_path: Path) -> None:
    shown: list[str] = []
    terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
    command = r"printf 'caf\xc3'; sleep 0.15; printf '\xa9 \xf0\x9f'; sleep 0.15; printf '\x98\x80'"
    output = asyncio.run(call(terminal, context(tmp_path, shown), command=command))
    assert output.text == "".join(shown) == "café 😀"


async def test_a_cancel_kills_the_group_and_passes(processes: Processes, tmp_path: Path) -> None:
    shown: list[str] = []
    with with_tools(processes) as (terminal, _):
        await call(terminal, context(tmp_path), command="true")  # the first opens the guardian's pipe
        files = open_files()
        command = "sleep 987 & echo $! $$; wait"
        running = asyncio.ensure_future(call(terminal, context(tmp_path, shown), command=command))
        await until(lambda: len("".join(shown).split()) == 2)
        await cancel_task(running)
        assert not any(is_running(int(pid)) for pid in "".join(shown).split())
        assert not open_files() - files


async def test_a_second_cancel_kills_at_once_what_ignores_the_first(
    processes: Processes, tmp_path: Path
) -> None:
    shown: list[str] = []
    with with_tools(processes) as (terminal, _):
        command = "trap '' TERM; echo $$; while :; do sleep 0.01; done"
        running = asyncio.ensure_future(call(terminal, context(tmp_path, shown), command=command))
        await until(lambda: bool("".join(shown).split()))
        pid = int("".join(shown))
        running.cancel()
        await asyncio.sleep(0)
        assert is_running(pid)
        await cancel_task(running)
        await until(lambda: not is_running(pid))


@pytest.mark.parametrize("watcher", ["pidfd", "thread", "refused"])
def test_it_works_in_a_loop_on_another_thread(tmp_path: Path, watcher: str) -> None:
    def refuse(_pid: int) -> int:
        raise OSError("no pidfd here")

    made = {
        "pidfd": lambda: Processes(),
        "thread": lambda: Processes(open_pidfd=None),
        "refused": lambda: Processes(open_pidfd=refuse),
    }[watcher]()
    outputs: list[ToolOutput] = []

    async def work() -> None:
        ctx = context(tmp_path)
        with with_tools(made) as (terminal, process):
            outputs.append(await call(terminal, ctx, command="echo there; exit 5"))
            outputs.append(await call(terminal, ctx, command="sleep 987", timeout_s=0.1))
            await call(terminal, ctx, command="exit 7", background=True)
            outputs.append(await call(process, ctx, action="wait", id="p1"))

    thread = threading.Thread(target=asyncio.run, args=(work(),), daemon=True)
    thread.start()
    thread.join(20)
    assert [(output.error_kind, output.exit_code) for output in outputs] == [
        ("exit", 5),
        ("timeout", 143),
        ("exit", 7),
    ]


def test_a_terminal_when_one_is_demanded(processes: Processes, tmp_path: Path) -> None:
    output = run(
        processes, tmp_path, "test -t 0 && test -t 1 && stty size; echo > /dev/tty; cat; echo over", pty=True
    )
    assert output.text.split() == ["40", "120", "over"]
    assert run(processes, tmp_path, "test -t 1").exit_code == 1
    answered = run(processes, tmp_path, "read -p 'name? ' name; echo hello $name", pty=True, stdin="Ada\n")
    assert answered.text.endswith("hello Ada")


async def test_two_commands_run_at_once(processes: Processes, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with with_tools(processes) as (terminal, _):
        reader, writer = await asyncio.gather(
            call(terminal, context(tmp_path), command="cat pipe"),
            call(terminal, context(tmp_path), command="echo across > pipe"),
        )
        assert reader.text == "across"
        assert writer.exit_code == 0


def test_working_folders_inside_the_workspace(processes: Processes, tmp_path: Path) -> None:
    odd = tmp_path / "a folder" / "ünï -x"
    odd.mkdir(parents=True)
    (tmp_path / "in").symlink_to(odd)
    assert run(processes, tmp_path, "pwd -P").text == str(tmp_path)
    assert run(processes, tmp_path, "pwd -P", workdir="a folder/ünï -x").text == str(odd)
    assert run(processes, tmp_path, "pwd -P", workdir=str(odd)).text == str(odd)
    assert run(processes, tmp_path, "pwd -P", workdir="in/..").text == str(odd.parent)


@pytest.mark.parametrize("workdir", ["..", "/", "out", "missing", "file", "nul\0", "a" * 5000])
def test_working_folders_that_are_refused(processes: Processes, tmp_path: Path, workdir: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "out").symlink_to("/tmp")
    with pytest.raises(BadInput, match="workdir"):
        run(processes, tmp_path, "pwd", workdir=workdir)


def test_commands_that_the_system_can_not_take(processes: Processes, tmp_path: Path) -> None:
    files = open_files()
    with pytest.raises(BadInput, match="null byte"):
        run(processes, tmp_path, "echo \0")
    with pytest.raises(ToolError, match="could not be started") as caught:
        run(processes, tmp_path, "echo " + "x" * 200_000)
    assert "write it to a file" in caught.value.hint
    assert not open_files() - files


def test_the_command_gets_that_environment(processes: Processes, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "X_API_KEY": "hidden", "Y_TOKEN": "passed", "Z": "plain"}
    tools = ShellTools(SharedProcesses(processes), ShellLimits(pass_variables=["Y_TOKEN"]), environment)
    terminal = find_tool(tools, "terminal")
    output = asyncio.run(call(terminal, context(tmp_path), command="echo [$X_API_KEY] $Y_TOKEN $Z"))
    assert output.text == (
        "[] passed plain\n[commands don't get X_API_KEY, which looks like a secret; the person can allow"
        " it with: whet config set sandbox.variables X_API_KEY]"
    )
    failing = "echo 'KeyError: X_API_KEY'; exit 1"
    output = asyncio.run(call(terminal, context(tmp_path), command=failing))
    assert "commands don't get X_API_KEY, which" in output.text
    output = asyncio.run(call(terminal, context(tmp_path), command="echo plain"))
    assert output.text == "plain"


async def test_a_background_process_from_start_to_end(processes: Processes, tmp_path: Path) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        started = await call(
            terminal, ctx, command="while read x; do echo got $x; done; exit 4", background=True
        )
        assert "background as p1" in started.text and (started.runs_on, started.over) == ("p1", "")
        await call(process, ctx, action="write", id="p1", text="one")
        await until(lambda: processes.list_background()[0].output.total_bytes == 8)
        first = await call(process, ctx, action="poll", id="p1")
        assert first.text.startswith("got one\n[p1 running") and not first.over
        assert "no new output" in (await call(process, ctx, action="poll", id="p1")).text
        await call(process, ctx, action="write", id="p1", text="tw", newline=False)
        await call(process, ctx, action="write", id="p1", text="o", eof=True)
        last = await call(process, ctx, action="wait", id="p1")
        assert last.text.startswith("got two\n[p1 exit 4")
        assert (last.error_kind, last.exit_code, last.over) == ("exit", 4, "p1")
        assert (await call(process, ctx, action="poll", id="p1")).exit_code == 4
        assert "p1 exit 4" in (await call(process, ctx, action="list")).text
        with pytest.raises(ToolError, match="input is closed"):
            await call(process, ctx, action="write", id="p1", text="late")


async def test_a_time_limit_that_does_not_hold_in_the_background_is_named(
    processes: Processes, tmp_path: Path
) -> None:
    with with_tools(processes) as (terminal, _):
        ctx = context(tmp_path)
        limited = await call(terminal, ctx, command="sleep 987", background=True, timeout_s=1)
        assert limited.text.endswith(
            "[timeout_s does not end it in the background; process with action kill does]"
        )
        assert "timeout_s" not in (await call(terminal, ctx, command="sleep 987", background=True)).text


async def test_what_a_process_says_as_it_is_killed_is_shown(processes: Processes, tmp_path: Path) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        says = "(trap '' TERM; yes | head -c 300000; echo last words) & exit"
        await call(terminal, ctx, command=f'trap "{says}" TERM; echo up; sleep 987 & wait', background=True)
        await until(lambda: processes.list_background()[0].output.total_bytes > 0)
        assert "last words" in (await call(process, ctx, action="kill", id="p1")).text


@pytest.mark.slow
async def test_wait_gives_up_and_kill_ends_the_group(processes: Processes, tmp_path: Path) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        await call(terminal, ctx, command="sleep 987 & echo $!; wait", background=True)
        await until(lambda: processes.list_background()[0].output.total_bytes > 0)
        waited = await call(process, ctx, action="wait", id="p1", timeout_s=0.3)
        assert "p1 running" in waited.text
        assert not waited.is_error
        killed = await call(process, ctx, action="kill", id="p1")
        assert "p1 exit 143" in killed.text
        assert not killed.is_error
        assert not is_running(int(waited.text.split()[0]))


async def test_a_background_flood_is_bounded_and_says_what_was_lost(
    processes: Processes, tmp_path: Path
) -> None:
    with with_tools(processes, ShellLimits(output_cap_chars=2000)) as (terminal, process):
        ctx = context(tmp_path)
        await call(terminal, ctx, command="seq 1 200000; echo end", background=True)
        output = await call(process, ctx, action="wait", id="p1")
        assert output.text.startswith("1\n2\n")
        assert "bytes left out" in output.text
        assert "\n200000\nend\n[p1 exit 0" in output.text
        assert len(output.text) <= 2000


async def test_an_interactive_program_in_the_background(processes: Processes, tmp_path: Path) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        await call(terminal, ctx, command="read -s -p 'code: ' c; echo; echo [$c]", background=True, pty=True)
        found = processes.list_background()[0]
        await until(lambda: b"code: " in found.output.since(0)[0])
        await call(process, ctx, action="write", id="p1", text="42")
        assert "[42]" in (await call(process, ctx, action="wait", id="p1")).text


async def test_unknown_processes_are_answered_with_the_known_ones(
    processes: Processes, tmp_path: Path
) -> None:
    with with_tools(processes) as (terminal, process):
        ctx = context(tmp_path)
        assert (await call(process, ctx, action="list")).text == "no background processes"
        with pytest.raises(BadInput, match="there are none"):
            await call(process, ctx, action="poll", id="p9")
        await call(terminal, ctx, command="true", background=True)
        with pytest.raises(BadInput, match="known: p1"):
            await call(process, ctx, action="kill")


async def test_commands_leave_no_descriptor_behind(processes: Processes, tmp_path: Path) -> None:
    with with_tools(processes) as (terminal, _):
        await call(terminal, context(tmp_path), command="true")
        before = open_files()
        for number in range(10):
            text = "cat" if number % 3 else "cd . && cat"
            await call(terminal, context(tmp_path), command=text, stdin="x", pty=number % 2 == 0)
        assert not open_files() - before


def test_the_model_is_told_in_1500_characters(processes: Processes) -> None:
    tools = list(ShellTools(SharedProcesses(processes)))
    assert [tool.toolset for tool in tools] == ["terminal", "terminal"]
    assert sum(len(msgspec.json.encode(tool.spec)) for tool in tools) <= 1500
