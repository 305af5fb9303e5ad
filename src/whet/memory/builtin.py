"""The skills that come with the program, as package data."""

from __future__ import annotations

from pathlib import Path

from whet.memory.library import Library

FOLDER = Path(__file__).with_name("builtin_skills")


def add_builtin(library: Library) -> None:
    """Offer them; a skill of the home's of the same name stands before them."""
    for name, description in DESCRIPTIONS.items():
        library.offer(name, FOLDER / name, "built-in", description)


# Here too, so that a session's start reads no file for them; a test holds the two together.
DESCRIPTIONS = {
    "debug-failing-test": "Find out why a test fails and fix the cause. For a red, flaky or hanging test.",
    "find-slow-code": "Measure where a program spends its time and make it faster. For slow code or memory.",
    "migrate-data-safely": "Change stored data or a schema without losing any. For migrations, bulk edits.",
    "review-a-diff": "Review a change for defects before it is merged. For a diff, branch or pull request.",
    "write-a-commit": "Split work into commits and write their messages. Before committing.",
}
