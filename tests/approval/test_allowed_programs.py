"""An allow rule for a program covers no other program that it is told to run, and no file of an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.approval.test_gate import Bench, Someone

GIT_LINES = (
    "git log --output=F", "git log --outp=F", "git diff --output F", "git log -p --ext-diff",
    "git -c alias.z='!touch F' z", "git -c core.pager=x log", "git -c core.fsmonitor=./x status",
    "git -c user.name=x commit -m y", "git --exec-path=. log", "git --config-env=core.pager=X log",
    "git grep -O./x hi", "git rebase --exec=./x HEAD", "git rebase -ix./x HEAD", "git bisect run ./x",
    "git submodule foreach ./x", "git difftool -x ./x", "git filter-branch --tree-filter ./x",
    "git archive --remote=. --exec=./x HEAD", "git fetch --upload-pack=./x .",
    "git push --receive-pack=./x . HEAD", "GIT_EDITOR=./x git commit",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0=x git log",
    "GIT_TRACE=$PWD/F git log", "HOME=$PWD git z",
)  # fmt: skip


@pytest.mark.parametrize("line", GIT_LINES)
def test_an_allow_rule_for_git_covers_no_other_program_and_no_file_of_an_option(
    tmp_path: Path, line: str
) -> None:
    rules = ["terminal(git log *)", "terminal(git diff *)", "terminal(git *)"]
    bench = Bench(tmp_path, Someone("no"), allow=rules)
    assert bench.sh(line).verdict == "deny" and len(bench.person.asked) == 1


@pytest.mark.parametrize("line", ["git log --output=F", "git fetch --upload-pack=./x ."])
def test_an_allow_rule_that_spells_a_git_line_out_covers_it(tmp_path: Path, line: str) -> None:
    assert Bench(tmp_path, Someone(), allow=[f"terminal({line})"]).sh(line).verdict == "allow"


@pytest.mark.parametrize("line", ["git commit -m x", "git push", "git -C sub fetch", "git --no-pager stash"])
def test_an_allow_rule_for_git_covers_its_verbs(tmp_path: Path, line: str) -> None:
    (tmp_path / "proj/sub").mkdir(parents=True)
    assert Bench(tmp_path, Someone(), allow=["terminal(git *)"]).sh(line).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("make *", "make SHELL=./x all"),
        ("tar *", "tar xf a.tar --to-command=./x"),
        ("go test *", "go test -exec=./x ./..."),
        ("npm install *", "npm install --script-shell=./x"),
    ],
)
def test_an_allow_rule_for_a_program_covers_no_other_that_it_is_told_to_run(
    tmp_path: Path, rule: str, line: str
) -> None:
    bench = Bench(tmp_path, Someone("no"), allow=[f"terminal({rule})"])
    assert bench.sh(line).verdict == "deny" and len(bench.person.asked) == 1


def test_a_yes_for_the_session_to_an_option_that_writes_covers_the_same_line_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session", "no"))
    assert bench.sh("git log --output=F").verdict == "allow"
    assert bench.sh("git log --output=F").verdict == "allow"
    assert bench.sh("git log --output=G").verdict == "deny"
    assert len(bench.person.asked) == 2
