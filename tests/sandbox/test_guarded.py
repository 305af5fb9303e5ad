"""What the guard takes back where a command makes it hard to see, with each engine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import made_jail, run
from whet.sandbox.guard import Guard
from whet.sandbox.jail import Jail, JailedCommand, Started
from whet.tools.shell import command_environment

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


@pytest.fixture(params=ENGINES, ids=str)
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jail]:
    case: EngineCase = request.param
    with made_jail(case, tmp_path) as made:
        git = made.policy.workspace / ".git"
        subprocess.run(["git", "init", "-q", str(git.parent)], check=True)
        (git.parent / ".vscode").mkdir()
        (git.parent / ".vscode" / "tasks.json").write_text("{}")
        (git / "hooks" / "kept.sample").symlink_to("nowhere")
        yield made


def guarded(workspace: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(workspace)): path.read_bytes() if path.is_file() else b""
        for text in (".git/hooks", ".git/config", ".vscode")
        for path in (workspace / text, *(workspace / text).rglob("*"))
    }


HIDDEN = {
    "among hundreds": "for i in $(seq 400); do echo > {}/0$i; done; echo x > {}/pre-commit",
    "below hundreds": "mkdir {}/0 && for i in $(seq 400); do echo > {}/0/$i; done; echo x > {}/z",
    "beside a link to no text": "ln -s $'\\xff' {}/0; echo x > {}/z",
    "beside a name that is not text": "touch {}/$'\\xff'; echo x > {}/z",
    "beside a folder nobody may read": "mkdir {}/0 && echo x > {}/0/z && chmod 0 {}/0; echo x > {}/z",
    "beside a pipe": "mkfifo {}/0; echo x > {}/z",
    "below a long path": "(cd {} && for i in $(seq 30); do n=$(printf %0200d 0); mkdir $n; cd $n; done);"
    " echo x > {}/z",
    "in place of a link": "ln -sf ../config {}/kept.sample; echo x > {}/z",
    "through a link": "mv {} away; mkdir away2; ln -s $PWD/away2 {}; echo x > away2/pre-commit",
    "in a folder of another mode": "chmod 777 {}; echo x > {}/pre-commit",
}


@pytest.mark.slow
@pytest.mark.parametrize("place", [".git/hooks", ".vscode"])
@pytest.mark.parametrize("how", HIDDEN)
def test_what_is_hidden_from_the_look_is_taken_back_too(jail: Jail, how: str, place: str) -> None:
    workspace = jail.policy.workspace
    before = guarded(workspace)
    run(jail, "true")
    run(jail, HIDDEN[how].replace("{}", place))
    assert guarded(workspace) == before
    assert not (workspace / place).is_symlink()


@pytest.mark.slow
def test_a_large_file_of_a_folder_that_was_copied_over_itself_stays(jail: Jail) -> None:
    large = jail.policy.workspace / ".vscode" / "index"
    large.write_bytes(bytes(range(256)) * 8_000)
    run(jail, "mv .vscode z; cp -r z .vscode; echo evil > .vscode/tasks.json")
    assert large.read_bytes() == bytes(range(256)) * 8_000
    assert (large.parent / "tasks.json").read_text() == "{}"


def spawned(jail: Jail, text: str) -> Started:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        inside = jail.environment(command_environment(os.environ))
        return jail.spawn(
            JailedCommand(["bash", "-c", text], inside, jail.policy.workspace), (null, null, null)
        )
    finally:
        os.close(null)


@pytest.mark.slow
@pytest.mark.parametrize("name", [".envrc", ".mcp.json", ".vscode/tasks.json", ".git/config.worktree"])
@pytest.mark.parametrize("first", ["longer", "shorter"])
def test_a_command_that_begins_with_what_another_made_does_not_bring_it_again(
    jail: Jail, name: str, first: str
) -> None:
    """The first makes it and waits, a second begins and waits; either may end first."""
    path = jail.policy.workspace / name
    before = path.read_bytes() if path.exists() else None
    makes = spawned(jail, f"echo evil > {name}; touch made; until [ -e one ]; do sleep 0.02; done")
    while not (jail.policy.workspace / "made").exists() and makes.poll() is None:
        pass
    other = spawned(jail, "touch begun; until [ -e two ]; do sleep 0.02; done")
    while not (jail.policy.workspace / "begun").exists():
        pass
    pairs = [(makes, "one"), (other, "two")]
    for process, sign in pairs if first == "shorter" else pairs[::-1]:
        (jail.policy.workspace / sign).touch()
        process.wait(20)
    assert (path.read_bytes() if path.exists() else None) == before


LATER = """
late='touch up; until [ -e go ]; do sleep 0.02; done; mkdir -p .zed; echo x > {}; touch did'
setsid sh -c "$late" &> /dev/null &
until [ -e up ]; do sleep 0.02; done
"""


def _content(path: Path) -> bytes | None:
    """Return a file's bytes, or None if it does not exist: the guard may remove it at any moment."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", [".envrc", ".zed/tasks.json", ".git/config.worktree", ".vscode/tasks.json"])
@pytest.mark.parametrize("then", ["another command", "nothing", "the end"])
def test_what_a_command_left_running_changes_after_its_end_is_taken_back(
    jail: Jail, name: str, then: str
) -> None:
    workspace = jail.policy.workspace
    path = workspace / name
    before = _content(path)
    run(jail, LATER.replace("{}", name))
    (workspace / "go").touch()
    while not (workspace / "did").exists():
        pass
    if then == "another command":
        run(jail, "true")
    elif then == "the end":
        jail.close()
    deadline = time.monotonic() + 20
    while _content(path) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _content(path) == before


@pytest.mark.fast_rows("bubblewrap-", "Landlock-mkfifo")
@pytest.mark.parametrize(
    "how", ["mkfifo .git/index", "ln -s /dev/urandom .git/index", "truncate -s 1T .git/config"]
)
def test_no_file_holds_up_who_looks_after_names(jail: Jail, how: str) -> None:
    run(jail, f"rm -f .git/index; {how}")
    assert run(jail, "echo again") == (0, "again\n")


@pytest.mark.slow
def test_a_foreign_repository_that_a_file_names_is_left_alone(jail: Jail, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    subprocess.run(["git", "init", "-q", str(foreign)], check=True)
    subprocess.run(["git", "-C", str(foreign), "config", "core.pager", "less"], check=True)
    before = (foreign / ".git" / "config").read_bytes()
    who = "git -c user.name=a -c user.email=b"
    run(jail, f"git init -q sub && {who} -C sub commit -q --allow-empty -m x && git add sub")
    run(jail, f"rm -rf sub/.git; echo 'gitdir: {foreign}/.git' > sub/.git")
    run(jail, "true")
    assert (foreign / ".git" / "config").read_bytes() == before


@pytest.mark.slow
def test_links_that_come_and_go_lead_the_guard_nowhere(jail: Jail, tmp_path: Path) -> None:
    """What changes folders for links while the guard works; neither reads it outside, nor writes there."""
    outside = tmp_path / "outside"
    (outside / "in").mkdir(parents=True)
    for name in ("key", "in/key"):
        (outside / name).write_text("KEY")
    workspace = jail.policy.workspace
    (workspace / ".zed" / "in").mkdir(parents=True)
    (workspace / ".zed" / "key").write_text("mine")
    (workspace / "link").symlink_to(outside)
    guard, ended = Guard(jail.policy, jail.plan.aside), threading.Event()

    def exchange() -> None:
        libc = ctypes.CDLL(None)
        names = [os.fsencode(workspace / name) for name in (".zed", "link")]
        while not ended.is_set():
            libc.renameat2(-100, names[0], -100, names[1], 2)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(300):
            was = guard.record()
            held = [
                recorded_file.data
                for shape in was.shapes.values()
                for recorded_file in (shape or {}).values()
            ]
            assert b"KEY" not in held
            guard.restore(was, ())
            guard.forget(was)
    finally:
        ended.set()
        thread.join()
    assert sorted(path.name for path in outside.rglob("*")) == ["in", "key", "key"]
    assert (outside / "key").read_text() == "KEY"


_BARE = "[core]\\n\\trepositoryformatversion=0\\n\\tbare=false\\n\\tworktree={}\\n\\tfsmonitor=touch {} #\\n"
_TOP, _SUB = "git init -q --bare b && cp -r b/. .", "git init -q --bare sub"
AS_A_REPOSITORY = {
    "at once": (f"{_TOP}; printf '{{}}' > config; rm .git/HEAD",),
    "settings first": (f"{_TOP}; rm HEAD; printf '{{}}' > config", "cp b/HEAD .", "rm .git/HEAD"),
    "settings last": (f"{_TOP}; rm .git/HEAD", "printf '{}' > config"),
    "another's": (
        "git init -q --bare b; printf '{}' > b/config",
        "mv b/HEAD .; rm -r .git; echo b > commondir",
    ),
    "without .git": ("rm -rf .git", f"{_TOP}; printf '{{}}' > config"),
    "a folder": (f"{_SUB}; printf '{{}}' > sub/config",),
    "a folder, later": (_SUB, "printf '{}' > sub/config"),
    "a link to a folder": ("git init -q sub; mv sub/.git g; printf '{}' > g/config; ln -s ../g sub/.git",),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", AS_A_REPOSITORY)
def test_no_folder_becomes_a_repository_that_runs_programs(jail: Jail, tmp_path: Path, how: str) -> None:
    workspace, ran = jail.policy.workspace, tmp_path / "ran"
    for step in AS_A_REPOSITORY[how]:
        tree = workspace / "sub" if "sub" in step else workspace
        run(jail, step.replace("{}", _BARE.replace("{}", str(tree), 1).replace("{}", str(ran), 1)))
    for folder in (workspace, workspace / "sub"):
        if folder.is_dir():  # as a person does there
            subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert not ran.exists()


def test_a_fresh_bare_repository_is_left_as_git_makes_it(jail: Jail) -> None:
    run(jail, "git init -q --bare sub && git clone -q --bare . other")
    run(jail, "true")
    assert (jail.policy.workspace / "sub" / "config").exists()
    assert (jail.policy.workspace / "other" / "config").exists()


@pytest.mark.slow
def test_a_submodules_files_are_said_to_lie_nowhere_else(jail: Jail, tmp_path: Path) -> None:
    who = "git -c user.name=a -c user.email=b -c protocol.file.allow=always"
    config = ".git/modules/{}/config"
    add = f"git init -q lib; {who} -C lib commit -q --allow-empty -m x; {who} submodule add -q ./lib {{}}"
    run(jail, f"{add.replace('{}', 'good')}; {who} submodule add -q ./lib evil; cat {config.format('good')}")
    run(jail, f"{add.replace('{}', 'bad')}; git config -f {config.format('bad')} core.worktree {tmp_path}")
    assert (jail.policy.workspace / config.format("good")).exists()
    assert not (jail.policy.workspace / config.format("bad")).exists()


@pytest.mark.slow
def test_a_name_that_comes_and_goes_keeps_no_jail_from_starting(jail: Jail) -> None:
    folder, ended = jail.policy.workspace / ".zed", threading.Event()

    def flip() -> None:
        while not ended.is_set():
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(12):
            jail.open()
            jail.close()
    finally:
        ended.set()
        thread.join()


_PLANTED = (
    "d=.git/rebase-merge; mkdir -p $d; h=$(git rev-parse HEAD); git symbolic-ref HEAD > $d/head-name;"
    " echo $h > $d/onto; echo $h > $d/orig-head; : > $d/done; : > $d/interactive;"
)
_STEPS = {
    "plain": "printf 'exec touch ran\n' > $d/git-rebase-todo",
    "short": "printf '  x touch ran\n' > $d/git-rebase-todo",
    "a link": "printf 'exec touch ran\n' > steps; ln -s $PWD/steps $d/git-rebase-todo",
    "a linked folder": "printf 'exec touch ran\n' > $d/git-rebase-todo; mv $d away; ln -s $PWD/away $d",
    "a long file": "{ yes '# x' | head -c 2000000; echo; echo exec touch ran; } > $d/git-rebase-todo",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", _STEPS)
def test_a_rebase_that_a_command_left_runs_no_commands_of_it(jail: Jail, how: str) -> None:
    workspace = jail.policy.workspace
    commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
    subprocess.run(commit.split(), cwd=workspace, check=True)
    code, printed = run(jail, f"{_PLANTED} {_STEPS[how]}")
    assert code == 0, printed
    subprocess.run(["git", "rebase", "--continue"], cwd=workspace, check=False, capture_output=True)
    assert not (workspace / "ran").exists()


@pytest.mark.slow
def test_a_stopped_rebase_goes_on_in_the_next_command(jail: Jail) -> None:
    workspace = jail.policy.workspace
    names = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
    person = {**os.environ, "GIT_EDITOR": "true", **dict.fromkeys(names, "a")}
    who = f"export GIT_EDITOR=true {'=a '.join(names)}=a"
    text = (
        f"{who}; for t in 1 2 3; do echo $t > a; git add a; git commit -qm $t; done;"
        " git checkout -qb side HEAD~2; echo 4 > a; git commit -qam 4; echo b > b; git add b;"
        " git commit -qm 5; git rebase -q -"
    )
    assert run(jail, text)[0] == 1
    code, printed = run(
        jail, f"{who}; echo 4 > a; git add a; git rebase --continue; git rev-list HEAD | wc -l"
    )
    assert (code, printed.split()[-1]) == (0, "5")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=workspace, env=person, check=False, capture_output=True)

    git("rebase", "-q", "-x", "false", "-x", "touch own", "HEAD~1")
    run(jail, "echo 'exec touch ran' >> .git/rebase-merge/git-rebase-todo")
    git("rebase", "--continue")
    assert (workspace / "own").exists() and not (workspace / "ran").exists()
    assert "rebase-merge" not in os.listdir(workspace / ".git")
