"""The order is fixed, names are unique, settings are checked, and stored bytes come back the same."""

from __future__ import annotations

import msgspec
import pytest

from whet.contract.errors import BadInput, ConfigError
from whet.contract.tools import Tool, ToolContext
from whet.tools.registry import Registry, read_specs
from whet.tools.signature import tool


def make(name: str, toolset: str) -> Tool:
    async def function(ctx: ToolContext, zeta: str, alpha: int = 3) -> str:
        """Do it."""
        return zeta * alpha

    function.__name__ = name
    return tool(toolset=toolset, effects={"read"})(function)


@pytest.fixture
def registry() -> Registry:
    return Registry([make("write_file", "file"), make("terminal", "terminal"), make("ask_db", "db")])


def test_order_is_the_one_given(registry: Registry) -> None:
    assert [spec.name for spec in registry.specs()] == ["write_file", "terminal", "ask_db"]
    assert [s.name for s in registry.select(["db", "file"]).specs()] == ["write_file", "ask_db"]


def test_a_known_toolset_without_tools_is_no_error(registry: Registry) -> None:
    assert registry.select(["web", "file"], ["write_file"]).specs() == ()


def test_a_second_tool_of_that_name_is_refused(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="two tools are named terminal"):
        registry.add(make("terminal", "db"))


def test_wrong_settings_name_the_nearest(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="'terminl', did you mean terminal"):
        registry.select(["terminl"])
    with pytest.raises(ConfigError, match="unknown tool 'writefile', did you mean write_file"):
        registry.select(["file"], ["writefile"])


def test_an_unknown_tool_names_the_nearest(registry: Registry) -> None:
    assert registry.get("terminal").toolset == "terminal"
    with pytest.raises(BadInput, match="did you mean write_file") as caught:
        registry.get("write_fil")
    assert caught.value.kind == "unknown_tool"
    assert "ask_db" in caught.value.hint


def test_stored_bytes_come_back_the_same(registry: Registry) -> None:
    stored = registry.tools_json
    assert msgspec.json.encode(read_specs(stored)) == stored
    assert stored.index(b'"zeta"') < stored.index(b'"alpha"')
