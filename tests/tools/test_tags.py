"""Tools say what they are by tags: nobody else knows their names, and a new one needs no file but its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import whet
from whet.contract import tags as contract
from whet.contract.messages import Message, ToolCall
from whet.contract.tools import Tool, ToolContext, declare, tags_of
from whet.editors.tool_calls import kind_of
from whet.memory.sources import StoredText, read_sources
from whet.review.fork import usable_tools
from whet.review.triggers import shows_recovery
from whet.store.calls import StoredCall
from whet.store.reviews import TurnCall
from whet.tools.signature import tool
from whet.warm import mine

SOURCE = Path(whet.__file__).parent
_QUOTED = re.compile(r"[\"'](\w+)[\"']")
# Folders that script or stage tools, or that map the names of other programs.
STAGES = ("tools", "practice", "evals", "moving", "warm/foreign_calls.py")
# Words that also are names of tools, and what they stand for there.
OTHER_MEANINGS = {
    "memory": "what is remembered: a kind of learned item, its file, a command",
    "terminal": "a toolset of the settings, a finding of the doctor",
    "process": "a column of `whet gateway status`",
    "patch": "an action of skill_manage, a method of HTTP, an argument with a diff, a program, a file of git",
    "todo": "a file of git",
    "write_file": "an action of skill_manage",
    "web_search": "a kind of tool in requests of the APIs of vendors",
    "web_fetch": "a kind of tool in requests of the Messages API",
}
HAVE_THEM = {
    "memory": ("app", "cli", "config", "memory", "review", "serve", "store"),
    "terminal": ("cli/checks.py", "config/schema.py"),
    "process": ("cli/gateway.py",),
    "patch": (
        *(
            "whet_confirm/web/arguments.py",
            "memory/requests.py",
            "memory/settling.py",
            "store/parts.py",
            "memory/skill_changes.py",
            "memory/wording.py",
        ),
        *("approval/danger_files.py", "review/wording.py", "serve/openapi.py", "store/trail.py"),
        "sandbox/git_operations.py",
    ),
    "todo": ("sandbox/git_operations.py",),
    "write_file": ("memory/requests.py", "memory/skill_changes.py", "review/wording.py"),
    "web_search": ("serve/response_tools.py", "serve/client_tools.py"),
    "web_fetch": ("serve/client_tools.py",),
}


def named() -> Iterator[tuple[str, str]]:
    """Every literal outside of the tools that is a tool's name, with its module."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        if place.startswith(STAGES) or place == "contract/tags.py":
            continue
        text = path.read_text("utf-8")
        if not any(tags_of(word) for word in _QUOTED.findall(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and tags_of(node.value):
                yield place, node.value


def test_no_module_but_the_tools_knows_a_tool_by_its_name() -> None:
    strange = [
        f"{text}: {name}"
        for text, name in named()
        if not any(text == there or text.startswith(f"{there}/") for there in HAVE_THEM.get(name, ()))
    ]
    assert strange == [], "ask for a tag of contract.tools.Tag, or import the name from the tool's module"
    assert HAVE_THEM.keys() == OTHER_MEANINGS.keys()


def test_a_tag_that_there_is_not_and_a_second_declaration_are_refused(read_notebook: Tool) -> None:
    with pytest.raises(ValueError, match=r"odd: \['nice'\] are not tags"):
        declare("odd", "nice")  # type: ignore[arg-type]
    assert tags_of("odd") == frozenset()
    assert declare("read_notebook", "local", "path", "probe", "looks") == read_notebook.tags
    with pytest.raises(ValueError, match="read_notebook is declared twice"):
        declare("read_notebook", "local", "looks")
    assert tags_of("read_notebook") == read_notebook.tags
    assert tags_of("never heard of") == frozenset()


def test_the_table_has_every_built_in_tool_and_no_other() -> None:
    built_in = {
        node.name
        for path in (SOURCE / "tools" / "toolsets").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
        and any(
            isinstance(d, ast.Call) and getattr(d.func, "id", "") == "tool_method"
            for d in node.decorator_list
        )
    }
    assert set(contract.BUILT_IN) == built_in and len(built_in) >= 17
    args = frozenset(get_args(contract.Tag))
    assert all(tags and tags <= args for tags in contract.BUILT_IN.values())


@pytest.mark.slow
def test_tags_are_known_before_any_tool_is_imported() -> None:
    code = (
        "import sys; from whet.memory.cases import load_cases; from whet.contract.tools import tags_of;"
        "print(*sorted(tags_of('terminal')), any(name.startswith('whet.tools') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["command", "local", "False"]


@pytest.fixture
def read_notebook() -> Iterator[Tool]:
    """A tool of which no module but this one has heard."""
    tags = declare("read_notebook", "path", "looks", "local", "probe")

    @tool(toolset="file", effects={"read"}, tags=tags)
    async def read_notebook(ctx: ToolContext, path: str) -> str:
        """Read a notebook."""
        return path

    yield read_notebook
    contract.DECLARED.pop("read_notebook")


def test_a_new_tool_that_reads_is_a_probe_of_reviews(read_notebook: Tool) -> None:
    assert usable_tools([read_notebook]) == [read_notebook]
    failed = [
        TurnCall(1, "read_notebook", '{"path": "a"}', "failed"),
        TurnCall(2, "read_notebook", '{"path": "b"}', ""),
    ]
    assert not shows_recovery(failed), "a wrong path is nothing to learn from"


def test_a_new_tool_that_reads_gives_evidence(read_notebook: Tool) -> None:
    calls = (ToolCall("c1", "read_notebook", '{"path": "a.ipynb"}'),)
    rows = [
        StoredText(1, 1, Message("assistant", "", tool_calls=calls)),
        StoredText(2, 1, Message("tool", "the port is 8080", tool_call_id="c1", tool_name="read_notebook")),
    ]
    assert [source.tier for source in read_sources(rows)] == ["own", "observed"]
    assert [source.tier for source in read_sources([_as(row, "gone_tool") for row in rows])][
        -1
    ] == "untrusted"


@pytest.mark.parametrize("name", ["session_search", "delegate_task", "web_fetch"])
def test_a_built_in_tool_is_no_evidence_because_it_is_offered(name: str) -> None:
    rows = [StoredText(2, 1, Message("tool", "the port is 8080", tool_call_id="c1", tool_name=name))]
    assert [source.tier for source in read_sources(rows, trusted=(name, "of_a_plugin"))] == ["untrusted"]
    rows = [StoredText(2, 1, Message("tool", "the port is 8080", tool_call_id="c1", tool_name="of_a_plugin"))]
    assert [source.tier for source in read_sources(rows, trusted=(name, "of_a_plugin"))] == ["observed"]


def _as(row: StoredText, name: str) -> StoredText:
    if row.message.role == "tool":
        return StoredText(
            row.seq, row.turn, Message("tool", row.message.text, tool_call_id="c1", tool_name=name)
        )
    return row


def test_a_new_tool_is_mined_and_one_set_aside_is_not(read_notebook: Tool) -> None:
    assert mine.is_eligible(_stored("read_notebook"))
    assert not mine.is_eligible(_stored("skill_view"))


def test_a_new_tool_has_its_kind_in_an_editor(read_notebook: Tool) -> None:
    assert kind_of("read_notebook") == "read" and kind_of("gone_tool") == "other"


def _stored(name: str) -> StoredCall:
    return StoredCall(seq=2, asked_seq=1, turn=1, step=1, name=name, arguments='{"path": "a"}', result="text")
