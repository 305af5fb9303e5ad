"""Settings that hold named entries: read from YAML, JSON and the environment, edited entry by entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.config.edit import remove_table_entry, set_table_entry, set_value
from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import ConfigError

KEY = "mcp.servers"
MINE = """\
# mine
mcp:
  servers:  # a few
    one:
      command: run   # it
      args:
        - a b
        - 12
      timeout_s: 5
    # between
    two: {url: "http://x/y", enabled: false}

agent:
  max_steps: 7
"""


@pytest.fixture
def mine(home: Path) -> Home:
    home.mkdir()
    (home / "config.yaml").write_text(MINE)
    return Home(home)


def servers(home: Home) -> dict[str, McpServerSettings]:
    return load(home, environ={}).settings.mcp.servers


def test_a_table_is_read_with_its_types(mine: Home) -> None:
    assert servers(mine) == {
        "one": McpServerSettings(command="run", args=("a b", "12"), timeout_s=5),
        "two": McpServerSettings(url="http://x/y", enabled=False),
    }
    assert load(mine, environ={}).origins[KEY] == "config.yaml line 3"


def test_an_entry_is_added_replaced_and_removed_and_the_rest_stays(mine: Home) -> None:
    part = {"command": "go", "env": {"A": "1", "B": "${C}"}, "timeout_s": 2.5, "enabled": False}
    assert not set_table_entry(mine, KEY, "three", part)
    assert servers(mine)["three"] == McpServerSettings(
        command="go", env={"A": "1", "B": "${C}"}, timeout_s=2.5, enabled=False
    )
    added = mine.config.read_text()
    assert [line for line in MINE.splitlines() if line not in added] == []
    assert set_table_entry(mine, KEY, "three", {"url": "https://z"})
    assert servers(mine)["three"] == McpServerSettings(url="https://z")
    assert remove_table_entry(mine, KEY, "three") and mine.config.read_text() == MINE
    assert remove_table_entry(mine, KEY, "one") and "# mine" in mine.config.read_text()
    assert list(servers(mine)) == ["two"] and not remove_table_entry(mine, KEY, "one")
    assert remove_table_entry(mine, KEY, "two") and servers(mine) == {}
    assert load(mine, environ={}).settings.agent.max_steps == 7


@pytest.mark.parametrize(
    "text", ["", "agent:\n  max_steps: 7\n", "mcp: {}\n", "mcp:\n  servers: {a: {command: b}}\n", "mcp:\n"]
)
def test_an_entry_can_be_added_to_any_file(home: Path, text: str) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(text)
    set_table_entry(Home(home), KEY, "new", {"command": "x: y", "args": ["#1", "", "true", "é"]})
    assert servers(Home(home))["new"] == McpServerSettings(command="x: y", args=("#1", "", "true", "é"))
    set_table_entry(Home(home), KEY, "next", {"command": "z"})
    assert "next" in servers(Home(home)) and "new" in servers(Home(home))


def test_the_environment_and_set_take_json(home: Path) -> None:
    given = {"WHET_MCP_SERVERS": '{"a": {"command": "b", "timeout_s": 3}}'}
    assert load(Home(home), environ=given).settings.mcp.servers == {
        "a": McpServerSettings(command="b", timeout_s=3)
    }
    set_value(Home(home), KEY, '{"a": {"url": "http://q"}}')
    assert servers(Home(home)) == {"a": McpServerSettings(url="http://q")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    one: {comand: x}\n", "mcp.servers: one: there is an unknown field `comand`"),
        ("    one: {command: x, timeout_s: soon}\n", "mcp.servers: one.timeout_s: expected `float`"),
        ("    one: {command: x, timeout_s: -1}\n", "mcp.servers: one.timeout_s: expected `float` > 0"),
        ("    one: text\n", "mcp.servers: one: expected `object`"),
        ("    one: {command: x}\n    one: {command: y}\n", "already set in line 3"),
        ("    one: {command: &a x}\n", "anchors"),
    ],
)
def test_a_mistake_is_named_with_its_entry(home: Path, text: str, said: str) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"mcp:\n  servers:\n{text}")
    with pytest.raises(ConfigError) as caught:
        servers(Home(home))
    assert said in caught.value.message and "config.yaml line" in caught.value.message


def test_other_settings_still_take_no_fields(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("agent:\n  max_steps:\n    a: 1\n")
    with pytest.raises(ConfigError, match="not fields of its own"):
        load(Home(home), environ={})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("mcp:\n  servers:\n    ? one\n    : command: run\n", KEY),
        ("agent:\n  max_steps: 7\n...\n", KEY),
        ('{"agent": {"max_steps": 7}}\n', KEY),
        (" agent:\n   max_steps: 7\n", KEY),
        ('{"agent": {"max_steps": 7}}\n', "tools.web_allow_private"),
        ("agent:\n  ? max_steps\n  : 7\n", "agent.max_steps"),
    ],
)
def test_nothing_is_written_where_the_edit_would_change_anything_else(
    home: Path, text: str, key: str
) -> None:
    home.mkdir()
    mine = Home(home)
    mine.config.write_text(text)
    values = {"agent.max_steps": "9", "tools.web_allow_private": "true"}
    with pytest.raises(ConfigError, match="can't be edited by line"):
        if key == KEY:
            set_table_entry(mine, KEY, "two", {"command": "go"})
        else:
            set_value(mine, key, values[key])
    assert mine.config.read_text() == text


ALIASES = """\
model:
  model: fast
  aliases: {fast: vendor/small-5, wise: vendor/large-5, typed: {}}
  extra:
    fast: {provider: {order: [azure], allow_fallbacks: false}, temperature: 0.2, seed: 7, stop: "7"}
fallback: {model: wise}
review: {model: wise}
judge: {model: fast}
context: {summary_model: fast}
"""


def test_an_alias_stands_for_its_model_wherever_a_model_is_named(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(ALIASES.replace(", typed: {}", ""))
    settings = load(Home(home), environ={}).settings
    sections = (settings.fallback, settings.review, settings.judge)
    assert [section.model for section in sections] == ["vendor/large-5"] * 2 + ["vendor/small-5"]
    assert settings.model.model == settings.context.summary_model == "vendor/small-5"
    assert load(Home(home), {"model.model": "wise"}, environ={}).settings.model.model == "vendor/large-5"
    environ = {"WHET_MODEL_MODEL": "other", "WHET_MODEL_ALIASES": '{"other": "mine"}'}
    assert load(Home(home), environ=environ).settings.model.model == "mine"
    routing = {"order": ["azure"], "allow_fallbacks": False}
    wanted = {"provider": routing, "temperature": 0.2, "seed": 7, "stop": "7"}
    assert settings.model.extra == {"fast": wanted}
    set_value(Home(home), "model.extra", '{"wise": {"seed": 8, "safe": true, "user": "8"}}')
    extra = load(Home(home), environ={}).settings.model.extra
    assert extra == {"wise": {"seed": 8, "safe": True, "user": "8"}}


def test_an_alias_is_a_text(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(ALIASES)
    with pytest.raises(ConfigError, match=r"line 3: model\.aliases: typed: expected `str`"):
        load(Home(home), environ={})
