"""The parts of a text that are right or wrong to the letter."""

from __future__ import annotations

import pytest

from whet.memory.literals import literals, stands_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Run `make check --fast` first.", ["make", "check", "--fast"]),
        ("See https://x.example/a?b=1.", ["https://x.example/a?b=1"]),
        ("Ask ines@acme.dev about it", ["ines@acme.dev"]),
        ("Edit flags/prod.yaml, not .env", ["flags/prod.yaml", ".env"]),
        ("Use --seed or -x.", ["--seed", "-x"]),
        ("Port 8080, v1.2.3 and 40%", ["8080", "v1.2.3", "40%"]),
        ("Set MAX_SIZE in parseArgs of utf8", ["max_size", "parseargs", "utf8"]),
        ("the API is JSON", []),
        ("i.e. this, e.g. that", []),
        ("We ask Ines before deploys", ["ines"]),
        ("Nous demandons à Ines", []),
        ("1. first\n2) second", []),
        ("- Tuesdays", []),
        ("# The Big Heading\nwe ask Ines of the team", ["ines"]),
        ("`...` and `;`", []),
        ("Run `tests/unit`, which reads tests/unit.", ["tests/unit"]),
    ],
)
def test_what_is_a_literal(text: str, found: list[str]) -> None:
    assert literals(text) == found


@pytest.mark.parametrize(
    ("literal", "text", "there"),
    [
        ("8080", "port 8080.", True),
        ("8080", "port 18080", False),
        ("8080", "port 80801 and 8080", True),
        ("80", "version 1.80.2", False),
        ("80", "that is 80. next", True),
        ("80", "80.", True),
        ("80", "a.80", True),
        ("nox", "nox_tests", False),
        ("nox", "nox-tests", True),
        ("-x", "--x", False),
        ("-x", "run -x", True),
        ("-x", "-x-y", True),
        ("x-", "x--", False),
        ("a/b", "a/b", True),
        ("a", "", False),
    ],
)
def test_a_literal_stands_on_its_own(literal: str, text: str, there: bool) -> None:
    assert stands_in(literal, text) is there
