"""The documents hold: every module can be found, no link is dead, what is generated is fresh and short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from whet.cli.group import whet

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


def commands(page: Path) -> Iterator[str]:
    """What each `whet` of a page's code blocks is given, up to a comment, a gap or the shell's own signs."""
    code = "\n".join(re.findall(r"^(?:```.*?^```|    .*?$)", page.read_text("utf-8"), re.M | re.S))
    for typed in re.findall(r"(?:^ *|\$ |\| |&& )(?:\.venv/bin/)?whet ([\w'-].*)", code, re.M):
        yield re.split(r"\s#|\s{2}|\s[|<>]\s|;", typed)[0].replace("[", "").replace("]", "")


def refused(typed: str) -> str:
    """Why the program would not take these arguments; nothing where it would. Values are not looked at."""
    command: click.Command = whet
    context, name, rest = None, "whet", shlex.split(typed)
    try:
        while True:
            context = command.make_context(name, rest, parent=context)
            named = [*vars(context).get("_protected_args", ()), *context.args]  # the first only until click 9
            rest = named if isinstance(command, click.Group) else []
            if not rest:
                return ""
            assert isinstance(command, click.Group)
            found, inner, rest = command.resolve_command(context, rest)
            assert inner is not None
            command, name = inner, found or ""
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return ""
    except click.UsageError as error:
        of_value = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
        return "" if of_value else error.format_message()


def test_each_command_of_the_pages_is_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    typed = [(page.name, line) for page in PAGES if page.name != "commands.md" for line in commands(page)]
    assert len(typed) > 150
    assert not [(*one, why) for one in typed if (why := refused(one[1]))]


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
    [("README.md", 150), ("AGENTS.md", 60), ("docs/gotchas.md", 280), ("docs/tree.md", 1000)],
)
def test_pages_stay_short(name: str, limit: int) -> None:
    assert (ROOT / name).read_text("utf-8").count("\n") <= limit
