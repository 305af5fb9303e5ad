"""Templates from a program: built, listed, loaded, deleted, without the command line or the tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whet
from tests.support import FixedClock
from tests.warm.stores import open_store, pitfalls
from whet.config.paths import Home
from whet.warm.mine import MiningScope


def test_a_program_builds_lists_loads_and_deletes(tmp_path: Path, clock: FixedClock) -> None:
    home = tmp_path / "home"
    home.mkdir()
    database = open_store(home, clock)
    pitfalls(database, clock, 6)
    database.close()
    database.path.rename(Home(home).database)
    built = whet.build_warm("work", tags=["a"], scope=MiningScope(min_messages=1), home=home)
    assert built.template.examples and built.sessions
    assert [(row.name, row.tags) for row in whet.list_warm(home=home)] == [("work", ("a",))]
    template = whet.load_warm("work", home=str(home), apply_to=str(tmp_path))
    assert template.examples == built.template.examples
    whet.delete_warm("work", home=home)
    assert whet.list_warm(home=home) == []
    with pytest.raises(whet.NotFound):
        whet.load_warm("work", home=home)


def test_a_template_of_the_plain_format_loads_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    folder.mkdir()
    plain = {
        "name": "Work-1", "description": "d", "created_at": 1790000000.5, "source_model": "m",
        "examples": [{"tool_name": "read_file", "arguments": {"path": "a"}, "result_summary": "text",
                      "result_success": True, "context_hint": "h"}],
        "system_prompt_addendum": "", "tags": ["x"], "max_examples": 8,
    }  # fmt: skip
    path = folder / "Work-1.json"
    path.write_text(json.dumps(plain))
    before = path.read_bytes()
    template = whet.load_warm("Work-1", home=tmp_path)
    assert (template.name, len(template.examples)) == ("Work-1", 1) and path.read_bytes() == before
