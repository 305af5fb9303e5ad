"""The command line as a process: start-up, exit codes, one line per failure."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.running import flags
from tests.support import each, output_of, within
from whet import __version__
from whet.cli.command_table import COMMANDS
from whet.cli.group import run, whet
from whet_lab.commands.evaluate import EVALUATIONS
from whet_lab.practice.server import PracticeServer

HEAVY = ("asyncio", "httpx2", "apsw")
PROBE = "import sys; from whet.cli.main import main; sys.argv[0] = 'whet'\n"


def start(*arguments: str, code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-c", code] if code else ["-m", "whet"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environ})


def modules_after(*arguments: str) -> tuple[str, set[str]]:
    code = PROBE + "try:\n main()\nfinally:\n print(' '.join(sys.modules), file=sys.stderr)"
    result = start(*arguments, code=code)
    return result.stdout, set(result.stderr.split())


@pytest.mark.parametrize("argument", ["--version", "version", "-V"])
def test_the_version_imports_next_to_nothing(argument: str) -> None:
    stdout, modules = modules_after(argument)
    assert stdout == f"whet {__version__}\n"
    assert not modules & {*HEAVY, "click", "logging", "msgspec", "yaml", "rich"}


def test_a_crash_leaves_no_core_file_with_keys_in_the_workspace() -> None:
    limits = "resource.getrlimit(resource.RLIMIT_CORE)"
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_CORE, ({limits}[1],) * 2)\n{PROBE}"
    ran = start("--version", code=f"{code}try:\n main()\nfinally:\n print({limits}, file=sys.stderr)")
    assert ran.stderr == "(0, 0)\n", ran


def command_paths(command: click.Command, context: click.Context) -> Iterator[list[str]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            inner._help_option = None  # pyright: ignore[reportPrivateUsage] - click keeps one without -h
            yield [name]
            for words in command_paths(inner, click.Context(inner, parent=context, info_name=name)):
                yield [name, *words]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_prints_its_usage_on_request(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = list(command_paths(whet, click.Context(whet, info_name="whet", **whet.context_settings)))
    assert len(paths) > 100
    for words in paths:
        code, printed = run([*words, option]), capsys.readouterr()
        assert (code, printed.err) == (0, ""), words
        assert printed.out.startswith(f"Usage: whet {' '.join(words)} "), printed.out


def test_help_lists_every_command_and_imports_none() -> None:
    stdout, modules = modules_after("--help")
    assert not modules & {*HEAVY, "yaml", "rich", "prompt_toolkit"}
    for name, (target, text) in COMMANDS.items():
        assert f"  {name} " in stdout and text.split(";")[0] in " ".join(stdout.split())
        assert target.partition(":")[0] not in modules


def test_settings_commands_start_without_the_heavy_ones(home: Path) -> None:
    _, modules = modules_after("config", "list")
    assert not modules & {*HEAVY, "yaml", "rich", "prompt_toolkit"}


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["sesions"], 2, ["no command 'sesions'", "did you mean `whet sessions`?"]),
        (["hello"], 2, ["no command 'hello'", 'to ask it: whet chat -q "hello"']),
        (["goal", "start", "x", "--steps", "0"], 2, ["--steps"]),
        (["qqqqq"], 2, ["no command 'qqqqq'", "whet chat -q"]),
        (["login"], 2, ["no command 'login'; `whet model login` gets a key"]),
        (["export"], 2, ["no command 'export'; `whet sessions export`"]),
        (["chat", "doctor"], 2, ['the command is `whet doctor`; to ask it: whet chat -q "doctor"']),
        (["chat", "-q", "fix", "it"], 2, ['quote the question: whet chat -q "fix it"']),
        (["skills", "show", "nope"], 1, ["no skill 'nope'", "hint: `whet skills list` shows"]),
        (["--nope"], 2, ["No such option"]),
        (["config", "set"], 2, ["Missing argument", "hint: whet config set --help"]),
        (
            ["config", "get", "model.modle"],
            1,
            ["model.modle is not a setting", "hint: did you mean model.model?"],
        ),
        (["-p", "../x", "config", "path"], 1, ["profile name '../x'"]),
        (["sessions", "show", "x"], 1, ["no sessions yet", "hint: begin one"]),
        (["config", "set", "agent.instructions", "caf\udce9"], 1, ["is not UTF-8 text"]),
    ],
)
def test_failures_are_one_line_and_a_hint(
    arguments: list[str], code: int, parts: list[str], capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("error: ") and lines[1].startswith("hint: ") and len(lines) == 2
    for part in parts:
        assert part in captured.err


def test_a_refusal_names_commands_and_not_the_models_tools(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert run(["skills", "retire", "nope"]) == 1
    assert "`whet skills list` shows" in capsys.readouterr().err


def test_a_secret_in_a_message_is_masked(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert run(["config", "set", "model.format", "sk-abcdefghijklmnopqrstuvwxyz"]) == 1
    assert "abcdefgh" not in capsys.readouterr().err


def test_a_profile_is_its_own_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-p", "work", "config", "set", "ui.markdown", "no"]) == 0
    assert (home / "profiles" / "work" / "config.yaml").exists()
    assert run(["config", "get", "ui.markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "true"


def test_a_folder_whose_name_is_no_text_is_named(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsencode(tmp_path) + b"/d\xffr"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    with PracticeServer() as server:
        assert run(["chat", "-q", "hi", *flags(server)]) == 1
    assert "has a name that is not UTF-8" in capsys.readouterr().err


def test_a_bug_goes_to_the_log_and_is_one_line_on_the_screen(home: Path) -> None:
    code = (
        PROBE + "from whet.cli import main as m, version\n"
        "import click\n"
        "@click.command()\n"
        "def broken(): raise RuntimeError('key sk-abcdefghijklmnopqrstuvwxyz\\nmore')\n"
        "version.version = broken\n"
        "main()"
    )
    result = start("-p", "work", "version", code=code)
    assert result.returncode == 1
    log = home / "profiles" / "work" / "logs" / "whet.log"
    assert result.stderr == f"error: unexpected RuntimeError: key [REDACTED]; details in {log}\n"
    record = json.loads(log.read_text())
    assert "Traceback" in record["stack"] and "in broken" in record["stack"]
    assert "abcdefgh" not in log.read_text()


def test_an_unwritable_home_shows_the_bugs_stack_instead(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    code = PROBE + "from whet.cli import group\ngroup.whet.callback = lambda **given: 1 / 0\nmain()"
    result = start("config", "path", code=code, WHET_HOME=str(blocker / "home"))
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr


@pytest.mark.fast_rows("ENOENT")
@pytest.mark.parametrize(
    ("number", "error", "hint"),
    [
        ("ENOENT", "No such file or directory", "check its owner, its rights and the free space"),
        ("EMFILE", "Too many open files", "close some programs, or raise the limit: ulimit -n"),
    ],
)
def test_a_file_that_the_system_refuses_is_one_line_also_without_a_log(
    tmp_path: Path, number: str, error: str, hint: str
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    code = (
        f"{PROBE}import errno, os\nfrom whet.cli import group\n"
        "def refuse(**_):\n"
        f"  raise OSError(errno.{number}, os.strerror(errno.{number}), '/nowhere/here')\n"
        "group.whet.callback = refuse\nmain()"
    )
    result = start("config", "path", code=code, WHET_HOME=str(blocker / "home"))
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"error: /nowhere/here: {error}",
        f"hint: {hint}",
    ]


WAITING = (
    PROBE + "import click, time\nfrom whet.cli import version\n"
    "@click.command()\n"
    "def waiting():\n"
    "  try:\n"
    "    print('ready', flush=True)\n"
    "    for _ in range(600): time.sleep(0.1)\n"  # a signal just before one long sleep would wait for its end
    "  finally: print('clean', flush=True)\n"
    "version.version = waiting\nsys.argv[1:] = ['-p', 'x', 'version']\nmain()"
)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_cleanly(number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", WAITING]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert within(output_of(process).readline, "the first line") == "ready\n"
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (code, "clean\n")
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["config", "list"], ["--version"]])
def test_a_reader_that_leaves_is_no_error(home: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "whet", *arguments]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert result.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", [["--version"], ["config", "list"], ["chat", "--provider", "practice", "-q", "Hello."]]
)
def test_streams_that_the_caller_closed_are_no_error_unless_output_is_lost(
    home: Path, closed: str, arguments: list[str]
) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "whet", *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    is_lost = ">&-" in closed.split()
    says = "output can't be written: Bad file descriptor" if is_lost and "2>&-" not in closed else ""
    assert result.returncode == int(is_lost)
    assert says in result.stderr and bool(result.stderr) == bool(says)
    assert (result.stdout == "") == (">&-" in closed.split())


def test_a_command_that_is_not_installed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    COMMANDS["absent"] = ("whet.cli.absent:absent", "Not there.")
    try:
        assert run(["absent"]) == 1
    finally:
        del COMMANDS["absent"]
    assert "not part of this installation" in capsys.readouterr().err


def test_the_table_names_only_what_click_can_list() -> None:
    context = whet.make_context("whet", ["version"], resilient_parsing=True)
    assert whet.list_commands(context) == list(COMMANDS)


@each("target", [row[0] for row in (*COMMANDS.values(), *EVALUATIONS.values())])
def test_every_entry_of_a_command_table_is_a_click_command(target: str) -> None:
    module, _, attribute = target.partition(":")
    assert isinstance(getattr(importlib.import_module(module), attribute), click.Command)


def test_every_option_says_what_it_does() -> None:
    silent: list[str] = []

    def look(command: click.Command, path: str) -> None:
        silent.extend(
            f"{path} --{option.name}"
            for option in command.params
            if isinstance(option, click.Option) and not option.help
        )
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if found := command.get_command(context, name):
                    look(found, f"{path} {name}")

    look(whet, "whet")
    assert silent == []


def test_a_deleted_current_folder_is_one_line(tmp_path: Path) -> None:
    """Only what needs the folder fails: its workspace may be named."""
    gone = tmp_path / "gone"
    code = f"import os; os.makedirs({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n{PROBE}"
    environ = {"WHET_HOME": str(tmp_path / "home")}
    model = ("--provider", "mock", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    result = start("chat", *model, "-q", "hi", code=code + "main()", **environ)
    lines = ["error: the current folder was deleted", "hint: change to a folder that exists: cd DIR"]
    assert (result.returncode, result.stderr.splitlines()) == (1, lines)
    assert start("config", "path", code=code + "main()", **environ).returncode == 0


def test_a_user_without_a_home_folder_reads_what_to_set() -> None:
    code = "import os; os.environ.pop('HOME', None); os.environ.pop('WHET_HOME', None)\n"
    code += "import pwd; pwd.getpwuid = lambda number: (_ for _ in ()).throw(KeyError(number))\n"
    result = start("sessions", "list", code=code + PROBE + "main()")
    hint = "hint: set HOME, or WHET_HOME to a folder that you can write\n"
    assert (result.returncode, result.stderr) == (1, f"error: this user has no home folder\n{hint}")
