"""What a failed command printed, and the opening that it needed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from whet.sandbox.denial import explain, needed_openings
from whet.sandbox.path_rules import read_path_rules
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.system_folders import default_policy


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    (tmp_path / "ws/.git").mkdir(parents=True)
    (tmp_path / "ws/.git/config").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/f").touch()
    return default_policy(tmp_path / "ws", tmp_path / "home/.whet", {"HOME": str(tmp_path / "home")})


def opened(policy: SandboxPolicy, output: str, command: str = "x") -> list[str]:
    denial = explain(policy, command, output, policy.workspace)
    return [f"{opening.kind} {opening.target}" for opening in denial.openings] if denial else []


def test_paths_at_the_wall(policy: SandboxPolicy, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert opened(policy, f"touch: cannot touch '{other}/new': Read-only file system") == [f"write {other}"]
    assert opened(policy, f"cat: {other}/f: Permission denied") == [f"read {other}/f"]
    assert opened(policy, f"cat: {other}/f: No such file or directory") == [f"read {other}/f"]
    assert opened(policy, f"PermissionError: [Errno 13] Permission denied: '{other}/f'") == [
        f"read {other}/f"
    ]
    assert opened(policy, "cat: ../other/f: Permission denied") == [f"read {other}/f"]
    missing = "No such file or directory"
    assert opened(policy, f"touch: cannot touch '{other}/new': {missing}") == [f"write {other}"]
    assert opened(policy, f"bash: {other}/new: {missing}", "echo a > ../other/new") == [f"write {other}"]
    assert opened(policy, f"cat: {other}/new: {missing}") == []
    git = f"write {policy.workspace}/.git/config"
    assert opened(policy, "error: could not write config file .git/config: Device or resource busy") == [git]


def test_a_line_about_an_unreadable_file_opens_neither_its_program_nor_its_folder(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    """As for a command that only reads, to which the whole workspace is read-only."""
    workspace = policy.workspace
    (workspace / ".env").touch()
    rules = read_path_rules(["read_file(.env)"])
    reading = msgspec.structs.replace(
        policy, workspace=tmp_path / "scratch", read=(*policy.read, workspace), closed=(workspace / ".env",)
    )
    for line in ("grep: ./.env: Permission denied", "cat: .env: Permission denied"):
        denial = explain(reading, "x", line, workspace, rules=rules)
        assert denial is not None
        assert denial.line == (
            f"[the sandbox stopped this: no permission to read {workspace}/.env "
            "(the rule deny: read_file(.env) forbids it)]"
        )
        unnamed = explain(reading, "x", line, workspace)
        assert unnamed is not None and unnamed.openings == ()
    assert opened(policy, f"grep: {tmp_path}/other/f: Permission denied") == [f"read {tmp_path}/other/f"]


def test_a_repository_out_of_reach_that_a_git_file_names_is_offered(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    line = "fatal: not a git repository: "
    assert opened(policy, f"{line}{tmp_path}/other") == [f"write {tmp_path}/other"]
    assert opened(policy, f"{line}{tmp_path}/gone") == opened(policy, f"{line}{policy.workspace}/x") == []
    assert opened(policy, f"{line[:-2]} (or any of the parent directories): .git") == []


def test_a_shells_own_name_is_no_path_that_it_could_not_open(policy: SandboxPolicy, tmp_path: Path) -> None:
    for shell in ("/usr/bin/bash: line 1", "/bin/sh: 1", "/usr/bin/dash: 12"):
        output = f"{shell}: {tmp_path}/other/f: Read-only file system"
        assert opened(policy, output, f"echo x > {tmp_path}/other/f") == [f"write {tmp_path}/other/f"]


@pytest.mark.parametrize(
    ("output", "rule"),
    [
        ("cat: secrets/a.txt: Permission denied", "read(secrets/*)"),
        ("PermissionError: [Errno 13] Permission denied: 'secrets/a.txt'", "read(secrets/*)"),
        ("/usr/bin/bash: line 1: secrets/new: Permission denied", "read(secrets/*)"),
        ("/usr/bin/bash: line 1: app.lock: Read-only file system", "write(*.lock)"),
        ("rm: cannot remove 'app.lock': Device or resource busy", "write(*.lock)"),
    ],
)
def test_a_rule_that_closes_a_file_is_named_and_no_opening(
    policy: SandboxPolicy, output: str, rule: str
) -> None:
    rules = read_path_rules(["read(secrets/*)", "write(*.lock)"])
    (policy.workspace / "secrets").mkdir()
    (policy.workspace / "secrets/a.txt").touch()
    (policy.workspace / "app.lock").touch()
    closed, fixed = rules.list_files(policy.workspace)
    ruled = msgspec.structs.replace(policy, closed=closed, fixed=fixed)
    denial = explain(ruled, "x", output, policy.workspace, rules=rules)
    assert denial is not None and denial.openings == ()
    assert denial.line.endswith(f"(the rule deny: {rule} forbids it)]")


def test_a_rename_over_a_ruled_file_names_the_rule(policy: SandboxPolicy) -> None:
    """GNU sed names only its temporary file."""
    rules = read_path_rules(["write(*.lock)"])
    for name in ("app.lock", "other.txt"):
        (policy.workspace / name).touch()
    closed, fixed = rules.list_files(policy.workspace)
    ruled = msgspec.structs.replace(policy, closed=closed, fixed=fixed)
    output = "sed: cannot rename ./sedXq3z1a: Device or resource busy"
    for command in ("sed -i s/a/b/ app.lock", "sed -i 's/a/b/' other.txt 'app.lock' /etc/passwd"):
        denial = explain(ruled, command, output, policy.workspace, rules=rules)
        assert denial is not None and denial.openings == ()
        assert denial.line.endswith("app.lock (the rule deny: write(*.lock) forbids it)]"), denial.line
        assert "other.txt" not in denial.line and "passwd" not in denial.line
    assert explain(ruled, "sed -i s/a/b/ other.txt", output, policy.workspace, rules=rules) is None


def test_failures_of_other_kinds_are_none_of_it(policy: SandboxPolicy) -> None:
    for line in (
        "FAILED tests/test_x.py - assert 1 == 2",
        "cat: nothing.txt: No such file or directory",
        "cat: ./locked.txt: Permission denied",
        "error: no such command: 'foo'",
        "",
    ):
        assert explain(policy, "make", line, policy.workspace) is None, line


@pytest.mark.parametrize("name", ["a\0b", "~a\0b/c", "\ud800", "long" * 90])
def test_a_name_that_no_file_can_have_is_left_out(policy: SandboxPolicy, name: str) -> None:
    output = f"cat: '/nowhere/{name}': No such file\ncat: '{name}': Permission denied\ncat: /usr: EROFS"
    assert opened(policy, output) == ["write /usr"]
    assert (
        needed_openings(policy, f"cat /nowhere/{name} {name} > /usr/x", policy.workspace)[-1].target == "/usr"
    )


def test_hosts(policy: SandboxPolicy) -> None:
    line = "curl: (6) Could not resolve host: api.example.com"
    assert opened(policy, line) == ["reach api.example.com"]
    line = "ssh: Could not resolve hostname git.example.com: Temporary failure in name resolution"
    assert opened(policy, line, "git fetch") == ["reach git.example.com"]
    line = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
    assert opened(policy, line, "python3 get.py https://example.org/x") == ["reach example.org"]
    denial = explain(policy, "x", "anything", policy.workspace, ["a.example"])
    assert denial is not None
    assert (
        denial.line == '[the sandbox stopped this: no network to a.example; it would need "reach a.example"]'
    )


def test_the_home_and_whets_own_are_never_offered(policy: SandboxPolicy) -> None:
    assert opened(policy, f"cat: {policy.home}/state.db: Permission denied") == []
    assert opened(policy, "touch: cannot touch '/x': Read-only file system") == []


def test_what_a_command_names(policy: SandboxPolicy, tmp_path: Path) -> None:
    other = tmp_path / "other"
    command = f"grep x src {other}/f > /usr/out; curl https://api.example.com/v1"
    words = [opening.words for opening in needed_openings(policy, command, policy.workspace)]
    assert words[0] == "write /usr"
    assert words[-1] == "reach api.example.com"
