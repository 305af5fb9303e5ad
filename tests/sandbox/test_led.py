"""What makes a person's git run something is protected also where it is not the repository's own name: each
case is prepared, attacked in a jail of each engine, and then a person's git goes on.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import made_jail, run
from whet.sandbox.git_files import find_execution_paths

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")

_WHO = "git -c user.name=a -c user.email=b"
_MONITOR = r"printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch ran #\n'"
_SCRIPT = r"printf '#!/bin/sh\ntouch \"$RAN\"\n'"
_SUB = f"git init -q sub; {_WHO} -C sub commit -q --allow-empty -m x; "
# What was there before, what the command does, what a person does after it; each would make the file `ran`.
CASES: dict[str, tuple[str, str, str]] = {
    "a second working tree's repository": (
        "git worktree add -q ../other -b o",
        f"cp -r .git evil; {_MONITOR} > evil/config; echo ../../../evil > .git/worktrees/other/commondir",
        "cd ../other && git status",
    ),
    "a second working tree's settings": (
        "git worktree add -q ../other -b o; git config extensions.worktreeConfig true",
        f"{_MONITOR} > .git/worktrees/other/config.worktree",
        "cd ../other && git status",
    ),
    "a repository in a folder": (_SUB, f"{_MONITOR} >> sub/.git/config", "cd sub && git status"),
    "a hook in a folder": (
        _SUB,
        f"{_SCRIPT} > sub/.git/hooks/pre-commit; chmod +x sub/.git/hooks/pre-commit",
        f"cd sub && {_WHO} commit -q --allow-empty -m y",
    ),
    "a new repository in a folder": ("", f"{_SUB} {_MONITOR} > sub/.git/config", "cd sub && git status"),
    "a repository that a new file names": (
        "",
        f"mkdir sub; cp -r .git evil; {_MONITOR} > evil/config; echo gitdir: ../evil > sub/.git",
        "cd sub && git status",
    ),
    "core.hooksPath": (
        "mkdir .husky; git config core.hooksPath .husky/_",
        f"mkdir -p .husky/_; {_SCRIPT} > .husky/_/pre-commit; chmod +x .husky/_/pre-commit",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "core.hooksPath, a file beside it": (
        "mkdir -p .husky/_; git config core.hooksPath .husky/_; "
        r"printf '#!/bin/sh\n. .husky/pre-commit\n' > .husky/_/pre-commit;"
        " chmod +x .husky/_/pre-commit; touch .husky/pre-commit",
        f"{_SCRIPT} > .husky/pre-commit",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "include.path": (
        "git config include.path ../.shared; touch .shared",
        f"{_MONITOR} > .shared",
        "git status",
    ),
    "what an included file names": (
        "git config include.path ../.shared; echo true > m.sh; chmod +x m.sh;"
        r" printf '[core]\n\tfsmonitor = ./m.sh\n' > .shared",
        f"{_SCRIPT} > m.sh",
        "git status",
    ),
    "a program in a shell's text": (
        "echo true > m.sh; chmod +x m.sh; git config core.fsmonitor \"sh -c 'exec ./m.sh' #\"",
        f"{_SCRIPT} > m.sh",
        "git status",
    ),
    "a hook that is a link": (
        "mkdir hk; echo true > hk/h; chmod +x hk/h; ln -s ../../hk/h .git/hooks/pre-commit",
        f"{_SCRIPT} > hk/h",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "a folder of hooks that is a link": (
        "mkdir hk; rm -rf .git/hooks; ln -s ../hk .git/hooks",
        f"{_SCRIPT} > hk/pre-commit; chmod +x hk/pre-commit",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "a hook with a second name": (
        "mkdir hk; echo true > hk/h; chmod +x hk/h; ln hk/h .git/hooks/pre-commit",
        f"{_SCRIPT} > hk/h",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "settings with a second name": ("ln .git/config cfg", f"{_MONITOR} >> cfg", "git status"),
    "a repository by a link": (
        "mv .git .repo; ln -s .repo .git",
        f"mkdir -p .repo/hooks; {_SCRIPT} > .repo/hooks/pre-commit; chmod +x .repo/hooks/pre-commit",
        f"{_WHO} commit -q --allow-empty -m y",
    ),
    "settings by a link": ("mv .git .repo; ln -s .repo .git", f"{_MONITOR} >> .repo/config", "git status"),
    "another link to a repository": (
        "mv .git .repo; ln -s .repo .git",
        f"cp -r .repo evil; {_MONITOR} >> evil/config; rm .git; ln -s evil .git",
        "git status",
    ),
    "a filter": (
        "echo cat > f.sh; chmod +x f.sh; git config filter.f.clean 'sh ./f.sh %f';"
        " echo '* filter=f' > .gitattributes",
        f"{_SCRIPT} > f.sh",
        "touch a.txt; git add -A",
    ),
    "a diff program": (
        "echo true > d.sh; chmod +x d.sh; git config diff.external ./d.sh",
        f"{_SCRIPT} > d.sh; echo z >> a.txt",
        "git diff",
    ),
    "settings included from the repository's own folder": (
        "git config -f .git/more user.nick x; git config include.path more",
        "git config -f .git/more core.fsmonitor 'touch ran;:'",
        "git status",
    ),
    "hooks in the repository's own folder": (
        "mkdir .git/own; git config core.hooksPath .git/own",
        f"{_SCRIPT} > .git/own/pre-commit; chmod +x .git/own/pre-commit",
        f"touch b.txt; git add -A; {_WHO} commit -qm y",
    ),
    "an alias": (
        "echo true > s.sh; chmod +x s.sh; git config alias.st '!./s.sh'",
        f"{_SCRIPT} > s.sh",
        "git st",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_a_persons_git_runs_can_not_be_changed(case: EngineCase, name: str, tmp_path: Path) -> None:
    before, attack, after = CASES[name]
    ran = tmp_path / "ran"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RAN": str(ran)}

    def person(text: str) -> None:
        found = text.replace("touch ran", f"touch {ran}")
        subprocess.run(
            ["bash", "-c", found], cwd=tmp_path / "ws", env=environment, capture_output=True, check=False
        )

    (tmp_path / "ws").mkdir()
    person(f"git init -q; echo a > a.txt; git add -A; {_WHO} commit -qm x; {before}")
    with made_jail(case, tmp_path) as jail:
        run(jail, "true")
        run(jail, attack.replace("touch ran", f"touch {ran}").replace("$RAN", str(ran)))
    person(after)
    assert not ran.exists()


@pytest.mark.slow
def test_the_attacks_work_where_nothing_holds_them(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RAN": str(ran)}
    harmless: list[str] = []
    for name, (before, attack, after) in CASES.items():
        ran.unlink(missing_ok=True)
        workspace = tmp_path / name.replace(" ", "-") / "ws"
        workspace.mkdir(parents=True)
        text = f"git init -q; echo a > a.txt; git add -A; {_WHO} commit -qm x\n{before}\n{attack}\n{after}"
        found = text.replace("touch ran", f"touch {ran}").replace("$RAN", str(ran))
        subprocess.run(
            ["bash", "-c", found], cwd=workspace, env=environment, capture_output=True, check=False
        )
        harmless += [] if ran.exists() else [name]
    assert harmless == []


@pytest.mark.slow
def test_git_goes_on_working_with_trees_and_repositories_below(tmp_path: Path) -> None:
    with made_jail(ENGINES[0], tmp_path) as jail:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path / "ws", check=True)
        text = (
            f"{_WHO} commit -q --allow-empty -m x && git worktree add -q tree -b t && git clone -q . copy"
            f" && {_SUB} cd tree && {_WHO} commit -q --allow-empty -m y && cd ../copy && git log -1"
        )
        assert run(jail, text)[0] == 0
        again = (
            "cd tree && git status && cd ../sub && git status && cd ../copy && git fetch && git worktree list"
        )
        assert run(jail, again)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_submodule_as_the_workspace_has_its_repository(case: EngineCase, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-c", "protocol.file.allow=always"]
    commit = ["commit", "-q", "--allow-empty", "-m", "x"]
    for words in (["init", "-q"], commit, ["submodule", "add", "-q", str(tmp_path), "ws"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    with made_jail(case, tmp_path) as jail:
        text = f"echo b > b && git add b && {_WHO} commit -qm b && git status -s"
        assert run(jail, text) == (0, "")
        assert run(jail, f"cat {tmp_path}/.git/config")[0] != 0
        run(jail, "git config core.fsmonitor x")  # refused, or taken back when it ends
    assert "fsmonitor" not in (tmp_path / ".git/modules/ws/config").read_text()


def test_settings_that_name_no_program_lead_nowhere(tmp_path: Path) -> None:
    tree = tmp_path.resolve()
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    for name in ("main", "ignored", "note"):
        (tree / name).write_text("")
    for key, value in {
        "remote.o.url": "./main",
        "branch.main.merge": "main",
        "core.excludesFile": "ignored",
        "commit.template": "note",
        "core.editor": "vim -f",
        "alias.l": "log --oneline main",
    }.items():
        subprocess.run(["git", "config", key, value], cwd=tree, check=True)
    assert find_execution_paths(tree, tree / ".git") == [tree / "main"]  # an alias may name a program by it
