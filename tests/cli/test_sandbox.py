"""`whet sandbox`: what holds, what a command would need, and a command tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.running import invoke
from tests.sandbox.engines import ENGINES
from whet.searchpath import find_trusted_program


def run(folder: Path, *words: str) -> Result:
    return invoke("sandbox", *words, env={"WHET_TOOLS_WORKSPACE": str(folder)})


def test_status_says_what_holds_and_what_may_be_reached(tmp_path: Path) -> None:
    done = run(tmp_path, "status", "--json")
    facts = json.loads(done.output)
    assert facts["mode"] == "auto"
    assert facts["engine"] in ("bubblewrap", "landlock", "none")
    assert facts["workspace"] == str(tmp_path)
    assert ".git/hooks" in facts["protected"]
    words = run(tmp_path, "status").output
    assert words.splitlines()[0] == facts["line"]
    assert "network: none" in words


def test_status_of_another_machine_claims_nothing_of_this_one(tmp_path: Path) -> None:
    fields = {"WHET_TOOLS_WORKSPACE": str(tmp_path), "WHET_SANDBOX_BACKEND": "ssh box"}
    words = invoke("sandbox", "status", env=fields).output
    assert "box" in words.splitlines()[0]
    assert "network" not in words and "private" not in words


def test_a_home_as_the_workspace_is_described_and_held_truly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WHET_HOME", str(tmp_path / ".whet"))
    for name in (".whet/.env", ".codex/auth.json", ".ssh/id_rsa"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("SECRET=1\n")
    lines = run(tmp_path, "status").output.splitlines()
    (hidden,) = (line for line in lines if line.startswith("hidden in the workspace: "))
    (fixed,) = (line for line in lines if line.startswith("read-only in the workspace: "))
    for name in (".whet", ".codex", ".ssh"):
        assert f"~/{name}" in hidden and name not in fixed.split(": ")[1].split(", ")
    assert ".whet/.env: the sandbox hides it" in run(tmp_path, "explain", "cat .whet/.env").output
    assert "~/.whet/x: the sandbox hides it" in run(tmp_path, "explain", "touch ~/.whet/x").output
    if json.loads(run(tmp_path, "status", "--json").output)["engine"] != "none":
        assert "SECRET" not in run(tmp_path, "try", "cat .whe*/.en* .codex/* .ssh/*").output


def test_explain_runs_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "explain", "--json", f"touch {tmp_path}/ran; curl https://api.example.com/")
    assert [opening["words"] for opening in json.loads(done.output)["openings"]] == ["reach api.example.com"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "opening"),
    [
        ("touch /etc/foo", "write /etc"),
        ("mkdir -p /usr/lib/x", "write /usr/lib"),
        ("cp a /usr/bin/b", "write /usr/bin"),
        ("rm /etc/hostname", "write /etc/hostname"),
        ("docker build .", "run outside the sandbox, with all your rights"),
    ],
)
def test_explain_names_what_the_gate_asks_about(tmp_path: Path, command: str, opening: str) -> None:
    done = run(tmp_path, "explain", "--json", command)
    assert opening in [row["words"] for row in json.loads(done.output)["openings"]], done.output


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("cat secrets/a.txt", "secrets/a.txt: the rule deny: read_file(secrets/*) forbids it"),
        ("cat secr*/*.txt", "/secrets/a.txt: the rule deny: read_file(secrets/*) forbids it"),
        ("echo x > secrets/new", "secrets/new: the rule deny: read_file(secrets/*) forbids it"),
        ("cd secrets && cat a.txt", "secrets: the rule deny: read_file(secrets/*) forbids it"),
        ("grep -r x secrets", "secrets: the rule deny: read_file(secrets/*) forbids it"),
        ("rm app.lock", "app.lock: the rule deny: write_file(*.lock) forbids it"),
        ("cat app.lock", "It names no file or host that is out of reach."),
    ],
)
def test_explain_names_the_rule_that_closes_a_file(tmp_path: Path, command: str, line: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/a.txt").touch()
    (tmp_path / "app.lock").touch()
    rules = "read_file(secrets/*),write_file(*.lock)"
    environ = {"WHET_TOOLS_WORKSPACE": str(tmp_path), "WHET_APPROVAL_DENY": rules}
    words = invoke("sandbox", "explain", command, env=environ).output
    assert line in words and "would need" not in words


@pytest.mark.slow
def test_explain_names_nothing_that_is_inside(tmp_path: Path) -> None:
    ENGINES[2].engine()
    done = run(tmp_path, "explain", "touch a /tmp/b && cat /etc/hostname > c && make test")
    assert done.output.splitlines()[1].startswith("It names no file or host")


@pytest.mark.slow
def test_try_survives_a_nul_in_the_output(tmp_path: Path) -> None:
    ENGINES[2].engine()
    done = run(tmp_path, "try", "--json", "printf \"cat: '/etc/a\\0b': Permission denied\"; exit 3")
    assert (done.exit_code, json.loads(done.output)["exit"]) == (3, 3)


@pytest.mark.slow
def test_try_runs_a_command_and_says_what_stopped_it(tmp_path: Path) -> None:
    ENGINES[2].engine()
    done = run(tmp_path, "try", "--json", "echo ran > f; touch /etc/whet-tried")
    facts = json.loads(done.output)
    assert done.exit_code == facts["exit"] == 1
    assert (tmp_path / "f").read_text() == "ran\n"
    assert [opening["words"] for opening in facts["openings"]] == ["write /etc"]
    assert run(tmp_path, "try", "true").output == "[exit 0]\n"


@pytest.mark.slow
@pytest.mark.skipif(find_trusted_program("bash") is None, reason="no bash")
def test_try_uses_the_shell_of_the_terminal_tool(tmp_path: Path) -> None:
    ENGINES[2].engine()
    result = run(tmp_path, "try", "pushd /tmp >/dev/null && [[ a == a ]] && exit 15")
    assert (result.exit_code, result.output) == (15, "[exit 15]\n")
