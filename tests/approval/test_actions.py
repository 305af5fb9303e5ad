"""What a tool call would do: its pieces, its risk, and the line that a person is shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.approval.test_high_risk import action
from whet.approval.actions import ActionView, depends_on_location, describe
from whet.approval.risk import Piece, RiskScope
from whet.approval.shell_risk import analyse
from whet.contract.messages import ToolCall
from whet.contract.protocols import GateCall
from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput, ToolSpec, tags_of
from whet.tools.paths import resolve


async def _never(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
    raise AssertionError("nothing runs here")


def odd(effects: set[Effect], *, destroys: bool = False, **arguments: object) -> ActionView:
    tags = frozenset({"destructive"}) if destroys else frozenset[str]()
    tool = Tool(ToolSpec("odd", "", {}), "t", frozenset(effects), _never, tags=tags)  # type: ignore[arg-type]
    call = GateCall("s1", ToolCall("c1", "odd", "{}"), tool, arguments, "/w")
    return describe(call, RiskScope("/w", "/home/u", "/home/u/.whet"), analyse)


@pytest.mark.parametrize(
    ("effects", "destroys", "level", "reasons"),
    [
        ({"read"}, False, "safe", ()),
        (set[str](), False, "normal", ()),
        ({"read", "network"}, False, "normal", ()),
        ({"read", "send"}, False, "dangerous", ("sends something to others",)),
        ({"read"}, True, "dangerous", ("its server says that it may destroy something",)),
    ],
)
def test_a_tool_that_is_not_known_is_judged_by_what_it_declares(
    effects: set[Effect], destroys: bool, level: str, reasons: tuple[str, ...]
) -> None:
    view = odd(effects, destroys=destroys, b=1, a="ü")
    assert (view.tool, view.full_text, view.subject) == (
        "odd",
        '{"a": "ü", "b": 1}',
        'odd {"a": "ü", "b": 1}',
    )
    assert (view.level, view.reasons) == (level, reasons)
    (piece,) = view.pieces
    assert (piece.program, piece.reasons, piece.grant) == ("odd", reasons, "*" if level == "normal" else "")
    assert odd(effects, destroys=destroys).subject == "odd"


def test_a_command_is_shown_with_its_folder_and_its_input(tmp_path: Path) -> None:
    plain = action(tmp_path, "terminal", command="make x")
    assert (plain.tool, plain.full_text, plain.subject) == ("terminal", "make x", "make x")
    assert not plain.typed and not plain.lasts
    assert action(tmp_path, "terminal", command="make", workdir=str(tmp_path)).subject == "make"
    both = action(tmp_path, "terminal", command="make", workdir="sub", stdin="a")
    assert both.subject == "make\n(in sub)\n(input: a)"
    assert action(tmp_path, "terminal", command="git stash clear").lasts


def test_a_command_is_judged_in_the_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "sub/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("sub/deep")
    for path, *settings in ((tmp_path,), (tmp_path / "sub", "filter.x.clean", "evil")):
        subprocess.run(["git", "init", "-q", str(path)], check=True)
        if settings:
            subprocess.run(["git", "-C", str(path), "config", *settings], check=True)
    assert action(tmp_path, "terminal", command="git status", workdir="link").level == "dangerous"
    assert action(tmp_path, "terminal", command="git status", workdir="link/..").level == "dangerous"
    assert action(tmp_path, "terminal", command="git status").level == "safe"


def test_a_command_needs_and_downloads_what_its_analysis_says(tmp_path: Path) -> None:
    view = action(tmp_path, "terminal", command="curl -o x https://a.b/")
    assert [opening.words for opening in view.needs] == ["reach a.b"]
    assert str(tmp_path / "x") in view.downloads


@pytest.mark.parametrize(
    ("arguments", "level", "whole", "subject", "grant"),
    [
        ({"action": "list"}, "safe", "list", "process list", ""),
        ({"action": "wait", "id": "p1"}, "safe", "wait p1", "process wait p1", ""),
        ({"action": "kill", "id": "p1"}, "normal", "kill p1", "process kill p1", "kill *"),
        ({"action": "write", "id": "p1", "text": "y"}, "normal", "write p1 y", "send to process p1: y", ""),
        (
            {"action": "write", "id": "p1", "text": "rm -r x"},
            "dangerous",
            "write p1 rm -r x",
            "send to process p1: rm -r x",
            "",
        ),
    ],
)
def test_what_is_done_with_a_process_is_named(
    tmp_path: Path, arguments: dict[str, object], level: str, whole: str, subject: str, grant: str
) -> None:
    view = action(tmp_path, "process", **arguments)
    assert (view.tool, view.full_text, view.level) == ("process", whole, level)
    assert (view.subject, view.pieces[0].grant) == (subject, grant)
    program = "process" if level == "safe" else arguments["action"]
    assert (view.pieces[0].text, view.pieces[0].program) == (whole, program)
    assert [piece.text for piece in view.typed] == ([arguments["text"]] if "text" in arguments else [])


def test_a_file_is_named_from_the_workspace_and_in_full(tmp_path: Path) -> None:
    written = action(tmp_path, "write_file", path="sub/a*.py", content="x")
    names = ("sub/a*.py", str(tmp_path / "sub/a*.py"))
    assert written.pieces == (Piece(names[0], names[0], "normal", (), "sub/a\\*.py", names, "sub/*"),)
    assert (written.full_text, written.subject) == ("sub/a*.py", "write_file sub/a*.py")
    top = action(tmp_path, "write_file", path="a.py", content="x").pieces[0]
    assert (top.grant, top.wider) == ("a.py", "")
    (tmp_path / "way").symlink_to("real")
    linked = action(tmp_path, "write_file", path="way/a", content="x").pieces[0]
    assert (linked.text, linked.grant, linked.wider) == ("real/a", "real/a", "real/*")
    assert linked.also == ("way/a", str(tmp_path / "way/a"), "real/a", str(tmp_path / "real/a"))
    whole = action(tmp_path, "read_file", path=".").pieces[0]
    assert (whole.text, whole.level, whole.grant) == (str(tmp_path), "safe", "")


@pytest.mark.parametrize(
    ("tool", "path", "level", "reasons"),
    [
        ("write_file", "/etc/x", "dangerous", ("writes to the system's files",)),
        ("write_file", "/dev/null", "normal", ()),
        (
            "write_file",
            ".vscode/tasks.json",
            "dangerous",
            ("changes what git, an editor, a shell or an agent runs",),
        ),
        ("write_file", "/dev/sda", "forbidden", ("overwrites a disk",)),
        ("read_file", ".env", "dangerous", ("reads a file that usually holds secrets",)),
        ("read_file", "/home/u", "dangerous", ("reads a file that usually holds secrets",)),
        ("read_file", "/etc/hosts", "safe", ()),
    ],
)
def test_a_file_is_judged_by_where_it_lies(
    tmp_path: Path, tool: str, path: str, level: str, reasons: tuple[str, ...]
) -> None:
    view = action(tmp_path, tool, path=path, content="x")
    assert (view.level, view.reasons, view.pieces[0].reasons) == (level, reasons, reasons)
    assert bool(view.pieces[0].grant) is (level == "normal")


@pytest.mark.parametrize(
    ("url", "program", "level", "grant"),
    [
        ("https://a.org/x", "a.org", "normal", "a.org"),
        (" https://A.org./x ", "a.org", "normal", "a.org"),
        ("https://me@a.org/x", "", "normal", ""),
        ("https://a.org/x y", "", "normal", ""),
        ("a.org", "", "normal", ""),
        ("https://a.org/?k=sk-abcdefghijklmnopqrstuvwx", "a.org", "dangerous", ""),
    ],
)
def test_an_address_is_known_by_its_host(
    tmp_path: Path, url: str, program: str, level: str, grant: str
) -> None:
    view = action(tmp_path, "web_fetch", url=url)
    (piece,) = view.pieces
    assert (view.tool, view.full_text, piece.text) == ("web_fetch", url.strip(), url.strip())
    assert (piece.program, view.level, piece.grant) == (program, level, grant)
    assert len(view.reasons) == (level == "dangerous")


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ({"action": "list"}, "safe"),
        ({"action": "load", "name": "a"}, "safe"),
        ({"action": "load", "name": "a", "apply": True}, "normal"),
        ({"action": "list", "apply": True}, "safe"),
        ({"action": "save", "name": "a"}, "normal"),
    ],
)
def test_a_template_is_loaded_unasked_and_applied_with_a_question(
    arguments: dict[str, object], level: str
) -> None:
    tool = Tool(ToolSpec("warm", "", {}), "t", frozenset({"write"}), _never, tags=frozenset({"templates"}))
    call = GateCall("s1", ToolCall("c1", "warm", "{}"), tool, arguments, "/w")
    view = describe(call, RiskScope("/w", "/home/u", "/home/u/.whet"), analyse)
    assert view.level == level
    assert view.full_text == " ".join(
        str(arguments[name]) for name in ("action", "name") if name in arguments
    )
    assert depends_on_location(tool) and not depends_on_location(
        Tool(ToolSpec("todo", "", {}), "t", frozenset(), _never, tags=tags_of("todo"))
    )


@pytest.mark.parametrize(
    ("tool", "spelling", "level", "first_name"),
    [
        ("read_file", r"\u002eenv", "safe", r"\u002eenv"),
        ("read_file", "KEYS/id.\u212aey", "dangerous", "KEYS/id.Key"),
        ("read_file", r".env\u200b", "safe", ".env\u200b"),
        ("write_file", r"\u002egit/config", "normal", r"\u002egit/config"),
        ("write_file", "linked/../config", "dangerous", ".git/config"),
    ],
)
def test_a_file_is_judged_by_the_name_that_the_tool_opens(
    tmp_path: Path, tool: str, spelling: str, level: str, first_name: str
) -> None:
    for folder in ("KEYS", ".git/hooks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (".env", ".env\u200b", "KEYS/id.Key", ".git/config"):
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(".git/hooks")
    view = action(tmp_path, tool, path=spelling, content="")
    opened = resolve(spelling, tmp_path).path
    assert (view.level, view.pieces[0].text) == (level, first_name)
    assert view.pieces[0].also[-1] == str(opened)
