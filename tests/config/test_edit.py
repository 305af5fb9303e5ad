"""Editing config.yaml changes one setting and no other byte that a person wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.config.edit import set_value, unset_value
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError

MINE = """\
# my settings
model:   # the big one
    provider: openai
    model: 'gpt 5'   # try others
    # a thought

    # another
agent:
  max_steps: 12

# the end
"""


def written(home: Path, text: str) -> Home:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_bytes(text.encode())
    return Home(home)


def test_a_value_is_replaced_and_its_comment_stays(home: Path) -> None:
    place = written(home, MINE)
    change = set_value(place, "model.model", "o: 4 #x")
    assert (change.before, change.after) == ("gpt 5", "o: 4 #x")
    assert place.config.read_text() == MINE.replace("'gpt 5'", '"o: 4 #x"')


def test_a_new_field_goes_to_its_section_with_its_indentation(home: Path) -> None:
    place = written(home, MINE)
    set_value(place, "model.max_retries", "2")
    wanted = MINE.replace("# try others\n", "# try others\n    max_retries: 2\n")
    assert place.config.read_text() == wanted


def test_a_new_section_goes_to_the_end_and_a_missing_file_is_made_private(home: Path) -> None:
    place = written(home, MINE)
    set_value(place, "ui.markdown", "no")
    assert place.config.read_text() == MINE + "\nui:\n  markdown: false\n"
    place.config.unlink()
    set_value(place, "ui.markdown", "no")
    assert place.config.read_text() == "ui:\n  markdown: false\n"
    assert place.config.stat().st_mode & 0o777 == 0o600


def test_unset_takes_the_lines_out(home: Path) -> None:
    place = written(home, MINE)
    assert unset_value(place, "model.model").before == "gpt 5"
    assert place.config.read_text() == MINE.replace("    model: 'gpt 5'   # try others\n", "")
    before = place.config.read_text()
    assert unset_value(place, "ui.markdown").before is None
    assert place.config.read_text() == before


@pytest.mark.parametrize(
    ("text", "key", "value", "wanted"),
    [
        ("tools:\n  toolsets:\n    - file\n    # c\n    - web\n    # after\n\n  workspace: x\n",
         "tools.toolsets", "a",
         "tools:\n  toolsets:\n    - a\n    # c\n    # after\n\n  workspace: x\n"),
        ("tools:\n  toolsets:\n  - file\n  - web\nui:\n", "tools.toolsets", None, "ui:\n"),
        ("ui:\n  markdown: no\n", "ui.markdown", None, ""),
        ("a: {}\n\nui:\n  markdown: no\n", "ui.markdown", None, "a: {}\n"),
        ("ui:\n  markdown: no\n  # a thought\n", "ui.markdown", None, "ui:\n  # a thought\n"),
        ("ui: # mine\n  markdown: no\n", "ui.markdown", None, "ui: # mine\n"),
        ("ui: {markdown: true}\n", "ui.show_reasoning", "yes",
         "ui: {markdown: true, show_reasoning: true}\n"),
        ("ui: {markdown: true, show_reasoning: true}\n", "ui.markdown", None, "ui: {show_reasoning: true}\n"),
        ("ui: {markdown: true, show_reasoning: true}\n", "ui.show_reasoning", None, "ui: {markdown: true}\n"),
        ("ui: {}\n", "ui.markdown", "no", "ui: {markdown: false}\n"),
        ("ui:\n", "ui.markdown", "no", "ui:\n  markdown: false\n"),
        ("ui: ~\n", "ui.markdown", "no", "ui: \n  markdown: false\n"),
        ("model:\n  model:\n  provider: x\n", "model.model", "m", "model:\n  model: m\n  provider: x\n"),
        ("model:\n  model: ~ # none\n", "model.model", "m", "model:\n  model: m # none\n"),
        ("agent:\n  instructions: |\n    a\n    b\n\nui: {}\n", "agent.instructions", "c",
         "agent:\n  instructions: c\n\nui: {}\n"),
        ("model:\r\n  model: a\r\n", "model.provider", "b", "model:\r\n  model: a\r\n  provider: b\r\n"),
        ("model:\n  model: a", "model.provider", "b", "model:\n  model: a\n  provider: b\n"),
        ("model:\n  model: a\n", "model.model", "true", 'model:\n  model: "true"\n'),
        ("model:\n  model: é😀 # x\n", "model.model", "b", "model:\n  model: b # x\n"),
        ("approval:\n  mode: ask\n", "approval.allow", "terminal(git *), read_file",
         'approval:\n  mode: ask\n  allow: ["terminal(git *)", read_file]\n'),
    ],
)  # fmt: skip
def test_shapes_that_people_write(home: Path, text: str, key: str, value: str | None, wanted: str) -> None:
    place = written(home, text)
    if value is None:
        unset_value(place, key)
    else:
        set_value(place, key, value)
    assert place.config.read_bytes().decode() == wanted


@pytest.mark.parametrize(
    ("text", "key", "value", "wanted"),
    [
        ("agent:\n  max_steps: abc # x\n", "agent.max_steps", "5", "agent:\n  max_steps: 5 # x\n"),
        ("agent:\n  max_steps: abc\n", "agent.max_steps", None, ""),
        ("agent: {bogus: 1}\n", "agent.max_steps", "5", "agent: {bogus: 1, max_steps: 5}\n"),
        ("agent: {bogus: 1}\n", "agent.bogus", None, ""),
        ("bogus:\n  x: [1, 2]\nui:\n  markdown: a\n", "bogus.x", None, "ui:\n  markdown: a\n"),
        ("agent:\n  max_steps: {a: 1}\n", "agent.max_steps", "5", "agent:\n  max_steps: 5\n"),
        ("agent:\n  max_steps:\n    - [1]\n", "agent.max_steps", None, ""),
        ("mcp:\n  servers: 5\nui:\n  keys: vim\n", "ui.keys", "vi", "mcp:\n  servers: 5\nui:\n  keys: vi\n"),
        ("mcp:\n  servers: 5\n", "mcp.servers", None, ""),
    ],
)
def test_a_setting_is_repaired_whatever_else_is_wrong(
    home: Path, text: str, key: str, value: str | None, wanted: str
) -> None:
    place = written(home, text)
    set_value(place, key, value) if value else unset_value(place, key)
    assert place.config.read_text() == wanted


def test_nothing_is_written_when_the_value_is_not_allowed(home: Path) -> None:
    place = written(home, MINE)
    for key, value, part in [
        ("agent.max_steps", "none", "at least 1"),
        ("confirm.timeout_s", "29", "at least 30"),
        ("model.format", "xml", "chat_completions"),
        ("model.modle", "x", "is not a setting"),
    ]:
        with pytest.raises(ConfigError) as caught:
            set_value(place, key, value)
        assert part in caught.value.message
    assert place.config.read_text() == MINE


def test_a_broken_or_unusual_file_is_left_alone(home: Path) -> None:
    for text in ("model: [\n", "{model: {model: x}}\n", "model:\n  model: x\n...\n"):
        place = written(home, text)
        with pytest.raises(ConfigError):
            set_value(place, "ui.markdown", "no")
        assert place.config.read_text() == text
    assert sorted(path.name for path in home.iterdir()) == [".lock", "config.yaml"]


def test_a_linked_file_stays_a_link_and_keeps_its_mode(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    real = tmp_path / "dotfiles.yaml"
    real.write_text(MINE)
    real.chmod(0o640)
    (home / "config.yaml").symlink_to(real)
    set_value(Home(home), "model.model", "m")
    assert (home / "config.yaml").is_symlink()
    assert "model: m " in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_read_only_file_is_not_replaced(home: Path) -> None:
    place = written(home, MINE)
    place.config.chmod(0o400)
    with pytest.raises(ConfigError, match="is read-only \\(mode 0400\\)"):
        set_value(place, "model.model", "m")
    assert place.config.read_text() == MINE


@pytest.mark.parametrize("value", ["~", "null", "No", "- a", "a: b", "#x", ""])
def test_text_that_yaml_reads_as_something_else_stays_text(home: Path, value: str) -> None:
    place = written(home, MINE)
    set_value(place, "agent.instructions", value)
    assert load(place, environ={}).settings.agent.instructions == value


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40))
def test_any_text_comes_back_as_it_was_set(home: Path, value: str) -> None:
    place = written(home, MINE)
    set_value(place, "agent.instructions", value)
    assert load(place, environ={}).settings.agent.instructions == value
    assert load(place, environ={}).settings.agent.max_steps == 12


LIST = """\
approval:
  allow:
    # what builds
    - terminal(a *)  # often
    # what tests
    - terminal(b *)
    - read_file
  mode: auto
"""


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        (
            "terminal(a *),terminal(c *)",
            '    # what builds\n    - terminal(a *)  # often\n    - "terminal(c *)"\n    # what tests\n',
        ),
        (
            "terminal(b *),terminal(a *),read_file",
            "    # what tests\n    - terminal(b *)\n    # what builds\n    - terminal(a *)  # often\n"
            "    - read_file\n",
        ),
    ],
)
def test_the_comments_in_a_list_stay(home: Path, items: str, lines: str) -> None:
    place = written(home, LIST)
    set_value(place, "approval.allow", items)
    assert place.config.read_text() == f"approval:\n  allow:\n{lines}  mode: auto\n"
    assert load(place, {}, environ={}).settings.approval.allow == tuple(items.split(","))
