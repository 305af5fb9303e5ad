"""Processes that change one of the home's files at the same time lose nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from whet.config import edit
from whet.config.load import load
from whet.config.model_servers import ServerDialect
from whet.config.paths import Home
from whet.config.secrets import read_env, set_secret
from whet.hooks.repository import RepositoryHooks, accept, is_accepted
from whet.providers.dialect_memory import note_dialect
from whet.providers.tool_schemas import NO_CUTS
from whet_confirm.gateway.pins import ToolPins

WRITERS = range(8)


def run_together(write: Callable[[int], object]) -> None:
    """Run a write eight times at once. A lock of a file holds between threads as between processes."""
    with ThreadPoolExecutor(len(WRITERS)) as pool:
        list(pool.map(write, WRITERS))


def test_settings_and_tables_of_parallel_writers_are_all_kept(home: Path) -> None:
    def write(number: int) -> None:
        edit.set_table_entry(Home(home), "mcp.servers", f"s{number}", {"command": "true"})
        edit.change_list(Home(home), "tools.disabled", add=(f"tool{number}",))

    run_together(write)
    settings = load(Home(home), environ={}).settings
    assert sorted(settings.mcp.servers) == [f"s{number}" for number in WRITERS]
    assert sorted(settings.tools.disabled) == [f"tool{number}" for number in WRITERS]


def test_keys_of_parallel_writers_are_all_kept(home: Path) -> None:
    run_together(lambda number: set_secret(Home(home), f"KEY_{number}", f"v{number}"))
    assert read_env(Home(home)).values == {f"KEY_{number}": f"v{number}" for number in WRITERS}


def test_accepted_hooks_of_parallel_writers_are_all_kept(home: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"project{number}" for number in WRITERS]
    for folder in folders:
        folder.mkdir()
    repository_hooks = [RepositoryHooks(folder, {}, b"") for folder in folders]
    run_together(lambda number: accept(Home(home), repository_hooks[number]))
    assert all(is_accepted(Home(home), hooks) for hooks in repository_hooks)


def test_dialects_of_parallel_sessions_are_all_kept(home: Path) -> None:
    path = home / "dialects.json"
    run_together(
        lambda number: note_dialect(path, f"k{number}", ServerDialect(), NO_CUTS, date(2026, 11, 30))
    )
    assert sorted(json.loads(path.read_text())) == [f"k{number}" for number in WRITERS]


def test_tools_accepted_by_two_gateways_of_a_server_are_all_kept(home: Path) -> None:
    path = home / "pins.json"
    first, second = ToolPins(path), ToolPins(path)
    first.observe({"tools": [{"name": "a", "inputSchema": {}}]})
    second.observe({"tools": [{"name": "b", "inputSchema": {}}]})
    assert sorted(json.loads(path.read_text())) == ["a", "b"]
