"""What is read without YAML is what YAML reads."""

from __future__ import annotations

import random

import pytest

from whet.config.fields import sections
from whet.config.plain_file import PlainField, PlainSection, read_plain
from whet.config.yaml_file import parse
from whet.contract.errors import ConfigError

PLAIN = """# of mine
model:
  provider: openai   # the account of the firm
  base_url: http://127.0.0.1:8080/v1
  model: 'gpt 5: large # not a comment'

approval:  # careful
    mode: "ask"
    # nothing else
review:
"""


def read_by_yaml(text: str) -> list[PlainSection] | None:
    """Give the same from YAML's own reader; None where it refuses the text."""
    try:
        nodes = parse(text, "config.yaml")
    except ConfigError:
        return None
    return [
        PlainSection(
            node.name,
            node.key.line + 1,
            [PlainField(entry.name, entry.line, entry.value) for entry in node.entries],
        )
        for node in nodes
    ]


def test_a_file_of_plain_lines_is_read_as_yaml_reads_it() -> None:
    found = read_plain(PLAIN)
    assert found is not None
    assert [section.name for section in found] == ["model", "approval", "review"]
    assert [field.value for field in found[0].fields] == [
        "openai",
        "http://127.0.0.1:8080/v1",
        "gpt 5: large # not a comment",
    ]
    assert found == read_by_yaml(PLAIN)


@pytest.mark.parametrize(
    "line",
    [
        "  model: null", "  model:", "  model: ~", "  model: a b", "  model: [a, b]", "  model: {a: b}",
        "  - a", "   model: a", "  provider: twice", "  model: a: b", "  model: a:", "  model: &a b",
        "  model: !!str b", "  model: 'it''s'", '  model: "a\\n"', "  model: |", "\tmodel: a",
        "  model: \u00e9", "---", "  model: a\r", "  model: a\u2028", "# a\u2028  model: b", "  'model': a",
        "  model:a", "model: a", "  model: a\x85", "  model: *a", "  model: 'a", "  ? a", "  <<: a",
        "  model: a#b", "  model: @a", "  model: -", "...",
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_left_to_yaml(line: str) -> None:
    assert read_plain(f"model:\n  provider: x\n{line}\n") is None


def test_whatever_is_read_is_read_alike() -> None:
    """Lines put together by chance, of pieces that mean something to YAML."""
    chance = random.Random(18)
    names = [*sections(), "a", "b_2"]
    values = [
        "x", "1", "0x1f", "1.5", "1e3", ".5", "true", "no", "2026-11-24", "12:30", "a:b", "a/b", "/x", "a-b",
        "null", "Null", "NULL", "nULL", "'null'", '"~"', "'a # b'", '"a: b"', "''", '""', "' '", "a.b@c+d",
        "=", "<<", "a#b", "0o7", "1_000", "NaN", "inf", "a:", "x ", "[", "]", "{}", "'a' b", "-1", "+1",
        "http://h:1/v",
    ]  # fmt: skip

    def field() -> str:
        name, value = chance.choice(names), chance.choice(values)
        indent, gap = " " * chance.choice([1, 2, 2, 2, 4]), chance.choice([" ", " ", "  ", ""])
        return f"{indent}{name}:{gap}{value}{chance.choice(['', '', ' # c', '#c', ' '])}"

    def section() -> str:
        return f"{chance.choice(names)}:{chance.choice(['', ' ', ' # c', '# c', ' x'])}"

    def other() -> str:
        return chance.choice(["", " ", "# c", "   # c: d", "\t", "---", "- a", "%YAML 1.2"])

    pieces = [section, field, other]
    read = 0
    for _ in range(20_000):
        text = "\n".join(chance.choice(pieces)() for _ in range(chance.randint(1, 5)))
        if (found := read_plain(text)) is not None:
            read += 1
            assert found == read_by_yaml(text), text
    assert read > 1_000
