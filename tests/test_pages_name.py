"""What pages name exists: commands within sentences, values, make targets, benchmarks, extras and files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

from tests.test_pages_run import PLACEHOLDER
from tests.test_readme import PAGES, ROOT, commands, prose, refused

# Generated from help texts; and what was, which need not be any more.
SENTENCES = {"commands.md", "CHANGELOG.md"}
READ = [page for page in PAGES if page.name not in SENTENCES and page.parent.name != "decisions"]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
MAKE = re.compile(r"(?:^|\W)make ([a-z][a-z-]*)")
FILES = re.compile(r"(?:^|[ ./])((?:deploy|examples|benchmarks)/[\w./-]*\w|docs/\w+\.py)")


def missing(text: str) -> Iterator[str]:
    """Yield what a line or a quoted piece of a page names and what is not there."""
    for row in re.findall(r"python -m benchmarks ([a-z][\w-]*)", text):
        yield from [f"benchmarks {row}"] * (row not in BENCHMARKS)
    for names in re.findall(r"(?:whet-agent|\./whet|whet_agent\S*\.whl)\[([\w,-]+)\]", text):
        yield from (f"extra {name}" for name in names.split(",") if name not in EXTRAS)
    for path in FILES.findall(text):
        yield from [path] * (not (ROOT / path).exists())
    if re.match(r"whet (?![A-Z])", text):
        line = re.split(r"\s#|\s{2}|\s[|<>]\s|;", text)[0].replace("[", "").replace("]", "")
        error = refused(line[5:])
        # A command named without what it needs is no fault within a sentence.
        yield from [f"{line}: {error}"] * bool(re.search(r"[Nn]o such (?:command|option)|no command", error))


def pieces(page: Path) -> Iterator[str]:
    """Yield the quoted pieces of a page's sentences, and the lines of its code."""
    text = page.read_text("utf-8")
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))
    for block in re.findall(r"^```.*?^```|^    .*$", text, re.M | re.S):
        yield from (line.strip().removeprefix("$ ") for line in block.splitlines())


@pytest.mark.slow
def test_what_pages_name_exists() -> None:
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "docs/first-hour.md")]
    targets = [target for page in own for piece in pieces(page) for target in MAKE.findall(piece)]
    assert len(targets) > 10 and set(targets) <= TARGETS
    faults = [(page.name, fault) for page in READ for piece in pieces(page) for fault in missing(piece)]
    assert not faults


@pytest.mark.slow
def test_values_that_are_no_placeholder_are_accepted() -> None:
    lines = [(page.name, line) for page in READ for line in commands(page) if not PLACEHOLDER.search(line)]
    wrong = [(*line, error) for line in lines if (error := refused(line[1], with_values=True))]
    wrong = [one for one in wrong if not one[2].endswith("does not exist.")]  # a file of the reader
    assert len(lines) > 150 and not wrong


@pytest.mark.parametrize(
    "text",
    [
        "whet sesions list",
        "whet chat --no-such",
        "python -m benchmarks overhed",
        "pip install 'whet-agent[slak]'",
        "uv tool install './whet[slack,docs]'",
        "docker compose -f deploy/compose.yml up",
    ],
)
def test_a_name_that_is_wrong_is_found(text: str) -> None:
    assert list(missing(text))
