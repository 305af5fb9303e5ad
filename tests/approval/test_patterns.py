"""Rules as text: what they match, and what is not a rule."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.approval.patterns import find_unknown, has_wildcard, matches, parse_rule
from whet.contract.errors import ConfigError


@each(
    ("pattern", "text", "fits"),
    [
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("git status *", "git status", True),
        ("git status *", "git status -s", True),
        ("git status *", "git statusx", False),
        ("git *", "git", True),
        ("git*", "gitk", True),
        ("*", "", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("echo \\*", "echo *", True),
        ("echo \\*", "echo x", False),
        ("rm [a-z]", "rm a", False),
        ("rm [a-z]", "rm [a-z]", True),
        ("a*z", "a\nb\nz", True),
        ("a.c", "abc", False),
        ("a*b*c", "axbxbxc", True),
        ("a*b?c *", "a b_cb_c d", True),
        ("a*b?c *", "a b_cb_cd", False),
        ("end\\", "end\\", True),
    ],
)
def test_a_pattern_fits_the_whole_text(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


@pytest.mark.timeout(60)
def test_a_pattern_of_many_stars_ends() -> None:
    assert not matches("*a" * 16 + "*b", "a" * 2_000)
    assert not matches("*a" * 16 + "*b *", "a" * 2_000)
    assert matches("*a" * 16 + "*", "a" * 2_000)


def test_rules_are_read() -> None:
    assert parse_rule("terminal", "approval.allow").pattern is None
    rule = parse_rule(" terminal( git commit * ) ", "approval.allow")
    assert (rule.tool, rule.pattern) == ("terminal", "git commit *")
    assert parse_rule("terminal(echo (a))", "x").pattern == "echo (a)"
    assert parse_rule("mcp__github__*", "x").tool == "mcp__github__*"


@pytest.mark.parametrize(
    "text", ["", "terminal(", "terminal()", "terminal(git", "git push)", "a b", "terminal)x("]
)
def test_what_is_no_rule_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"approval\.deny") as caught:
        parse_rule(text, "approval.deny")
    assert repr(text) in caught.value.message
    assert "tool(pattern)" in caught.value.hint


def test_only_a_rule_that_names_its_program_covers_what_is_dangerous() -> None:
    named = ["terminal(git push *)", "terminal(git push)", "write_file(/etc/hosts)", "write_file(~/x/*)"]
    broad = [
        "terminal",
        "terminal(*)",
        "terminal(*push*)",
        "terminal(gi? push)",
        "write_file(*)",
        "write_file(**/x)",
    ]
    assert all(parse_rule(text, "x").names_what_runs for text in named)
    assert not any(parse_rule(text, "x").names_what_runs for text in broad)


def test_an_escaped_wildcard_is_none() -> None:
    assert has_wildcard("a*")
    assert not has_wildcard("a\\*")
    assert has_wildcard("a\\\\*")


def test_rules_that_hold_nothing_are_named() -> None:
    held = ["terminal", "write_*", "read(*.env)", "write(docs/*)", "mcp__git__push", "*(x)"]
    holding_nothing = ["read", "write", "termnal(rm *)", "web"]
    assert find_unknown([*held, *holding_nothing], {"terminal", "write_file"}) == holding_nothing
