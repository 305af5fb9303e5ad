"""The suite stays as large as docs/sandbox.md and docs/confirm-threats.md say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

LEAST_ATTEMPTS, LEAST_CLASSES = 200, 12


def count_attempts() -> dict[str, int]:
    """Return the number of attempts by class, which is the module's name."""
    counts: dict[str, int] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem != "test_count":
            attempts = importlib.import_module(f"tests.attacks.{path.stem}").ATTEMPTS
            counts[path.stem.removeprefix("test_").replace("_", " ")] = len(attempts)
    return counts


@pytest.mark.slow  # for the imports
def test_the_attack_suite_has_enough_attempts_in_enough_classes() -> None:
    counts = count_attempts()
    assert len(counts) >= LEAST_CLASSES and sum(counts.values()) >= LEAST_ATTEMPTS, counts
    assert all(counts.values())
