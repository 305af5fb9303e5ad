"""A deny rule for files holds for the file that is opened, also if a link is changed after the check."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.running import context
from whet.contract.channels import Outgoing
from whet.contract.errors import ToolError
from whet.contract.tools import Tool
from whet.gateway.files import send_file_tool
from whet.lanes import ToolPool
from whet.sandbox.path_rules import PathRules, read_path_rules
from whet.tools.registry import Registry
from whet.tools.toolsets.files import FileTools

_SECRET = "HUNTER2\n"
_DENY = ("read_file(secrets/*)",)
_LINKS = {"link": "secrets/a", "door": "secrets"}


class _ThenChanged(PathRules, frozen=True):
    """Rules after whose verdict another program changes the links."""

    change: Callable[[], None] = lambda: None

    def find(self, path: str | Path, workspace: str | Path, *, writes: bool) -> str:
        verdict = super().find(path, workspace, writes=writes)
        self.change()
        return verdict


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/a").write_text(_SECRET)
    (tmp_path / "open").mkdir()
    (tmp_path / "open/a").write_text("fine\n")
    os.symlink("open/a", tmp_path / "link")
    os.symlink("open", tmp_path / "door")
    return tmp_path


def _rules(workspace: Path) -> PathRules:
    def change() -> None:
        for name, target in _LINKS.items():
            os.symlink(target, workspace / "new")
            os.replace(workspace / "new", workspace / name)

    return _ThenChanged(read_path_rules(_DENY).rules, change)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "link"}),
        ("read_file", {"path": "door/a"}),
        ("read_file", {"path": "door"}),
        ("write_file", {"path": "link", "content": "x\n"}),
        ("write_file", {"path": "door/a", "content": "x\n"}),
        ("patch", {"path": "link", "old_string": "HUNTER2", "new_string": "x"}),
        ("patch", {"path": "door/a", "old_string": "fine", "new_string": "x"}),
        ("patch", {"diff": "--- a/door/a\n+++ b/door/a\n@@ -1 +1 @@\n-HUNTER2\n+x\n"}),
        ("send_file", {"path": "link"}),
        ("send_file", {"path": "open/a", "more": ["door/a"]}),
    ],
    ids=str,
)
def test_a_link_that_changes_after_the_check_leads_to_no_protected_file(
    workspace: Path, name: str, arguments: dict[str, Any]
) -> None:
    posted: list[Outgoing] = []

    async def post(_session_id: str, message: Outgoing) -> bool:
        posted.append(message)
        return True

    rules = _rules(workspace)
    tools = Registry([*FileTools(ToolPool(1), rules=rules), send_file_tool(post, 100, rules)])
    text = _run(tools.get(name), workspace, arguments)
    assert "HUNTER2" not in text.replace(repr(arguments), "")
    assert (workspace / "secrets/a").read_text() == _SECRET
    assert not any("secrets" in str(msgspec.structs.asdict(message)) for message in posted)


def _run(tool: Tool, workspace: Path, arguments: dict[str, Any]) -> str:
    try:
        return asyncio.run(tool.run(context(workspace), arguments)).text
    except ToolError as error:
        return error.message


def test_a_listed_folder_is_the_one_that_was_checked(workspace: Path) -> None:
    (workspace / "open/b").write_text("")
    tools = Registry(FileTools(ToolPool(1), rules=_rules(workspace)))
    assert "b  0" in _run(tools.get("read_file"), workspace, {"path": "door"})


@pytest.mark.parametrize("ripgrep", ["rg", None])
def test_a_search_shows_no_line_of_a_folder_that_was_replaced_meanwhile(
    workspace: Path, ripgrep: str | None
) -> None:
    (workspace / "notes").write_text("HUNTERS\n")

    def change() -> None:
        if (workspace / "open").exists():
            os.rename(workspace / "secrets", workspace / "moved")
            os.rename(workspace / "open", workspace / "secrets")

    rules = _ThenChanged(read_path_rules(["read_file(moved/*)"]).rules, change)
    tools = Registry(FileTools(ToolPool(1), ripgrep=ripgrep, rules=rules))
    text = _run(tools.get("search_files"), workspace, {"pattern": "HUNT"})
    assert "HUNTER2" not in text and "1|HUNTERS" in text and "1 match in 1 file" in text


def test_a_search_under_rules_shows_lines_of_every_form(workspace: Path) -> None:
    long_line = "HUNT " + "é" * 3_000
    (workspace / "long").write_text(f"x\n{long_line}\n")
    (workspace / "crlf").write_bytes(b"\xef\xbb\xbfHUNT crlf\r\nHUNT \x1b[1mtwo\r\n")
    (workspace / "utf16").write_bytes("\ufeffHUNT wide\n".encode("utf-16-le"))
    (workspace / "latin").write_bytes("HUNT f\xfcr immer und \xfcber alles\n".encode("latin-1"))
    outputs: list[str] = []
    for rules in (PathRules(), read_path_rules(_DENY)):
        tools = Registry(FileTools(ToolPool(1), rules=rules))
        text = _run(tools.get("search_files"), workspace, {"pattern": "HUNT ", "glob": "*"})
        outputs.append(text.rpartition("\n")[0])
    assert outputs[0] == outputs[1] and all(name in outputs[0] for name in ("long", "crlf", "utf16", "latin"))
