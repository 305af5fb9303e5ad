"""The documents hold: every module can be found, no link is dead, what is generated is fresh and short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
LINK = re.compile(r"(?<!`)\[[^\]\n]+\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    """The text of a page without its code blocks, where brackets mean something else."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"^    .*$", "", text, flags=re.M)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    dead: list[str] = []
    for target in LINK.findall(prose(page)):
        name, _, anchor = target.partition("#")
        if "://" in name:
            continue
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert not dead


def test_every_module_is_named() -> None:
    named = (ROOT / "README.md").read_text("utf-8") + (ROOT / "docs" / "tree.md").read_text("utf-8")
    modules = [path for path in (ROOT / "src" / "whet").rglob("*.py") if path.name != "__init__.py"]
    assert modules
    assert not [path.name for path in modules if path.name not in named]


def test_the_readme_draws_every_folder() -> None:
    drawn = (ROOT / "README.md").read_text("utf-8")
    folders = [path.parent.name for path in (ROOT / "src" / "whet").glob("*/__init__.py")]
    assert not [name for name in folders if f"{name}/" not in drawn]


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(LINK.findall(prose(ROOT / "README.md")))
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert not pages - linked


@pytest.mark.parametrize("script", ["commands.py", "tree.py"])
def test_generated_pages_are_fresh(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "limit"),
    [("README.md", 150), ("AGENTS.md", 60), ("docs/gotchas.md", 200), ("docs/tree.md", 700)],
)
def test_pages_stay_short(name: str, limit: int) -> None:
    assert (ROOT / name).read_text("utf-8").count("\n") <= limit
