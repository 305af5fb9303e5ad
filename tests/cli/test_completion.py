"""Shell completion: the scripts, and the answers that a shell gets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import invoke
from tests.cli.stored import Said, store
from tests.cli.test_main import modules_after
from tests.support import FixedClock
from whet.cli.group import run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_for_its_shell(shell: str, tmp_path: Path) -> None:
    script = invoke("completion", shell).stdout
    assert "_WHET_COMPLETE" in script
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        assert subprocess.run([shell, "-n", str(path)], capture_output=True, timeout=30).returncode == 0


def test_an_unknown_shell_is_a_usage_error() -> None:
    assert invoke("completion", "tcsh").exit_code == 2


def answers(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("_WHET_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert run([]) == 0
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


def test_commands_options_keys_and_sessions_are_completed(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = store(home, clock, "Lunch", Said("a", "b"))
    assert answers("whet ses", monkeypatch, capsys) == ["sessions"]
    assert "--profile" in answers("whet --", monkeypatch, capsys)
    assert "search" in answers("whet sessions ", monkeypatch, capsys)
    assert "--json" in answers("whet sessions list --", monkeypatch, capsys)
    assert answers("whet config why model.m", monkeypatch, capsys)[0] == "model.model"
    assert answers("whet sessions show id", monkeypatch, capsys) == [session]


def test_completing_a_command_imports_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_WHET_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "whet ")
    monkeypatch.setenv("COMP_CWORD", "1")
    stdout, modules = modules_after()
    assert "plain,chat" in stdout and not modules & {"asyncio", "httpx2", "apsw", "whet.cli.chat"}
