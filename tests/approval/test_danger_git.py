"""What is said of what git does."""

from __future__ import annotations

from tests.approval.test_faults import judge
from tests.support import each


@each(
    ("command", "level", "reasons"),
    [
        ("git -c user.name=x log", "normal", ("an option before git's verb can change what it does",)),
        ("git -c core.pager=x log", "dangerous", ("git is told to run another program",)),
        ("git -C sub -c alias.x=y status", "dangerous", ("git is told to run another program",)),
        ("git -C $X status", "dangerous", ("can't tell which repository's settings git follows",)),
        ("git --config-env=a.b=C log", "dangerous", ("git is told to run another program",)),
        ("git --config-env a.b=C log", "dangerous", ("git is told to run another program",)),
        (
            "git --exec-path=/x log",
            "dangerous",
            ("git is told to run another program", "git may write outside the workspace: --exec-path=/x"),
        ),
        ("git --exec-path log", "normal", ("an option before git's verb can change what it does",)),
        ("git --namespace a push", "dangerous", ("git push: sends commits to another machine",)),
        ("git --work-tree . push", "dangerous", ("git push: sends commits to another machine",)),
        ("git", "normal", ()),
        ("git -c", "normal", ("an option before git's verb can change what it does",)),
        ("git $X", "dangerous", ("can't tell what git does",)),
        ("git clone ext::x", "dangerous", ("git is told to run another program",)),
        ("git clone -c core.pager=x a", "dangerous", ("git is told to run another program",)),
        ("git clone -ccore.pager=x a", "dangerous", ("git is told to run another program",)),
        ("git clone --config=core.pager=x a", "dangerous", ("git is told to run another program",)),
        ("git clone -c user.name=x a", "normal", ()),
        ("git fetch ext::x", "dangerous", ("git is told to run another program",)),
        ("git config core.pager x", "dangerous", ("git is told to run another program",)),
        ("git config user.name x", "normal", ()),
        ("git config --get core.pager", "safe", ()),
        ("git push", "dangerous", ("git push: sends commits to another machine",)),
        (
            "git push -f",
            "dangerous",
            (
                "git push: overwrites or deletes what others may have",
                "git push: sends commits to another machine",
            ),
        ),
        ("git reset --hard", "dangerous", ("git reset: throws away uncommitted work",)),
        ("git reset x", "normal", ()),
        ("git clean -n", "safe", ()),
        ("git clean -fn", "normal", ()),
        ("git clean -f", "dangerous", ("git clean: deletes files that git does not know",)),
        ("git clean --dry-run -f", "normal", ()),
        ("git stash drop", "dangerous", ("git stash: deletes stashed work",)),
        ("git stash", "normal", ()),
        ("git branch -D x", "dangerous", ("git branch: deletes or overwrites a branch",)),
        ("git branch x", "normal", ()),
        ("git gc", "normal", ()),
        ("git gc --prune", "dangerous", ("git gc: deletes what could still be recovered",)),
        *(
            (f"git {text}", "dangerous", (f"git {text.split()[0]}: throws away uncommitted work",))
            for text in (
                "checkout -- x",
                "checkout v1 -q f",
                "read-tree -um HEAD",
                "submodule -q update -f",
                "worktree remove -ff x",
            )
        ),
        ("git remote -v remove x", "dangerous", ("git remote: forgets a remote and its branches",)),
        ("git send-pack x", "dangerous", ("git send-pack: sends commits to another machine",)),
        ("git subtree push x", "dangerous", ("git-subtree push: may change what nobody can bring back",)),
        ("git subtree add x", "normal", ()),
        ("git submodule update --init --filter=blob:none", "normal", ()),
        ("git tag -d x", "dangerous", ("git tag: deletes or overwrites a tag",)),
        ("git rebase x", "dangerous", ("git rebase: rewrites history",)),
        ("git rebase --abort", "normal", ()),
        ("git prune", "dangerous", ("git prune: deletes what could still be recovered",)),
        ("git credential fill", "dangerous", ("git credential: reads or changes stored passwords",)),
    ],
)
def test_what_git_does_is_told_with_its_reasons(command: str, level: str, reasons: tuple[str, ...]) -> None:
    risk = judge(command)
    assert (risk.level, risk.reasons) == (level, reasons)
