"""What is hidden outside of a workspace stays hidden in one that holds it, with each engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import run
from whet.sandbox.jail import Jail
from whet.sandbox.path_rules import read_path_rules
from whet.sandbox.policy import SandboxPolicy
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import PolicyAdditions, default_policy

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")

_KEYS = (
    ".whet/.env", ".whet/serve/owner.token", ".whet/profiles/work/.env", ".codex/auth.json",
    ".claude/.credentials.json", ".config/mise/config.toml", ".config/gh/hosts.yml", ".ssh/id_rsa",
    ".mozilla/logins.json", ".local/share/keyrings/login", "dotfiles/aws/credentials",
)  # fmt: skip
_EVERYTHING = "find . -type f -exec cat {} + 2>/dev/null; cat .whe*/.en* 2>/dev/null; true"


class Homes:
    """Makes jails of one engine, which end with the test."""

    def __init__(self, case: EngineCase, stack: ExitStack) -> None:
        self._case = case
        self._stack = stack

    def open(self, policy: SandboxPolicy, home: Path) -> Jail:
        scratch = Scratch()
        self._stack.callback(scratch.close)
        jail = Jail(JailPlan(self._case.engine(), policy, scratch, home))
        self._stack.callback(jail.close)
        return jail


@pytest.fixture(params=ENGINES, ids=str)
def homes(request: pytest.FixtureRequest) -> Iterator[Homes]:
    with ExitStack() as stack:
        yield Homes(request.param, stack)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _policy(workspace: Path, whet: Path, home: Path, *deny: str) -> SandboxPolicy:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    policy = default_policy(workspace, whet, environment, PolicyAdditions())
    closed, fixed = read_path_rules(deny).list_files(policy.workspace)
    return msgspec.structs.replace(policy, closed=closed, fixed=fixed)


def test_a_home_that_is_the_workspace_shows_no_keys(homes: Homes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in _KEYS:
        _write(home / name, f"SECRET {name}\n")
    _write(home / "notes.txt", "notes\n")
    (home / ".aws").symlink_to(home / "dotfiles/aws")
    jail = homes.open(_policy(home, home / ".whet", home), home)
    code, printed = run(jail, _EVERYTHING)
    assert (code, "notes" in printed, "SECRET" in printed) == (0, True, False), printed
    run(jail, "echo EVIL | tee .whet/.env .codex/auth.json .whet/new .config/mise/config.toml .claude/x")
    assert (home / ".whet/.env").read_text() == "SECRET .whet/.env\n"
    assert [path for path in home.rglob("*") if path.is_file() and "EVIL" in path.read_text()] == []


def test_a_folder_above_the_home_shows_no_keys_of_it(homes: Homes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in _KEYS:
        _write(home / name, f"SECRET {name}\n")
    (home / ".aws").symlink_to(home / "dotfiles/aws")
    jail = homes.open(_policy(tmp_path, home / ".whet", home), home)
    assert "SECRET" not in run(jail, _EVERYTHING)[1]


@pytest.mark.fast_rows("bubblewrap-.git", "bubblewrap-state", "Landlock-.config", "Landlock-state")
@pytest.mark.parametrize("name", ["state/whet", ".config/whet", ".agents/whet", ".vscode", ".git/whet"])
def test_a_whet_home_in_the_workspace_is_hidden(homes: Homes, tmp_path: Path, name: str) -> None:
    workspace = tmp_path / "ws"
    _write(workspace / name / ".env", "SECRET\n")
    _write(workspace / name / "profiles/work/.env", "SECRET\n")
    _write(workspace / ".config/mise/config.toml", "own\n")
    _write(workspace / ".git/config", "")
    jail = homes.open(_policy(workspace, workspace / name, tmp_path / "home"), tmp_path / "home")
    code, printed = run(jail, f"cat .config/mise/config.toml; cat {name}/.env {name}/profiles/*/.env")
    assert code != 0 and "own" in printed and "SECRET" not in printed


def test_a_workspace_in_whets_home_shows_nothing_of_it(homes: Homes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _write(home / ".whet/.env", "SECRET\n")
    _write(home / ".whet/serve/owner.token", "SECRET\n")
    for workspace in (home / ".whet", home / ".whet/serve"):
        jail = homes.open(_policy(workspace, home / ".whet", home), home)
        run(jail, "echo EVIL > new")
        assert "SECRET" not in run(jail, "cat .env owner.token; cat ../.env")[1]
    assert not list(home.rglob("new"))


def test_a_deny_rule_for_reads_hides_a_protected_folder(homes: Homes, tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    _write(workspace / ".claude/settings.json", "SECRET\n")
    _write(workspace / ".vscode/keys/a", "SECRET\n")
    policy = _policy(workspace, tmp_path / "whet", tmp_path, "read(.claude)", "read(.vscode/keys/*)")
    assert "SECRET" not in run(homes.open(policy, tmp_path), _EVERYTHING)[1]


def test_a_deny_rule_for_writes_shows_nothing_that_was_out_of_reach(homes: Homes, tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "out/key"
    workspace.mkdir()
    _write(outside, "SECRET\n")
    policy = _policy(workspace, tmp_path / "whet", tmp_path, f"write({outside})")
    assert "SECRET" not in run(homes.open(policy, tmp_path), f"cat {outside}")[1]
