"""Names in a jail that no command may change: a repository's settings and what editors run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.jails import run
from whet.sandbox.jail import Jail, JailedCommand
from whet.tools.shell import command_environment

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


def test_protected_names_stay_as_they_are(jail: Jail) -> None:
    workspace = jail.policy.workspace
    subprocess.run(["git", "init", "-q", workspace], check=True)
    before = (workspace / ".git/config").read_bytes()
    run(
        jail,
        "echo x > .git/hooks/pre-commit; git config core.pager evil; mkdir .vscode; echo {} > .vscode/t.json",
    )
    run(jail, "mv .git .other; mkdir .git; echo x > .git/config; true")
    assert (workspace / ".git/config").read_bytes() == before
    assert not (workspace / ".git/hooks/pre-commit").exists()
    assert not (workspace / ".vscode").exists()


@pytest.mark.slow
@pytest.mark.parametrize("linked", [True, False])
def test_what_leads_to_a_repository_elsewhere_stays(jail: Jail, linked: bool) -> None:
    """A second working tree has a file for its repository; a link is as good."""
    workspace = jail.policy.workspace
    git, other = workspace / ".git", workspace / "other"
    if linked:
        git.symlink_to("kept")
        (workspace / "kept").mkdir()
    else:
        git.write_text("gitdir: kept\n")
    state = (git.is_symlink(), git.lstat().st_size)
    run(jail, "true")
    assert (git.is_symlink(), git.lstat().st_size) == state
    run(jail, "mkdir other; rm -f .git; ln -s other .git || echo gitdir: other > .git; true")
    assert (git.is_symlink(), git.lstat().st_size) == state
    run(jail, "rm -f .git && mkdir .git && echo x > .git/config; true")
    assert (git.is_symlink(), git.lstat().st_size) == state and other.is_dir()


@pytest.mark.slow
def test_a_new_repository_is_protected_from_its_next_command_on(jail: Jail) -> None:
    code, text = run(
        jail, "git init -q . && touch a && git add a && git -c user.name=a -c user.email=b commit -qm c"
    )
    assert (code, text) == (0, "")
    run(jail, "git config core.fsmonitor evil; echo x > .git/hooks/post-commit")
    workspace = jail.policy.workspace
    assert "fsmonitor" not in (workspace / ".git/config").read_text()
    assert not (workspace / ".git/hooks/post-commit").exists()


EVIL = (
    "git config core.fsmonitor evil; echo evil > .vscode/tasks.json; echo evil > .git/hooks/pre-commit; true"
)


def _replaced_by_a_person(workspace: Path) -> None:
    """What a person's own git, editor and clean-up do beside a session: other files under the same names."""
    subprocess.run(["git", "config", "user.name", "me"], cwd=workspace, check=True)
    for name in (".vscode", ".git/hooks"):
        (workspace / name).rename(workspace / f"{name}.old")
        (workspace / name).mkdir()
    (workspace / ".vscode" / "tasks.json").write_text("{}")


def _is_evil(workspace: Path) -> list[str]:
    files = (".git/config", ".vscode/tasks.json", ".git/hooks/pre-commit")
    return [
        file for file in files if (workspace / file).exists() and "evil" in (workspace / file).read_text()
    ]


@pytest.mark.slow
def test_protected_names_hold_where_a_person_has_put_other_files_in_their_place(jail: Jail) -> None:
    workspace = jail.policy.workspace
    subprocess.run(["git", "init", "-q", workspace], check=True)
    (workspace / ".vscode").mkdir()
    run(jail, "true")
    _replaced_by_a_person(workspace)
    run(jail, EVIL)
    assert _is_evil(workspace) == []
    assert "name = me" in (workspace / ".git" / "config").read_text()


@pytest.mark.slow
def test_they_hold_beside_a_command_that_runs_meanwhile(jail: Jail) -> None:
    workspace = jail.policy.workspace
    subprocess.run(["git", "init", "-q", workspace], check=True)
    (workspace / ".vscode").mkdir()
    inside = jail.environment(command_environment(os.environ))
    null = os.open(os.devnull, os.O_RDWR)
    try:
        until = "until [ -e go ]; do sleep 0.02; done; "
        before = jail.spawn(
            JailedCommand(["bash", "-c", until + EVIL], inside, workspace), (null, null, null)
        )
        _replaced_by_a_person(workspace)
        run(jail, EVIL)  # no new launcher, which would end the other: what was made is taken back
        assert _is_evil(workspace) == []
        (workspace / "go").touch()
        before.wait(30)
        assert _is_evil(workspace) == []
        run(jail, EVIL)
        assert _is_evil(workspace) == []
    finally:
        os.close(null)
