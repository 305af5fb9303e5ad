"""The gate judges files and programs by where they lie: in the home, in Whet's home, in the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.approval.test_gate import Bench, Kept, Someone
from whet.approval.gate import NO_PARTS, PolicyGate
from whet.config.permission_settings import ApprovalSettings


def test_file_tools_ask_for_what_the_sandbox_hides_in_a_home_that_is_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, Someone())
    monkeypatch.setenv("HOME", str(bench.workspace))
    bench.set_up()
    for name in (".codex", ".config/x/token", ".local/share/y", ".whet/history"):
        (bench.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.workspace / name).touch()
    (bench.workspace / "codex").symlink_to(".codex")
    for name in (".codex", ".config/x/token", ".local/share/y", ".whet/history", "codex"):
        decision = bench.decide("read_file", path=name)
        assert decision.verdict == "deny" and "holds secrets" in decision.reason, (name, decision)
        assert bench.decide("search_files", path=name, pattern="x").verdict == "deny", name
    assert bench.decide("read_file", path="notes/a.txt").verdict == "allow"
    assert bench.decide("search_files", path=".", pattern="x").verdict == "allow"


def test_a_profile_asks_before_it_reads_the_homes_of_others(tmp_path: Path) -> None:
    main = tmp_path / "proj" / "whet"
    bench = Bench(tmp_path, Someone())
    bench.gate = PolicyGate(ApprovalSettings(), bench.person, Kept(), main / "profiles" / "work", NO_PARTS)
    for name in ("history", "profiles/other/history", "profiles/work/history"):
        assert bench.decide("read_file", path=f"whet/{name}").verdict == "deny", name
    assert bench.decide("read_file", path="whet/profiles/work/skills/a/SKILL.md").verdict == "allow"
    assert bench.decide("read_file", path="whet/config.yaml").verdict == "allow"


def test_a_program_of_the_workspace_on_the_search_path_is_not_the_standard_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, Someone())
    programs = bench.workspace / ".venv/bin"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert bench.sh("ls").verdict == "allow"
    for name in ("ls", "git", "cat"):
        (programs / name).symlink_to("/usr/bin/env" if name == "git" else f"../{name}.sh")
        (programs.parent / f"{name}.sh").write_text("#!/bin/sh\n")
        (programs.parent / f"{name}.sh").chmod(0o755)
    for command in ("ls", "git status", "wc a.txt | cat", "cd src && ls"):
        assert bench.sh(command).verdict == "deny", command
    assert f"{programs}/ls" in bench.sh("ls").reason
    assert bench.sh("/bin/ls").verdict == bench.sh("wc a.txt").verdict == "allow"
    monkeypatch.setenv("PATH", f".venv/bin{os.pathsep}/usr/bin")
    assert bench.sh("ls").verdict == "deny"
