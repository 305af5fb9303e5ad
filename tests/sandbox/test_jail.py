"""Commands in a real jail, with each engine: they run, their ends are seen, and nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import run
from whet.contract.errors import ToolError
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.policy import read_opening
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine
from whet.sandbox.system_folders import default_policy


def test_a_command_works_in_its_workspace(jail: Jail) -> None:
    assert run(jail, "echo one > f && chmod 755 f && touch -d 2001-02-03 f && cat f; exit 3") == (3, "one\n")
    folder = jail.policy.workspace / "f"
    assert folder.read_text() == "one\n"
    assert folder.stat().st_mode & 0o777 == 0o755
    assert time.gmtime(folder.stat().st_mtime).tm_year == 2001


def test_files_and_folders_move_and_get_second_names_across_folders(jail: Jail) -> None:
    text = """
import os
os.makedirs("from/inner"), os.makedirs("to")
open("from/file", "w").write("1")
os.link("from/file", "to/second")
os.rename("from/file", "to/file")
os.rename("from/inner", "to/inner")
print(sorted(os.listdir("to")), os.listdir("from"))
"""
    code, printed = run(jail, f"python3 -c '{text}'")
    assert (code, printed.split("]")[0]) == (0, "['file', 'inner', 'second'"), printed


def test_ends_are_told_as_popen_tells_them(jail: Jail) -> None:
    assert run(jail, "kill -9 $$")[0] == 128 + signal.SIGKILL
    assert run(jail, "exit 7")[0] == 7
    inside = jail.environment(os.environ)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        with pytest.raises(FileNotFoundError):
            jail.spawn(JailedCommand(["no-such-program"], inside, jail.policy.workspace), (null, null, null))
        slow = jail.spawn(JailedCommand(["sleep", "60"], inside, jail.policy.workspace), (null, null, null))
        with pytest.raises(subprocess.TimeoutExpired):
            slow.wait(0.01)
        assert slow.poll() is None
        os.killpg(slow.pid, signal.SIGTERM)  # its number here is a process of its own group
        assert slow.wait(20) == -signal.SIGTERM
    finally:
        os.close(null)


@pytest.mark.slow
def test_nothing_outlives_its_jail(jail: Jail) -> None:
    code, output = run(jail, "setsid sh -c 'sleep 300 & echo $$; exec sleep 300' >out & sleep 0.2; cat out")
    assert code == 0
    assert output.strip().isdigit()
    jail.close()
    assert _sleepers(jail.policy.workspace) == []


@pytest.mark.slow
def test_a_killed_launcher_takes_its_commands_along_and_the_next_has_another(jail: Jail) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        inside = jail.environment(os.environ)
        slow = jail.spawn(JailedCommand(["sleep", "300"], inside, jail.policy.workspace), (null, null, null))
        os.kill(jail.launcher_pid, signal.SIGTERM)
        os.waitid(os.P_PID, jail.launcher_pid, os.WEXITED | os.WNOWAIT)
        assert run(jail, "echo again") == (0, "again\n")
        assert slow.wait(20) != 0
    finally:
        os.close(null)


@pytest.mark.slow
def test_a_killed_program_leaves_none_of_its_commands(jail: Jail, tmp_path: Path) -> None:
    text = f"""
import os, sys
from pathlib import Path
from whet.contract.errors import ToolError
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.system_folders import default_policy
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine
place = Path({str(jail.policy.workspace)!r})
engine = Engine(*{(jail.plan.engine.name, jail.plan.engine.program)!r}, *{_rest(jail)!r})
policy = default_policy(place, place / "whet", os.environ)
made = Jail(JailPlan(engine, policy, Scratch(), Path.home()))
slow = made.spawn(JailedCommand(["sleep", "300"], made.environment(os.environ), place), (0, 1, 1))
print(slow.pid, flush=True)
sys.stdin.read()
"""
    program = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    handle = os.pidfd_open(pid)
    program.kill()
    program.communicate()
    assert select.select([handle], [], [], 20)[0], "the command lives on"
    os.close(handle)


def _rest(jail: Jail) -> tuple[int, bool]:
    return jail.plan.engine.abi, jail.plan.engine.namespaces


def test_what_is_hidden_in_the_workspace_stays_so_where_it_is_replaced(jail: Jail, tmp_path: Path) -> None:
    key = jail.policy.workspace / "keys"
    key.write_text("KEY-1")
    policy = msgspec.structs.replace(jail.policy, absent=(*jail.policy.absent, key))
    scratch = Scratch()
    other = Jail(JailPlan(jail.plan.engine, policy, scratch, Path.home()))
    try:
        assert "KEY" not in run(other, "cat keys")[1]
        (jail.policy.workspace / "new").write_text("KEY-2")
        (jail.policy.workspace / "new").rename(key)
        assert "KEY" not in run(other, "cat keys")[1]
    finally:
        other.close()
        scratch.close()


_SUB = "git init -q sub; git -C sub commit -q --allow-empty -m x; "
_BELOW = (
    _SUB + "git -C sub config core.fsmonitor '{run}'; git add sub",
    _SUB + "git add sub; : > later",
    "git submodule add -q $PWD sm; printf '[core]\\n\\tfsmonitor = {run}\\n' >> .git/modules/sm/config",
    "mkdir evil; cp -r .git/objects .git/refs evil; echo ../evil > .git/commondir;"
    " printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = {run}\\n' > evil/config",
)


@pytest.mark.slow
@pytest.mark.parametrize("text", _BELOW, ids=["embedded", "two steps", "submodule", "commondir"])
def test_a_persons_git_runs_nothing_of_repositories_that_it_enters(
    jail: Jail, tmp_path: Path, text: str
) -> None:
    workspace, escaped = jail.policy.workspace, tmp_path / "escaped"
    who = "git config --global user.name a; git config --global user.email b; "
    who += "git config --global protocol.file.allow always; "
    subprocess.run(["git", "init", "-q", workspace], check=True)
    (workspace / "a").write_text("a\n")
    who += "git add a; git commit -qm a; "
    evil = f"touch {escaped} #"
    run(jail, who + text.replace("{run}", evil))
    if (workspace / "later").exists():
        run(jail, f"git -C sub config core.fsmonitor '{evil}'")
    for command in ("status", "diff", "add -A", "status"):
        subprocess.run(["git", *command.split()], cwd=workspace, check=False, capture_output=True)
    assert not escaped.exists()


@pytest.mark.slow
def test_a_submodule_works_and_keeps_what_its_owner_set(jail: Jail) -> None:
    workspace = jail.policy.workspace
    who = ["-c", "user.name=a", "-c", "user.email=b", "-c", "protocol.file.allow=always"]
    for words in (["init", "-q", "."], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *who, *words], cwd=workspace, check=True)
    add = ["submodule", "add", "-q", str(workspace), "sm"]
    subprocess.run(["git", *who, *add], cwd=workspace, check=True)
    subprocess.run(["git", "config", "core.editor", "mine"], cwd=workspace / "sm", check=True)
    code, output = run(
        jail, "cd sm && echo b > b && git add b && git -c user.name=a -c user.email=b commit -qm b"
    )
    assert code == 0, output
    config = (workspace / ".git" / "modules" / "sm" / "config").read_text()
    assert "editor = mine" in config and "worktree = " in config


@pytest.mark.slow
def test_an_opening_is_another_policy(jail: Jail, tmp_path: Path) -> None:
    outside = tmp_path / "more"
    outside.mkdir()
    assert run(jail, f"echo x > {outside}/f")[0] != 0 or not (outside / "f").exists()
    policy = jail.policy.with_openings([read_opening(f"write {outside}")])
    with contextlib.closing(
        Jail(JailPlan(jail.plan.engine, policy, jail.plan.scratch, jail.plan.home))
    ) as other:
        assert run(other, f"echo x > {outside}/f") == (0, "")
    assert (outside / "f").read_text() == "x\n"


def test_python_with_processes_and_a_terminal(jail: Jail) -> None:
    text = "import os, subprocess; print(subprocess.run(['echo', 'child'], capture_output=True).stdout)"
    assert run(jail, f'{sys.executable} -c "{text}"') == (0, "b'child\\n'\n")
    here, there = os.openpty()
    try:
        inside = jail.environment(os.environ)
        wanted = JailedCommand(["sh", "-c", "echo hi > /dev/tty"], inside, jail.policy.workspace, tty=True)
        assert jail.spawn(wanted, (there, there, there)).wait(20) == 0
        assert os.read(here, 100) == b"hi\r\n"
    finally:
        os.close(here)
        os.close(there)


def _sleepers(workspace: Path) -> list[str]:
    names: list[str] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/cwd") == str(workspace):
                    names.append(name)
            except OSError:
                pass
    return names


@pytest.mark.parametrize(("failures", "problem"), [(2, ""), (3, "Can't bind mount")])
def test_mounts_that_fail_as_a_name_goes_away_are_tried_again(
    tmp_path: Path, failures: int, problem: str
) -> None:
    engine, before = ENGINES[0].engine(), tmp_path / "before"
    before.write_text("x" * failures)
    program = tmp_path / "bwrap"
    program.write_text(
        f'#!/bin/sh\n[ -s {before} ] || exec {engine.program} "$@"\n'
        f'truncate -s -1 {before}; echo "bwrap: Can\'t bind mount" >&2; exit 1\n'
    )
    program.chmod(0o755)
    (tmp_path / "ws").mkdir()
    scratch, policy = Scratch(), default_policy(tmp_path / "ws", tmp_path / "whet", os.environ)
    stand_in = msgspec.structs.replace(engine, program=str(program))
    jail = Jail(JailPlan(stand_in, policy, scratch, Path.home()))
    try:
        if problem:
            with pytest.raises(ToolError, match=problem):
                jail.open()
        else:
            assert run(jail, "echo one") == (0, "one\n")
    finally:
        jail.close()
        scratch.close()


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_home_as_the_workspace_shows_what_is_granted_in_hidden_folders_alone(
    case: EngineCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "u"
    kept = (".config/git/config", ".cargo/bin/tool", "notes")
    secret = (".config/gh/hosts.yml", ".ssh/id_rsa", ".cargo/credentials")
    for name in (*kept, *secret):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"# {name}\n")
    monkeypatch.setenv("HOME", str(home))
    scratch = Scratch()
    policy = default_policy(home, home / ".whet", os.environ)
    # What lies in a hidden folder may be named once more, as an unreadable file of /etc is.
    absent = (*policy.absent, home / ".ssh" / "id_rsa")
    jail = Jail(
        JailPlan(case.engine(), msgspec.structs.replace(policy, absent=absent), scratch, home.resolve())
    )
    try:
        assert run(jail, f"cat {' '.join(kept)}")[1] == "".join(f"# {name}\n" for name in kept)
        for name in secret:
            code, output = run(jail, f"cat {name}")
            assert code != 0 and "#" not in output
        assert run(jail, "echo x > .config/more; echo x > .ssh/more; echo x >> notes")[0] == 0
        assert not (home / ".config" / "more").exists() and not (home / ".ssh" / "more").exists()
    finally:
        jail.close()
        scratch.close()


def test_an_engine_that_ends_at_once_says_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 1\n")
    program.chmod(0o755)
    workspace, scratch = tmp_path / "ws", Scratch()
    workspace.mkdir()
    policy = default_policy(workspace, tmp_path / "whet", os.environ)
    jail = Jail(JailPlan(Engine("bubblewrap", str(program)), policy, scratch, Path.home()))
    try:
        with pytest.raises(ToolError, match="no such luck"):
            jail.open()
    finally:
        jail.close()
        scratch.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill -STOP $PPID; echo x >> ran", "echo x >> ran; kill -9 $PPID"])
def test_a_command_that_stops_its_launcher_holds_nobody_up_and_is_not_run_again(jail: Jail, how: str) -> None:
    began = time.monotonic()
    try:
        run(jail, how)
    except ToolError as error:
        assert "whether it ran is not known" in error.message
    assert run(jail, "echo again") == (0, "again\n")
    assert time.monotonic() - began < 60  # it is not left to its time limit
    ran = jail.policy.workspace / "ran"
    assert not ran.exists() or ran.read_text() == "x\n"
    jail.close()
    assert all(str(jail.policy.workspace) not in text for text in everything_that_runs())


def everything_that_runs() -> list[str]:
    names: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            names.append(path.read_text("utf-8", "replace"))
    return names


@pytest.mark.slow
def test_other_processes_of_the_same_user_keep_their_rank(jail: Jail) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    text = f"import os\ntry: os.setpriority(os.PRIO_USER, 0, {own + 1})\nexcept OSError: pass\n"
    text += f"print(os.nice(0) - {own})"
    # Where processes have a namespace of their own, the user's others are none of its.
    is_alone = jail.plan.engine.own_network
    assert run(jail, f"python3 -c '{text}'") == (0, "1\n" if is_alone else "0\n")


def test_what_a_package_manager_installs_tomorrow_can_not_be_put_into_its_cache(
    jail: Jail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of npm's cache, unlike its content, is checked against nothing."""
    home = tmp_path / "home"
    (home / ".npm" / "_cacache" / "index-v5").mkdir(parents=True)
    policy = default_policy(tmp_path / "ws", tmp_path / "whet", {**os.environ, "HOME": str(home)})
    cache = home.resolve() / ".npm" / "_cacache"
    assert policy.may_read(cache) and not policy.may_write(cache)
    opened = policy.with_openings([read_opening(f"write {cache}")])
    for granted, is_private in ((policy, True), (opened, False)):
        plan = JailPlan(jail.plan.engine, granted, Scratch(), home.resolve())
        own = Path("/tmp") if plan.engine.own_network else plan.scratch.tmp
        inside = plan.environment({}).get("npm_config_cache")
        assert inside == (f"{own}/npm-cache" if is_private else None)
        plan.scratch.close()


_MODES = """
import os
os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o644))
for make in (
    lambda: os.close(os.open("opened", os.O_CREAT | os.O_WRONLY, 0o4755)),
    lambda: os.mknod("made", 0o104755),
    lambda: os.chmod("plain", 0o4755),
    lambda: os.fchmod(os.open("plain", os.O_RDONLY), 0o4755),
):
    try: make()
    except OSError: pass
os.mkdir("shared"); os.chmod("shared", 0o2775)
os.close(os.open("plain", os.O_RDONLY, 0o7777))
print("WORKS")
"""


@pytest.mark.slow
def test_no_file_is_left_that_runs_as_its_owner_whoever_starts_it(jail: Jail) -> None:
    code, output = run(
        jail, f"cp /bin/true c; chmod u+s c; install -m 4755 /bin/true i; python3 -c '{_MODES}'"
    )
    assert (code, output.splitlines()[-1]) == (0, "WORKS")
    modes = {path.name: path.stat().st_mode for path in jail.policy.workspace.iterdir() if path.is_file()}
    assert {name for name, mode in modes.items() if mode & 0o6000} == set()
