"""Repositories whose settings name programs: nothing of them runs unasked, in any mode, with the real git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.approval.git_config import parse_git_config
from whet.approval.repository import find_risky_settings, remote_urls
from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse
from whet.tools.shell import command_environment

READING = (
    *("status", "diff", "diff HEAD~1", "log -p", "show", "blame a.txt", "ls-files", "describe --always"),
    *("grep -n o", "stash list", "diff --submodule=diff", "log --oneline", "rev-parse HEAD"),
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository with a submodule, hooks, attributes that name drivers; a program that leaves a trace."""
    folder = tmp_path / "repo"
    folder.mkdir()
    program = tmp_path / "evil"
    program.write_text(f'#!/bin/sh\necho "$0" >> {tmp_path}/ran\n[ -f "$1" ] && cat "$1"\nexit 0\n')
    program.chmod(0o755)
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitattributes").write_text("*.txt diff=x filter=y\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "1")
    (folder / "a.txt").write_text("two\n")
    git(folder, "commit", "-qam", "2")
    inner = folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "b.txt").write_text("one\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "1")
    git(folder, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(folder, "commit", "-qm", "3")
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        (folder / ".git/hooks" / hook).write_bytes(program.read_bytes())
        (folder / ".git/hooks" / hook).chmod(0o755)
    (folder / "a.txt").write_text("six\n")
    (inner / "b.txt").write_text("six\n")
    return folder


def find_program_setting(folder: str, verb: str = "", *, reads: bool = True) -> str:
    return find_risky_settings(folder, verb, reads=reads)[0]


def git(path: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *who, *words], cwd=path, env=environment, check=True)


def unasked(path: Path) -> list[str]:
    scope = RiskScope(str(path), "/home/u", "/home/u/.whet", temp=())
    return [verb for verb in READING if analyse(f"git {verb}", str(path), scope).level == "safe"]


def ran(path: Path, verbs: list[str]) -> str:
    """Run what needs no question as `terminal` would; gives what left a trace."""
    trace = path.parent / "ran"
    for verb in verbs:
        os.utime(path / "a.txt")
        environment = {**command_environment(os.environ), "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(
            ["sh", "-c", f"git {verb}"], cwd=path, env=environment, capture_output=True, check=False
        )
        if trace.exists():
            return f"{verb}: {trace.read_text()}"
    return ""


def test_hooks_do_not_run_when_something_is_read(hostile: Path) -> None:
    verbs = unasked(hostile)
    assert len(verbs) == len(READING)
    assert ran(hostile, verbs) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        *("core.fsmonitor", "diff.external", "diff.x.textconv", "diff.x.command", "filter.y.clean"),
        *("filter.y.process", "core.pager", "pager.log", "gpg.program", "core.alternateRefsCommand"),
    ],
)
@pytest.mark.parametrize("where", ["", "inner", "included"])
def test_no_setting_of_a_repository_runs_a_program_unasked(hostile: Path, key: str, where: str) -> None:
    program = str(hostile.parent / "evil")
    if where == "included":
        git(hostile, "config", "-f", str(hostile / ".git/more"), key, program)
        git(hostile, "config", "include.path", "more")
    else:
        git(hostile / where, "config", key, program)
    assert ran(hostile, unasked(hostile)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["many", "deep"])
def test_the_last_of_many_submodules_is_looked_at(tmp_path: Path, shape: str) -> None:
    work = tmp_path / "work"
    names = [f"m{number:02}" for number in range(60)] if shape == "many" else ["m/m/m/m/m"]
    (work / names[-1]).mkdir(parents=True)
    git(work, "init", "-q")
    git(work / names[-1], "init", "-q")
    git(work / names[-1], "commit", "-qm", "1", "--allow-empty")
    folders = [work, *(work / "m" / "/".join(["m"] * n) for n in range(4))] if shape == "deep" else [work]
    for folder in reversed(folders):
        git(folder, "init", "-q")
        inner = "m" if shape == "deep" else names[-1]
        git(folder, "-c", "advice.addEmbeddedRepo=false", "add", inner)
        git(folder, "commit", "-qm", "1")
    for name in names[:-1]:
        blank = "160000,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391," + name
        git(work, "update-index", "--add", "--cacheinfo", blank)
    assert find_program_setting(str(work), "status") == "" or shape == "deep"
    git(work / names[-1], "config", "core.fsmonitor", "evil")
    assert find_program_setting(str(work), "status") != ""


def test_a_driver_is_named_in_the_question(hostile: Path) -> None:
    git(hostile, "config", "diff.x.textconv", "./evil")
    scope = RiskScope(str(hostile), "/home/u", "/home/u/.whet", temp=())
    risk = analyse("git diff", str(hostile), scope)
    assert risk.level == "dangerous"
    assert "diff.x.textconv=./evil" in risk.reasons[0]
    outside = hostile.parent
    assert analyse("git -C repo diff", str(outside), scope).level == "dangerous"
    assert analyse("cd repo && git diff", str(outside), scope).level == "dangerous"
    assert analyse("git --git-dir=repo/.git log", str(outside), scope).level == "dangerous"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("filter.y.clean", f"git-lfs clean -- %f{end}")
            for end in ("; evil", " | evil", " $(evil)", "\nevil")
        ),
        *(("filter.a=b.clean", "evil"), ("gpg.ssh.defaultKeyCommand", "evil"), ("imap.tunnel", "evil")),
        *(("hook.x.command", "evil"), ("gc.recentObjectsHook", "evil"), ("sendemail.smtpServer", "/evil")),
    ],
)
def test_a_setting_that_looks_like_a_harmless_one_is_found(hostile: Path, key: str, value: str) -> None:
    git(hostile, "config", key, value)
    assert "status" not in unasked(hostile)


def test_where_a_remote_is_and_what_it_fetches_runs_nothing(hostile: Path) -> None:
    git(hostile, "remote", "add", "origin", "https://example.org/a.git")
    git(hostile, "config", "filter.y.clean", "git-lfs clean -- %f")  # a setting that is worth a look
    assert set(READING) == set(unasked(hostile))
    git(hostile, "config", "remote.origin.url", "ext::evil")
    assert "status" not in unasked(hostile)


def test_an_alias_that_is_a_command_is_dangerous(hostile: Path) -> None:
    git(hostile, "config", "alias.st", "!./evil")
    scope = RiskScope(str(hostile), "/home/u", "/home/u/.whet", temp=())
    assert analyse("git st", str(hostile), scope).level == "dangerous"


def test_hooks_that_a_repository_names_count_where_something_is_written(hostile: Path) -> None:
    git(hostile, "config", "core.hooksPath", "tools")
    assert set(READING) == set(unasked(hostile))
    assert find_program_setting(str(hostile), "commit", reads=False) == "core.hookspath=tools"


def test_settings_that_another_folder_holds_are_found(hostile: Path) -> None:
    other = hostile.parent / "other"
    git(hostile.parent, "init", "-q", "--bare", str(other))
    git(other, "config", "diff.external", "evil")
    (hostile / ".git/commondir").write_text(str(other))
    assert find_program_setting(str(hostile)) == "diff.external=evil"
    (hostile / ".git/commondir").unlink()
    assert find_program_setting(str(hostile)) == ""
    git(hostile, "worktree", "add", "-q", "--no-checkout", str(hostile.parent / "second"))
    git(hostile, "config", "core.sshCommand", "evil")
    assert find_program_setting(str(hostile.parent / "second")) == "core.sshcommand=evil"
    assert find_program_setting(str(hostile.parent)) == ""


def test_a_bare_repository_in_a_clone_is_not_followed(hostile: Path) -> None:
    bare = hostile / "deep"
    git(hostile, "init", "-q", "--bare", str(bare))
    git(bare, "config", "core.fsmonitor", str(hostile.parent / "evil"))
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.worktree", ".")
    scope = RiskScope(str(hostile), "/home/u", "/home/u/.whet", temp=())
    assert analyse("cd deep && git status", str(hostile), scope).level == "dangerous"
    environment = {**command_environment(os.environ), "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "status"], cwd=bare, env=environment, capture_output=True, check=False)
    assert not (hostile.parent / "ran").exists()


def test_what_a_person_keeps_for_all_repositories_is_theirs(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = hostile.parent / "gitconfig"
    git(hostile, "config", "-f", str(settings), "diff.x.textconv", "cat")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    git(hostile, "config", "filter.y.clean", "git-lfs clean -- %f")
    assert "diff" in unasked(hostile)


def test_settings_that_are_in_the_environment_stay() -> None:
    given = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    texts = command_environment(given)
    assert texts["GIT_CONFIG_KEY_0"] == "a.b"
    assert texts["GIT_CONFIG_KEY_1"] == "core.fsmonitor"
    assert int(texts["GIT_CONFIG_COUNT"]) > 1


@pytest.mark.parametrize("where", ["beyond a million bytes", "in a second tree"])
def test_a_submodule_is_found_wherever_its_repository_names_it(tmp_path: Path, where: str) -> None:
    def git(folder: Path, *words: str, given: str = "") -> None:
        who = ("-c", "user.name=a", "-c", "user.email=b")
        subprocess.run(["git", *who, *words], cwd=folder, input=given, text=True, check=True)

    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "-q")
    git(tree, "commit", "-q", "--allow-empty", "-m", "x")
    if where == "in a second tree":
        git(tree, "worktree", "add", "-q", str(tmp_path / "second"))
        tree = tmp_path / "second"
    else:
        empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        git(tree, "hash-object", "-w", "--stdin")
        lines = (f"100644 {empty}\tfolder/with/a/long/name/file{number:06}\n" for number in range(12_000))
        git(tree, "update-index", "--index-info", given="".join(lines))
    inner = tree / "zz"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(inner, "config", "diff.external", "evil")
    git(tree, "update-index", "--add", "zz")
    assert "evil" in find_program_setting(str(tree))


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `git` first on the path that notes each start; return the file of the notes."""
    (tmp_path / "bin").mkdir()
    notes = tmp_path / "starts"
    wrapper = tmp_path / "bin/git"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    notes.write_text("")
    return notes


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def test_a_plain_repository_is_judged_without_git(repository: Path, starts: Path) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/helper/update-driver.git")
    git(repository, "config", "branch.process.merge", "refs/heads/allow-include")
    git(repository, "config", "alias.up", "pull --rebase")
    git(repository, "config", "submodule.proxy.update", "checkout")
    git(repository, "config", "user.name", 'A "B" # ; \\ C')
    git(repository, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    starts.write_text("")
    assert [
        find_program_setting(str(repository), verb, reads=False) for verb in ("up", "commit", "fetch")
    ] == [""] * 3
    assert starts.read_text() == ""


@pytest.mark.parametrize("kind", ["tree", "submodule"])
def test_a_linked_tree_and_a_submodule_are_judged_without_git(
    repository: Path, starts: Path, kind: str
) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    folder = repository.parent / "linked"
    if kind == "tree":
        git(repository, "worktree", "add", "-q", str(folder))
    else:
        git(repository.parent, "init", "-q", "linked")
        git(folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "sub")
        folder = folder / "sub"
        git(folder, "remote", "set-url", "origin", "https://example.org/a.git")
    starts.write_text("")
    assert find_program_setting(str(folder), "commit", reads=False) == ""
    assert remote_urls(str(folder)) == ["https://example.org/a.git"]
    assert starts.read_text() == ""
    git(repository, "config", "extensions.worktreeConfig", "true")
    git(folder, "config", "--worktree" if kind == "tree" else "--local", "diff.external", "evil")
    assert "evil" in find_program_setting(str(folder))
    if kind == "tree":
        git(folder, "config", "--worktree", "--unset", "diff.external")
        git(repository, "config", "diff.external", "shared-evil")
        assert "shared-evil" in find_program_setting(str(folder))


@pytest.mark.fast_rows("TextConv", "fsmonitor", "[alias]", "x00")
@pytest.mark.parametrize(
    "text",
    [
        '[diff "x"]\n\ttextconv = evil\n', '[DIFF "x"] TextConv=evil', "[diff.x]\ntextconv = evil\n",
        '\ufeff[diff "x"]\r\ntextconv = evil\r\n',
        '[a]\nb = c # a comment\\\n[diff "x"]\ntextconv = evil\n',
        '[a]\nb = c \\\n# not a comment\\\n\n[diff "x"]\ntextconv = evil\n',
        '[a]\nb = "#;" ; \\\n[diff "x"]\ntextconv = ev"il"\n',
        '[a] b = "c\\\nd"\n; "\n[diff "x"]\ntextconv = e\\\nvil\n',
        '[a "\\"]\\\\"]\n[diff "x"]\ntextconv = evil # comment\n', '[diff "x"]\ntextconv = " true"\n',
        '[diff "x"]\n[include "a"]\n[diff "x"] textconv = evil\n', '[remote "o"]\nurl = "ex"t:":evil"\n',
        '[url "ext::evil "]\ninsteadOf = x\n', "[alias]\nst = !evil\n",
        "[core]\nbare = false\nfsmonitor = evil\n", "[a]\nb = c\n[core]fsmonitor=evil",
        "[a]\nb\n[core]\nfsmonitor = evil", "[core]\nhooksPath\t = tools\n", "[core]\nbare = fal\\qse\n",
        '[core]\nbare = "false\n', "[core] bare\0 = false\n", "[core\nbare = false\n",
    ],
)  # fmt: skip
def test_a_setting_is_found_however_it_is_written(repository: Path, text: str) -> None:
    (repository / ".git/config").write_text(text, newline="")
    assert find_program_setting(str(repository), "st", reads=False) != ""


def test_an_included_file_is_read(repository: Path) -> None:
    (repository / ".git/config").write_text('[IncludeIf "gitdir:*"]\npath = more\n[Include] path = more\n')
    (repository / ".git/more").write_text("[core] fsmonitor = evil\n")
    assert find_program_setting(str(repository)) == "core.fsmonitor=evil"


@pytest.mark.slow
@given(st.lists(st.sampled_from([*' \t\n"\\#;=[]ab.-!', "\r\n", "\\\n", '[a "b"]\n', "[core]", "n=t"])))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_git_takes_is_read_as_git_reads_it(tmp_path: Path, parts: list[str]) -> None:
    path = tmp_path / "config"
    path.write_text("".join(parts), newline="")
    parsed = parse_git_config(path.read_bytes())
    done = subprocess.run(["git", "config", "-f", path, "--list", "-z"], capture_output=True, check=False)
    if parsed is not None:
        fields = done.stdout.decode().split("\0")[:-1]
        keys = [key.lower() for key, _, _ in (field.partition("\n") for field in fields)]
        values = [value for _, _, value in (field.partition("\n") for field in fields)]
        assert done.returncode == 0
        assert parsed == list(zip(keys, values, strict=True))


@pytest.mark.parametrize("script", ["exit 1", ""], ids=["failing", "missing"])
def test_gits_own_verbs_are_no_aliases_while_git_does_not_list_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    programs, real_git = tmp_path / "bin", shutil.which("git")
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    if script:
        (programs / "git").write_text(f"#!/bin/sh\n{script}\n")
        (programs / "git").chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    scope = RiskScope(str(folder), "/home/u", "/home/u/.whet", temp=())

    def problems(command: str) -> str:
        return " ".join(analyse(command, str(folder), scope).reasons)

    for verb in ("status", "add a", "commit -m x", "merge b"):
        assert "alias" not in problems(f"git {verb}")
    for verb in ("st", "whatchanged", "rerere"):
        assert "may be an alias" in problems(f"git {verb}")
    (programs / "git").unlink(missing_ok=True)
    (programs / "git").symlink_to(str(real_git))
    assert "alias" not in problems("git rerere"), "a failure is no answer for the next command"


@pytest.mark.fast_rows("cd link && git diff", "-C link show", "--git-dir=link", "cd -P link; cd ..")
@pytest.mark.parametrize(
    "command",
    [
        "git -C sub/deep status",
        "cd link; git status",
        "cd link && git diff",
        "cd link && git log -p",
        "git -C link show",
        "git -C link/.. status",
        "cd -P link/.. && git status",
        "cd -P link; cd ..; git status",
        "set -P; cd link; cd ..; git status",
        "git --git-dir=link/../.git status",
        "(cd link/inner && git status)",
    ],
)
def test_a_repository_behind_a_link_is_found(tmp_path: Path, command: str) -> None:
    (tmp_path / "sub/deep/inner").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    git(tmp_path / "sub", "init", "-q")
    git(tmp_path / "sub", "config", "filter.x.clean", "evil")
    (tmp_path / "link").symlink_to("sub/deep")
    scope = RiskScope(str(tmp_path), "/home/u", "/home/u/.whet")
    risk = analyse(command, str(tmp_path), scope)
    own = analyse("git status", str(tmp_path), scope)
    assert own.level == "safe", own.reasons
    assert risk.level == "dangerous" and "filter.x.clean=evil" in str(risk.reasons)


MANUALS = ("version --help", "init --help", "clone --help", "--help version", "--version --help", "help log")


def level(path: Path, line: str) -> str:
    scope = RiskScope(str(path), "/home/u", "/home/u/.whet", temp=())
    return analyse(line, str(path), scope).level


@pytest.mark.parametrize("key", ["man.x.cmd", "browser.x.cmd", "help.htmlpath"])
@pytest.mark.parametrize("line", [*MANUALS, "version $x"])
def test_manuals_ask_if_settings_name_their_viewer(hostile: Path, line: str, key: str) -> None:
    git(hostile, "config", key, "evil")
    assert level(hostile, f"git {line}") == "dangerous"
    assert level(hostile, "git version") == level(hostile, "git --version") == "safe"


def test_reading_a_partial_clone_is_not_safe(hostile: Path) -> None:
    assert level(hostile, "git cat-file -p HEAD") == "safe"
    git(hostile, "config", "remote.o.promisor", "false")
    assert level(hostile, "git show HEAD") == "safe"
    git(hostile, "config", "remote.o.promisor", "true")
    assert level(hostile, "git cat-file -p HEAD") == level(hostile, "git show HEAD") == "normal"
    git(hostile, "config", "--unset", "remote.o.promisor")
    git(hostile / "inner", "config", "extensions.partialClone", "o")
    assert level(hostile, "git diff --submodule=diff") == "normal"
