"""Regular expressions of others: decided as Python decides them, and never for longer than the limit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from whet.foreign_regex import RegexTooSlow, regex_matches


@pytest.mark.parametrize(
    ("pattern", "text", "whole", "expected"),
    [
        ("write_.*", "write_file", True, True),
        ("write", "write_file", True, False),
        ("write", "write_file", False, True),
        ("^(Edit|Write)$", "Write", True, True),
        ("a|b", "b", True, True),
        (r"\(a\)+", "(a))", True, True),
        ("[(]{2}", "((", True, True),
    ],
)
def test_an_expression_matches_as_in_python(pattern: str, text: str, whole: bool, expected: bool) -> None:
    assert regex_matches(pattern, text, whole=whole) is expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(ab)+", "ababab", True),
        ("(?i)WRITE_.*", "write_file", True),
        ("(a+)+b", "a" * 12, False),
        (r"(ä|\n)+", "ä\nä", True),
    ],
)
def test_an_expression_that_may_take_long_is_decided_too(pattern: str, text: str, expected: bool) -> None:
    assert regex_matches(pattern, text, whole=True) is expected


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*$", "(?:a?){40}a{60}$", "a?" * 40 + "a{61}$", "(a|a)" * 60 + "$"]
)
def test_an_expression_that_never_ends_is_given_up(pattern: str) -> None:
    with pytest.raises(RegexTooSlow):
        regex_matches(pattern, "a" * 60 + "b")
    with pytest.raises(RegexTooSlow):  # at once: it is remembered
        regex_matches(pattern, "a" * 60 + "b")


@pytest.mark.slow
def test_a_child_that_waits_for_a_processor_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "python"
    late.write_text(f'#!/bin/sh\nsleep 1.2\nexec "{sys.executable}" "$@"\n')
    late.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(late))
    assert regex_matches("(ba)+", "baba")


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "(" * 5_000])
def test_what_is_not_an_expression_is_an_error(pattern: str) -> None:
    with pytest.raises(re.error):
        regex_matches(pattern, "a")
