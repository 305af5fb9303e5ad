"""Which of a command's words are options, operands and code."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.shell.code import find_interpreter_code
from whet.shell.options import before_dashes, has_any, has_option, operands
from whet.shell.programs import ProgramOptions
from whet.shell.words import Word, literal


def words(text: str) -> list[Word]:
    return [literal(word) for word in text.split()]


@each(
    ("text", "has"),
    [
        ("-r", True),
        ("-fr", True),
        ("-R", False),
        ("r", False),
        ("-", False),
        ("--recursive", True),
        ("--rec", True),
        ("--recursive=x", True),
        ("--recursively", False),
        ("--", False),
        ("--=x", False),
        ("-- -r", True),
        ("a -r", True),
        ("-x --recursive", True),
        ("", False),
    ],
)
def test_an_option_is_found_in_a_cluster_and_when_it_is_abbreviated(text: str, has: bool) -> None:
    assert has_option(words(text), "r", "recursive") is has
    assert has_any(words(text), ProgramOptions("-r --recursive")) is has


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b", "a b"),
        ("-x a", "a"),
        ("-v a b", "b"),
        ("-xv a b", "a b"),
        ("--vv a", "a"),
        ("- a", "- a"),
        ("-- -v a -- b", "-v a -- b"),
        ("a -v", "a"),
        ("-v -- a", "a"),
        ("-vv a b", "a b"),
        ("", ""),
    ],
)
def test_operands_are_what_is_no_option_and_no_value_of_one(text: str, found: str) -> None:
    assert [word.text for word in operands(words(text), "v")] == found.split()
    assert [word.text for word in before_dashes(words("a -- b"))] == ["a"]


@each(
    ("program", "text", "code"),
    [
        ("python", "-c x y", ["x"]),
        ("python3.11", "-c x", ["x"]),
        ("python", "-cx y", ["x"]),
        ("python", "-W ignore -c x", ["x"]),
        ("python", "-W -c x", None),
        ("python", "-c", []),
        ("python", "", []),
        ("python", "-", []),
        ("python", "- a", []),
        ("python", "-x", []),
        ("python", "a.py", None),
        ("python", "a.py -c x", None),
        ("python", "-m a", None),
        ("python", "--version", None),
        ("python", "-V", None),
        ("node", "-e x", ["x"]),
        ("node", "--eval=x", ["--eval=x"]),
        ("node", "-p x -e y", ["x", "y"]),
        ("node", "a.js", None),
        ("node", "-r m -e x", ["x"]),
        ("perl", "-e x -e y", ["x", "y"]),
        ("perl", "-nex f", ["x"]),
        ("perl", "-e x f", ["x"]),
        ("ruby", "-I lib -e x", ["x"]),
        ("make", "-c x", None),
    ],
)
def test_code_on_the_line_is_found_after_its_option_or_hanging_on_it(
    program: str, text: str, code: list[str] | None
) -> None:
    found = find_interpreter_code(program, words(text))
    assert (None if found is None else [word.text for word in found]) == code
