"""What a sandboxed command leaves of git's stopped operations runs nothing when a person continues them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.jails import Jail, run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def repository(jail: Jail) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=jail.policy.workspace, check=True)


_NAMES = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
_PERSON = {"GIT_EDITOR": "true", **dict.fromkeys(_NAMES, "a")}
_COMMITS = (
    f"export GIT_EDITOR=true {'=a '.join(_NAMES)}=a;"
    " for t in 1 2 3; do echo $t > a; git add a; git commit -qm $t; done; git checkout -qb side HEAD~2;"
    " echo 4 > a; git commit -qam 4; echo b > b; git add b; git commit -qm 5;"
)
_PROGRAM = r" mkdir git-merge-..; printf '#!/bin/sh\ntouch ran\n' > git-merge-../x; chmod +x git-merge-../x;"
_EVIL = {
    "rebase": ("git rebase main; echo ../x > .git/rebase-merge/strategy", "rebase"),
    "cherry-pick": (
        r"git cherry-pick main~1 main; printf '[options]\n\tstrategy = ../x\n' > .git/sequencer/opts",
        "cherry-pick",
    ),
    "second setting": (
        r"git cherry-pick main~1 main; printf '[options]strategy=../x\n' > .git/sequencer/opts",
        "cherry-pick",
    ),
}


def _continue(workspace: Path, operation: str) -> None:
    """Continue an operation as a person does, outside of the sandbox, with the conflict resolved."""
    for line in (f"git add -A; git {operation} --continue",) * 3:
        subprocess.run(line, shell=True, cwd=workspace, env={**os.environ, **_PERSON}, check=False)


@pytest.mark.parametrize("how", _EVIL)
def test_an_operation_that_a_command_left_runs_no_strategy_of_it(jail: Jail, how: str) -> None:
    text, operation = _EVIL[how]
    run(jail, _COMMITS + _PROGRAM + text)
    _continue(jail.policy.workspace, operation)
    assert not (jail.policy.workspace / "ran").exists()


def test_second_working_trees_are_checked(jail: Jail) -> None:
    run(jail, f"{_COMMITS} git worktree add -q tree -b third; cd tree; {_PROGRAM} git rebase main;"
              " echo ../x > $(git rev-parse --git-dir)/rebase-merge/strategy")  # fmt: skip
    _continue(jail.policy.workspace / "tree", "rebase")
    assert not (jail.policy.workspace / "tree/ran").exists()


_HARMLESS = {
    "rebase": "git rebase -q -X patience -X rename-threshold=50% -s ort --signoff main",
    "rebase conflict": "git rebase -q -X patience --rerere-autoupdate main",
    "apply": "git rebase -q --apply main",
    "am": "git format-patch -q main; git checkout -q main; git am --3way -C1 --whitespace=fix 0001*",
    "cherry-pick": "git cherry-pick -x --strategy=ort -X patience --allow-empty main~1 main",
    "revert": "git checkout -q main; git revert HEAD~1 HEAD~2",
    "edit": "GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i HEAD~2",
    "squash": "GIT_SEQUENCE_EDITOR='sed -i 2s/^pick/squash/' git rebase -q -i --root --onto main~1",
}


@pytest.mark.parametrize("how", _HARMLESS)
def test_operations_with_harmless_options_stay_as_git_left_them(jail: Jail, how: str) -> None:
    listing = "find .git/rebase-merge .git/rebase-apply .git/sequencer -type f 2>&- | xargs md5sum | sort"
    _, printed = run(jail, f"{_COMMITS} {_HARMLESS[how]} >&2; {listing} >&1")
    files = [line for line in printed.splitlines() if " .git/" in line]
    after = subprocess.run(
        listing, shell=True, cwd=jail.policy.workspace, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert files and after == files
