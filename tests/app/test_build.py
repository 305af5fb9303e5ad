"""Starting a program and closing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.rig import write
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.contract.protocols import NobodyPresent

LEAVES_A_NOTE = """
    def register(ctx):
        ctx.on_unload(lambda: (ctx.home / "unloaded").touch())
"""
PRACTICE = {"model.provider": "practice", "model.model": "practice"}


async def test_a_start_that_fails_unloads_the_plugins(home: Path, tmp_path: Path) -> None:
    write(home, "note", LEAVES_A_NOTE)
    wrong = {"mcp.servers": '{"no name": {"command": "true"}}'}
    settings = load(Home(home), {**PRACTICE, **wrong, "plugins.enabled": ["note"]}, environ={}).settings
    with pytest.raises(ConfigError, match="not a name for a server"):
        await App.start(Home(home), settings, {}, NobodyPresent(), tmp_path)
    assert (home / "unloaded").exists()


async def test_closing_a_program_twice_does_nothing(home: Path, tmp_path: Path) -> None:
    settings = load(Home(home), PRACTICE, environ={}).settings
    app = await App.start(Home(home), settings, {}, NobodyPresent(), tmp_path)
    await app.aclose()
    await app.aclose()
