"""What is said at a start about nothing holding: known from the settings, or from the last look."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.config.paths import Home
from whet.sandbox import engine, engine_cache
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.status import EngineStatus

_LINE = "no sandbox (x); commands run with all your rights, and Whet judges only their text"


def looked(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_status = EngineStatus(name, _LINE)  # type: ignore[arg-type]
    monkeypatch.setitem(engine.statuses, None, engine_status)
    confinement = Confinement(ConfinementSettings("auto", home), os.environ)
    confinement.status()
    confinement.close()


def test_off_is_said_without_a_look(tmp_path: Path) -> None:
    assert engine_cache.OPEN in engine_cache.read_status("off", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nobody_has_looked_yet(tmp_path: Path) -> None:
    assert engine_cache.read_status("auto", tmp_path) == ""


def test_the_last_look_is_said_until_something_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked(tmp_path, "none", monkeypatch)
    assert engine_cache.read_status("auto", tmp_path) == _LINE
    assert Home(tmp_path / "profiles" / "p").no_sandbox.read_text().endswith(f"{_LINE}\n")
    looked(tmp_path, "bubblewrap", monkeypatch)
    assert engine_cache.read_status("auto", tmp_path) == ""


def test_another_program_or_kernel_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(tmp_path, "none", monkeypatch)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "bwrap").write_text("a new one")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert engine_cache.read_status("auto", tmp_path) == ""


def test_a_broken_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / engine_cache.FILE).write_bytes(b"\xff\xfe")
    assert engine_cache.read_status("auto", tmp_path) == ""
