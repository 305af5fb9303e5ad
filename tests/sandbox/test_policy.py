"""What a policy grants, and what widens it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from whet.contract.errors import BadInput, ToolDenied
from whet.sandbox.policy import Opening, SandboxPolicy, names_host, read_opening
from whet.sandbox.protected_names import PROTECTED
from whet.sandbox.system_folders import PolicyAdditions, default_policy, starts_programs


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    workspace = tmp_path / "ws"
    (workspace / ".git").mkdir(parents=True)
    return default_policy(
        workspace, tmp_path / "home/.whet", {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin"}
    )


def test_the_workspace_but_not_what_runs_programs_outside(policy: SandboxPolicy) -> None:
    assert policy.may_write(policy.workspace / "src/x.py")
    assert not policy.may_write(policy.workspace / ".git/hooks/pre-commit")
    assert policy.may_read(policy.workspace / ".git/config")
    assert policy.may_read(Path("/usr/bin/env"))
    assert not policy.may_read(policy.home.parent / ".ssh/id_rsa")
    assert not policy.may_read(Path("/etc/shadow"))


@pytest.mark.parametrize(
    "name",
    [
        *("opencode.json", "opencode.jsonc", ".opencode.jsonc", "crush.json", ".crush/crush.json"),
        *(
            ".devcontainer.json",
            ".config/mise.toml",
            "mise/config.toml",
            "mise/tasks/build",
            ".mise.local.toml",
        ),
        *(".hg/hgrc-not-shared", ".sl/config", ".jj/repo/config.toml", ".aider.conf.yaml", ".dir-locals.el"),
        *(".pi/x", ".factory/x", ".kilocode/x", ".goose/x", ".clinerules", ".agents/skills/x/SKILL.md"),
    ],
)
def test_no_variant_of_a_name_that_runs_programs_is_written(policy: SandboxPolicy, name: str) -> None:
    assert not policy.may_write(policy.workspace / name)
    assert policy.may_read(policy.workspace / name)


def test_names_that_only_resemble_protected_ones_are_written(policy: SandboxPolicy) -> None:
    for name in ("mise/src.py", "mcp.json", "devcontainer/x", "agents/x.py", "package.json", ".config/x.yml"):
        assert policy.may_write(policy.workspace / name)


def test_openings_widen_a_copy(policy: SandboxPolicy, tmp_path: Path) -> None:
    wider = policy.with_openings(
        [Opening("write", str(tmp_path / "more")), Opening("reach", "API.example.com")]
    )
    assert wider.may_write(tmp_path / "more/x")
    assert wider.allows(Opening("reach", "api.example.com"))
    assert not policy.may_write(tmp_path / "more/x")
    hooks = policy.with_openings([Opening("write", str(policy.workspace / ".git/hooks"))])
    assert hooks.may_write(policy.workspace / ".git/hooks/pre-commit")
    assert not hooks.may_write(policy.workspace / ".git/config")


def test_whets_home_is_never_opened(policy: SandboxPolicy) -> None:
    for target in (policy.home, policy.home / "state.db", policy.home.parent):
        with pytest.raises(ToolDenied):
            policy.with_openings([Opening("read", str(target))])


def test_a_person_s_folder_in_the_home_is_open_to_that_person_alone(tmp_path: Path) -> None:
    home = tmp_path / "whet"
    work, other = home / "people" / "ben" / "work", home / "people" / "eve" / "work"
    for folder in (work, home / "profiles" / "bot" / "people" / "ann" / "work"):
        assert folder not in default_policy(folder, home, {"HOME": str(tmp_path)}).hidden_paths()
    for folder in (work, other):
        folder.mkdir(parents=True)
    policy = default_policy(work, home, {"HOME": str(tmp_path)})
    assert policy.may_write(work / "notes.md") and policy.may_read(work / "notes.md")
    assert not policy.may_write(work / ".git" / "hooks" / "x")
    for path in (home / ".env", home / "people" / "ben" / "MEMORY.md", other / "notes.md"):
        assert not policy.may_read(path) and not policy.may_write(path)
    owners = default_policy(tmp_path / "project", home, {"HOME": str(tmp_path)})
    assert not owners.may_read(work / "notes.md")


def test_the_words_of_an_opening_read_back(tmp_path: Path) -> None:
    for text in ("reach api.example.com", f"write {tmp_path}", f"read {tmp_path}"):
        assert read_opening(text).words == text
    for text in ("", "write", "reach a/b", "run unconfined", "eat x"):
        with pytest.raises(BadInput):
            read_opening(text)


def test_hosts_by_name() -> None:
    assert names_host(("*.example.com",), "a.example.com.")
    assert not names_host(("*.example.com",), "example.com")
    assert not names_host(("*.example.com",), "evilexample.com")
    assert not names_host(("example.com",), "example.com.evil.org")


def test_a_home_as_workspace_hides_its_dot_folders(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".cargo/bin").mkdir(parents=True)
    policy = default_policy(home, home / ".whet", {"HOME": str(home), "PATH": f"{home}/tools:/usr/bin"})
    assert policy.may_write(home / "notes.txt")
    for name in ("bin/ls", "tools/ls", ".pam_environment", ".bashrc", ".config/autostart/x", ".zshenv"):
        assert not policy.may_write(home / name)
    assert not policy.may_read(home / ".ssh/id_rsa")
    assert policy.may_read(home / ".cargo/bin/cargo")
    assert not policy.may_read(home / ".cargo/credentials.toml")


@pytest.mark.skipif(not os.access("/opt", os.W_OK), reason="can't create a home in /opt")
def test_a_home_in_a_system_folder_is_private_like_any_other(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/opt") as name:
        home = Path(name, "ann")
        (home / "papers").mkdir(parents=True)
        Path(name, "tool").mkdir()
        policy = default_policy(tmp_path, home / ".whet", {"HOME": str(home), "PATH": "/usr/bin"})
        assert policy.may_read(Path(name, "tool/x")) and policy.may_read(Path("/usr/bin/env"))
        assert not policy.may_read(home / "papers/taxes.txt")
    daemon = default_policy(tmp_path, tmp_path / ".whet", {"HOME": "/usr/sbin", "PATH": "/usr/sbin"})
    assert os.geteuid() == 0 or daemon.may_read(Path("/usr/sbin/init"))


_TOKENS = (
    (".local/share/uv/credentials/credentials.toml", 0o600),
    (".local/share/mise/auth", 0o644),
    (".rustup/private", 0o600),
    (".rustup/closed/key", 0o644),
    (".nvm/a/b/.npmrc", 0o644),
    (".pyenv/credentials.json", 0o644),
    (".cache/uv/login", 0o600),
)


def test_private_files_below_toolchains_are_hidden(tmp_path: Path) -> None:
    home = tmp_path / "home"
    public = [home / ".rustup/toolchains/x/rustc", home / ".cache/pip/http/a/page", home / ".cargo/bin/cargo"]
    for path, mode in [(home / name, mode) for name, mode in _TOKENS] + [(path, 0o644) for path in public]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    (home / ".rustup/closed").chmod(0o700)
    (home / ".cache/pip/http").chmod(0o700)
    policy = default_policy(home / "ws", home / ".whet", {"HOME": str(home), "PATH": ""})
    assert [name for name, _ in _TOKENS if policy.may_read(home / name)] == []
    assert [path for path in public if not policy.may_read(path)] == []
    wishes = PolicyAdditions(read=[str(home / ".rustup/private"), str(home / ".cache/uv")])
    policy = default_policy(home / "ws", home / ".whet", {"HOME": str(home), "PATH": ""}, wishes)
    assert policy.may_read(home / ".rustup/private") and policy.may_read(home / ".cache/uv/login")


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ('[registries.own]\ntoken = "abc"\n', False),
        ('[http]\nproxy = "http://me:pw@proxy:80"\n', False),
        ("[http]\n\textraHeader = Authorization: Basic abc\n", False),
        ('[registry]\nglobal-credential-providers = ["cargo:token"]\n[net]\nretry = 2\n', True),
        ('[url "git@github.com:"]\n\tinsteadOf = https://github.com/\n', True),
    ],
)
def test_settings_with_a_token_in_them_are_not_read(text: str, is_read: bool, tmp_path: Path) -> None:
    settings = [tmp_path / name for name in (".cargo/config.toml", ".gitconfig")]
    for path in settings:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    policy = default_policy(tmp_path / "ws", tmp_path / ".whet", {"HOME": str(tmp_path), "PATH": ""})
    assert [policy.may_read(path) for path in settings] == [is_read, is_read]


def test_the_bits_of_a_home_with_a_private_umask_mean_nothing(tmp_path: Path) -> None:
    tool = tmp_path / ".rustup/toolchains/rustc"
    tool.parent.mkdir(parents=True, mode=0o700)
    tool.touch(mode=0o600)
    (tmp_path / ".rustup").chmod(0o700)
    policy = default_policy(tmp_path / "ws", tmp_path / ".whet", {"HOME": str(tmp_path), "PATH": ""})
    assert policy.may_read(tool)


def test_settings_add(tmp_path: Path) -> None:
    wishes = PolicyAdditions(write=[str(tmp_path / "w")], read=[str(tmp_path / "r")], hosts=["Example.com"])
    policy = default_policy(tmp_path / "ws", tmp_path / "whet", {"HOME": str(tmp_path)}, wishes)
    assert policy.may_write(tmp_path / "w/x")
    assert policy.may_read(tmp_path / "r/x")
    assert not policy.may_write(tmp_path / "r/x")
    assert policy.hosts == ("example.com",)


def test_a_second_working_tree_has_its_repository_but_not_a_forged_one(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    own = main / ".git/worktrees/tree"
    own.mkdir(parents=True)
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (own / "gitdir").write_text(f"{tree}/.git\n")
    (own / "commondir").write_text("../..\n")
    policy = default_policy(tree, tmp_path / "whet", {"HOME": str(tmp_path / "h")})
    assert policy.may_write(main / ".git/objects/x")
    assert not policy.may_write(main / ".git/hooks/x")
    assert not policy.may_write(main / "src/x")
    (own / "gitdir").write_text(f"{tmp_path}/elsewhere/.git\n")
    assert not default_policy(tree, tmp_path / "whet", {"HOME": str(tmp_path / "h")}).may_write(
        main / ".git/objects/x"
    )


def test_a_submodule_has_its_repository_but_not_a_forged_one(tmp_path: Path) -> None:
    tree, own = tmp_path / "main/sm", tmp_path / "main/.git/modules/sm"
    own.mkdir(parents=True)
    tree.mkdir()
    (tree / "src").mkdir()
    (tree / ".git").write_text("gitdir: ../.git/modules/sm\n")
    (own / "config").write_text("[core]\n\tbare = false\n\tworktree = ../../../sm\n")
    environment = {"HOME": str(tmp_path / "h")}
    for workspace in (tree, tree / "src"):
        policy = default_policy(workspace, tmp_path / "whet", environment)
        assert policy.may_write(own / "objects/x") and policy.may_write(own / "index")
        assert not any(policy.may_write(own / name) for name in ("config", "hooks/x", "commondir"))
        assert not policy.may_write(tree / ".git") and not policy.may_read(tmp_path / "main/.git/config")
    (own / "config").write_text("[core]\n\tworktree = ../../../other\n")
    assert not default_policy(tree, tmp_path / "whet", environment).may_read(own / "HEAD")


def test_an_opened_git_folder_keeps_what_its_git_runs(tmp_path: Path) -> None:
    """The folder of `git init --separate-git-dir` does not name its tree, so a person opens it."""
    tree, own = tmp_path / "tree", tmp_path / "sep.git"
    for folder in (tree / "tools/hooks", own / "objects"):
        folder.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "config").write_text("[core]\n\thooksPath = tools/hooks\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    environment = {"HOME": str(tmp_path / "h")}
    policy = default_policy(tree, tmp_path / "whet", environment)
    assert not policy.may_read(own / "HEAD") and not policy.may_write(tree / "tools/hooks/pre-commit")
    lasting = PolicyAdditions(write=[str(own)])
    for opened in (
        policy.with_openings([Opening("write", str(own))]),
        default_policy(tree, tmp_path / "whet", environment, lasting),
    ):
        assert opened.may_write(own / "objects/x")
        assert not opened.may_write(own / "config") and not opened.may_write(own / "hooks/x")


def test_a_folder_that_may_not_be_looked_into_is_left_out(tmp_path: Path) -> None:
    """As with a search path that an administrator's shell handed on; no engine would seem to hold."""
    asked = (
        "from whet.sandbox.system_folders import default_policy; from pathlib import Path; import os, sys\n"
    )
    asked += "os.setuid(65534) if os.getuid() == 0 else None\n"
    asked += "given = {'HOME': '/none', 'PATH': sys.argv[1], 'PYENV_ROOT': sys.argv[1]}\n"
    asked += "default_policy(Path('/usr/share'), Path('/none'), given)"
    closed = tmp_path / "closed"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0o700 if os.getuid() == 0 else 0)
    done = subprocess.run([sys.executable, "-c", asked, str(closed / "bin")], capture_output=True, text=True)
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [*PROTECTED, ".git/hooks/pre-commit", ".gitx", "src/.git/hooks", "src/a.py"])
def test_paths_that_start_programs_are_those_at_and_below_the_protected_names(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / ".git").mkdir()
    for path in (tmp_path / name, tmp_path / name / "x", Path("/etc") / name):
        expected = any(path.is_relative_to(tmp_path / each) for each in PROTECTED)
        assert starts_programs(path, tmp_path) == expected
