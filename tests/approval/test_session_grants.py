"""A yes for a session: what it covers when the same words come in another place or among other words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.approval.test_gate import Bench, Someone, verdicts
from whet.contract.protocols import Answer


@pytest.mark.parametrize(
    "command",
    [
        "cd ../other; rm -rf ../build", "cd sub && rm -rf ../build", "pushd /srv; rm -rf ../build",
        "env -C /srv rm -rf ../build", "rm -rf ../build; rm -rf ../build",
        "echo rm -rf ../build; rm -rf ../build", "rm -rf ../build; ls -d ..", "HOME=/srv; rm -rf ../build",
        "(rm -rf ../build)", "sh -c 'rm -rf ../build'", "rm   -rf ../build",
    ],
)  # fmt: skip
def test_a_yes_to_a_dangerous_command_holds_for_no_other_command_that_holds_it(
    tmp_path: Path, command: str
) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.sh("rm -rf ../build").verdict == "allow"
    assert bench.sh("rm -rf ../build").verdict == "allow" and len(bench.person.asked) == 1
    assert bench.sh(command).verdict == "deny"


def test_a_yes_to_a_dangerous_command_holds_in_its_folder_and_with_its_input(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.sh("rm -rf ../build", stdin="y").verdict == "allow"
    assert bench.sh("rm -rf ../build", stdin="y").verdict == "allow"
    assert bench.sh("rm -rf ../build").verdict == "deny"
    assert bench.sh("rm -rf ../build", stdin="n").verdict == "deny"
    assert bench.sh("rm -rf ../build", stdin="y", workdir="sub").verdict == "deny"


@pytest.mark.parametrize("answer", ["session", "always"])
def test_a_granted_program_is_asked_about_in_folders_outside_the_workspace(
    tmp_path: Path, answer: Answer
) -> None:
    bench = Bench(tmp_path, Someone(answer))
    for folder in (tmp_path / "other", bench.workspace / "sub"):
        folder.mkdir()
    (bench.workspace / "link").symlink_to(tmp_path / "other")
    assert bench.sh("pytest").verdict == "allow"
    assert verdicts(bench, ["pytest tests", "cd sub && pytest", "echo a; pytest -q"]) == ["allow"] * 3
    elsewhere = ["cd ../other && pytest", "cd link; pytest", 'cd "$X"; pytest', f"env -C {tmp_path} pytest"]
    assert verdicts(bench, elsewhere) == ["deny"] * 4


@pytest.mark.parametrize("answer", ["session", "always"])
def test_a_yes_to_an_edit_holds_for_its_file_whichever_tool_edits_it(tmp_path: Path, answer: Answer) -> None:
    bench = Bench(tmp_path, Someone(answer))
    assert bench.decide("patch", path="a.py", old_string="a", new_string="b").verdict == "allow"
    assert bench.decide("write_file", path="a.py", content="c\n").verdict == "allow"
    assert bench.decide("write_file", path="b.py", content="c\n").verdict == "deny"
    assert bench.decide("read_file", path=".env").verdict == "deny"
