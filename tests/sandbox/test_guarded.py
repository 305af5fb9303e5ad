"""What the guard takes back where a command makes it hard to see, with each engine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import made_jail, run
from whet.sandbox.jail import Jail, JailedCommand, Started
from whet.tools.shell import command_environment


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
        for place in (".git/hooks", ".git/config", ".vscode")
        for path in (workspace / place, *(workspace / place).rglob("*"))
    }


HIDDEN = {
    "among hundreds": "for i in $(seq 400); do echo > {}/0$i; done; echo x > {}/pre-commit",
    "below hundreds": "mkdir {}/0 && for i in $(seq 400); do echo > {}/0/$i; done; echo x > {}/z",
    "beside a link to no text": "ln -s $'\\xff' {}/0; echo x > {}/z",
    "beside a name that is no text": "touch {}/$'\\xff'; echo x > {}/z",
    "beside a folder nobody may read": "mkdir {}/0 && echo x > {}/0/z && chmod 0 {}/0; echo x > {}/z",
    "beside a pipe": "mkfifo {}/0; echo x > {}/z",
    "below a long path": "(cd {} && for i in $(seq 30); do n=$(printf %0200d 0); mkdir $n; cd $n; done);"
    " echo x > {}/z",
    "in place of a link": "ln -sf ../config {}/kept.sample; echo x > {}/z",
    "through a link": "mv {} away; mkdir away2; ln -s $PWD/away2 {}; echo x > away2/pre-commit",
    "in a folder of another mode": "chmod 777 {}; echo x > {}/pre-commit",
}


@pytest.mark.parametrize("place", [".git/hooks", ".vscode"])
@pytest.mark.parametrize("how", HIDDEN)
def test_what_is_hidden_from_the_look_is_taken_back_too(jail: Jail, how: str, place: str) -> None:
    workspace = jail.policy.workspace
    before = guarded(workspace)
    run(jail, "true")
    run(jail, HIDDEN[how].replace("{}", place))
    assert guarded(workspace) == before
    assert not (workspace / place).is_symlink()


def spawned(jail: Jail, text: str) -> Started:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        inside = jail.environment(command_environment(os.environ))
        return jail.spawn(
            JailedCommand(["bash", "-c", text], inside, jail.policy.workspace), (null, null, null)
        )
    finally:
        os.close(null)


@pytest.mark.parametrize("name", [".envrc", ".mcp.json", ".vscode/tasks.json", ".git/config.worktree"])
@pytest.mark.parametrize("first", ["longer", "shorter"])
def test_a_command_that_begins_with_what_another_made_does_not_bring_it_again(
    jail: Jail, name: str, first: str
) -> None:
    """The first makes it and waits, a second begins and waits; either may end first."""
    place = jail.policy.workspace / name
    before = place.read_bytes() if place.exists() else None
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
    assert (place.read_bytes() if place.exists() else None) == before


LATER = """
late='touch up; until [ -e go ]; do sleep 0.02; done; mkdir -p .zed; echo x > {}; touch did'
setsid sh -c "$late" &> /dev/null &
until [ -e up ]; do sleep 0.02; done
"""


@pytest.mark.parametrize("name", [".envrc", ".zed/tasks.json", ".git/config.worktree", ".vscode/tasks.json"])
@pytest.mark.parametrize("then", ["another command", "nothing", "the end"])
def test_what_a_command_left_running_changes_after_its_end_is_taken_back(
    jail: Jail, name: str, then: str
) -> None:
    workspace = jail.policy.workspace
    place = workspace / name
    before = place.read_bytes() if place.exists() else None
    run(jail, LATER.replace("{}", name))
    (workspace / "go").touch()
    while not (workspace / "did").exists():
        pass
    if then == "another command":
        run(jail, "true")
    elif then == "the end":
        jail.close()
    deadline = time.monotonic() + 20
    while (place.read_bytes() if place.exists() else None) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (place.read_bytes() if place.exists() else None) == before
