"""The documents hold: every module can be found, no link is dead, what is generated is fresh and short."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
import yaml

from tests.support import each
from whet import __version__ as whet_version
from whet.cli.group import whet

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
DECISIONS = ROOT / "docs" / "decisions"
LINK = re.compile(r"(?<!`)\[[^\]\n]+\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    """The text of a page without its code blocks, where brackets mean something else."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"^    .*$", "", text, flags=re.M)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each("page", PAGES)
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


def refused(typed: str, *, with_values: bool = False) -> str:
    """Return why the program would not take these arguments, or an empty string; of values, only if asked."""
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
            text, inner, rest = command.resolve_command(context, rest)
            assert inner is not None
            command, name = inner, text or ""
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return ""
    except click.UsageError as error:
        of_value = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
        return "" if of_value and not with_values else error.format_message()


@pytest.mark.slow
def test_each_command_of_the_pages_is_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    typed = [(page.name, line) for page in PAGES if page.name != "commands.md" for line in commands(page)]
    assert len(typed) > 150
    assert not [(*one, why) for one in typed if (why := refused(one[1]))]


def run_tree(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run docs/tree.py; return its exit code and its output."""
    code = runpy.run_path(str(ROOT / "docs" / "tree.py"))["main"](list(arguments))
    return code, capsys.readouterr().out


def test_every_module_begins_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tree(capsys, "--check") == (0, "")
    _, text = run_tree(capsys)
    modules = [path for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    assert modules
    assert sorted(re.findall(r"^  (\w+\.py): \S", text, re.M)) == sorted(path.name for path in modules)


def test_the_tree_of_a_folder_holds_only_its_modules(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run_tree(capsys, "store")
    assert code == 0
    assert re.findall(r"^src/\S+", text, re.M) == ["src/whet/store/", "src/whet/store/migrations/"]
    assert run_tree(capsys, "src/whet/store/") == (0, text)
    assert run_tree(capsys, "nowhere")[0] == 2


@pytest.mark.slow
def test_a_hint_names_commands_that_exist() -> None:
    errors = runpy.run_path(str(ROOT / "docs" / "errors.py"))
    assert list(errors["missing_commands"]()) == []
    for words in ("cron list", "config set model.model", "hooks lists them"):
        assert errors["is_command"](words.split())
    for words in ("corn list", "cron lst"):
        assert not errors["is_command"](words.split())


def read_option_names(command: click.Command, path: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each command from this one down with the long names of its options."""
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    yield path, {max(option.opts, key=len) for option in options} - {"--help"}
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path, **command.context_settings)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from read_option_names(inner, f"{path} {name}")


def test_the_page_of_commands_holds_every_option() -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    for path, names in read_option_names(whet, "whet"):
        entry = re.search(rf"^\*\*`{path}(?=`| [^a-z]).*?(?=^\*\*`|^##|\Z)", text, re.M | re.S) or re.search(
            rf"^##+ {path}$.*?(?=^\*\*`|^##|\Z)", text, re.M | re.S
        )
        assert entry is not None, path
        assert names <= set(re.findall(r"--[\w-]+", entry[0])), path


def test_the_architecture_draws_every_folder() -> None:
    drawn = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    folders = [path.parent.name for path in (ROOT / "src" / "whet").glob("*/__init__.py")]
    assert folders
    assert not [name for name in folders if f"{name}/" not in drawn]


def test_every_page_is_linked_from_the_index() -> None:
    linked = set(LINK.findall(prose(ROOT / "docs" / "index.md")))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert not pages - linked


def menu(entry: object) -> Iterator[str]:
    """The pages of a site's menu, at any depth."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for inner in cast(list[object], entry):
            yield from menu(inner)
    elif isinstance(entry, dict):
        yield from menu(list(cast(dict[str, object], entry).values()))


def test_the_menu_of_the_site_names_every_page_once() -> None:
    named = list(menu(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    site = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(site["OUTSIDE"])
    assert sorted(named) == sorted(pages | {"decisions/README.md"})


def test_the_site_lists_each_decision_in_order_under_the_number_of_its_file() -> None:
    listed = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))["list_decisions"]()
    rows = re.findall(r"^- \[(\d+)\. [^\]]+\]\(([^)]+)\)$", listed, re.M)
    records = sorted(path.name for path in DECISIONS.glob("0*.md"))
    assert [name for _, name in rows] == records
    # The number of a record that no longer holds stays free.
    assert [int(number) for number, _ in rows] == [int(name[:4]) for name in records]


@each("path", sorted(DECISIONS.glob("0*.md")))
def test_a_decision_says_why_what_and_what_not_in_200_words(path: Path) -> None:
    text = path.read_text("utf-8")
    heads = re.findall(r"^\*\*(Context|Decision|Rejected)\.\*\*", text, re.M)
    assert heads == ["Context", "Decision", "Rejected"]
    assert re.search(r"^\*\d{4}-\d\d-\d\d\*$", text, re.M)
    assert len(text.split()) <= 200


@pytest.mark.slow
@each("page", PAGES)
def test_links_of_the_site_lead_to_its_pages(page: Path) -> None:
    site = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))
    home = str(page.parent.relative_to(ROOT))
    inside = (
        {path.name for path in (ROOT / "docs").glob("*.md")} | set(site["OUTSIDE"]) | set(site["PICTURES"])
    )
    folder = page.parent.relative_to(ROOT / "docs").as_posix() if home.startswith("docs") else ""
    if home.startswith("docs") or page.relative_to(ROOT).as_posix() in site["OUTSIDE"].values():
        text = site["rewritten"](prose(page), home, folder)
        links = LINK.findall(re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.M | re.S))
        names = {target.partition("#")[0] for target in links if "://" not in target} - {""}
        assert not {
            name for name in names if name not in inside and not (ROOT / "docs" / folder / name).exists()
        }


def figures(text: str) -> set[str]:
    """The numbers of a text that are no single digit."""
    return {number.strip(".,") for number in re.findall(r"\d[\d.,]*\d", text)}


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    table = (ROOT / "README.md").read_text("utf-8").split("## Five figures")[1].split("## Read on")[0]
    measured = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    assert not figures(table) - figures(measured)


@pytest.mark.slow
def test_every_distribution_that_a_page_or_a_hint_installs_is_ours() -> None:
    places = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.*")]
    install = r"(?:pip|tool|pipx) install (?:-\S+ )*['\"]?whet(?:\[|['\"]|$)|[\"']whet\["
    wrong = re.compile(install + r"|dependencies = \[[^]]*[\"']whet[\"'\s<>=~!]")
    assert not [
        (path.name, value[0]) for path in places for value in [wrong.search(path.read_text("utf-8"))] if value
    ]


def test_the_locks_hold_what_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"]
    for file, wanted in (
        ("lock.txt", project["project"]["dependencies"] + groups["dev"]),
        ("docs.txt", groups["docs"]),
    ):
        locked = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements" / file).read_text("utf-8"), re.M))
        names = {re.split(r"[\[>=<]", one)[0].replace("_", "-").lower() for one in wanted}
        assert not names - locked
    assert project["project"]["name"] == "whet-agent" and project["project"]["version"] == whet_version


@pytest.mark.parametrize(("name", "limit"), [("README.md", 60), ("AGENTS.md", 60), ("docs/gotchas.md", 150)])
def test_pages_stay_short(name: str, limit: int) -> None:
    assert (ROOT / name).read_text("utf-8").count("\n") <= limit
