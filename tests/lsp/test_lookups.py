"""Where a symbol is defined and used, what a file holds, and renames as patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lsp.rig import project
from whet.lsp import loading

FILES = {
    "a.toy": "def area\nuse area\n",
    "b.toy": "😀 area and area\r\nlast area",
    "deep/c.toy": "# areas of no area here? area\n",
}


async def test_definitions_references_and_symbols_are_a_line_each(tmp_path: Path) -> None:
    async with project(tmp_path, files=FILES) as p:

        async def ask(action: str, **more: Any) -> list[str]:
            return (await p.call("code_symbols", action=action, **more)).split("\n")

        assert await ask("definition", path="b.toy", symbol="area") == ["a.toy:1: def area"]
        assert await ask("references", path="a.toy", symbol="area", line=2) == [
            "a.toy:1: def area",
            "a.toy:2: use area",
            "b.toy:1: 😀 area and area",
            "b.toy:2: last area",
            "deep/c.toy:1: # areas of no area here? area",
        ]
        assert await ask("symbols", path="a.toy") == ["1: function area"]
        assert await ask("symbols", symbol="area") == ["a.toy:1: function area"]


async def test_a_question_that_can_not_be_asked_says_what_is_wrong(tmp_path: Path) -> None:
    async with project(tmp_path, files={**FILES, "n.txt": "area"}, deny=["read(deep/*)"]) as p:
        for given, reason in (
            ({"action": "definition", "symbol": "area"}, "name the path of a file"),
            ({"action": "definition", "path": "a.toy"}, "needs the symbol's name"),
            ({"action": "definition", "path": "a.toy", "symbol": "are"}, "does not hold the name are"),
            ({"action": "definition", "path": "a.toy", "symbol": "area", "line": 9}, "has 3 lines"),
            ({"action": "definition", "path": "n.txt", "symbol": "area"}, "no language server for n.txt"),
            ({"action": "definition", "path": "../x.toy", "symbol": "area"}, "outside the workspace"),
            ({"action": "definition", "path": "deep/c.toy", "symbol": "area"}, "deny: read(deep/*)"),
            ({"action": "rename", "path": "a.toy", "symbol": "area"}, "rename needs new_name"),
            ({"action": "paint", "path": "a.toy"}, "must be one of definition"),
        ):
            text = await p.call("code_symbols", **given)
            assert text.startswith("error: ") and reason in text, text


async def test_a_rename_is_a_patch_of_all_files_that_keeps_their_form(tmp_path: Path) -> None:
    async with project(tmp_path, files=FILES) as p:
        text = await p.call("code_symbols", action="rename", path="a.toy", symbol="area", new_name="space")
        assert text.count("patched") == 3
        assert (tmp_path / "a.toy").read_bytes() == b"def space\nuse space\n"
        assert (tmp_path / "b.toy").read_bytes() == "😀 space and space\r\nlast space".encode()
        assert (tmp_path / "deep" / "c.toy").read_text() == "# areas of no space here? space\n"


@pytest.mark.slow
async def test_the_first_question_waits_until_the_server_has_loaded_the_project(tmp_path: Path) -> None:
    for action, count_lines, given in (
        ("references", 5, {"path": "a.toy"}),
        ("symbols", 1, {}),
        ("rename", 3, {"path": "a.toy", "new_name": "space"}),
    ):
        async with project(tmp_path / action, "loads", files=FILES) as p:
            text = await p.call("code_symbols", action=action, symbol="area", **given)
            words = "patched" if action == "rename" else ".toy:"
            assert text.count(words) == count_lines and "loading" not in text, text


async def test_a_server_that_is_still_loading_renames_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOAD_S", 0.01)
    async with project(tmp_path, "busy", files=FILES) as p:
        given: dict[str, Any] = {"path": "a.toy", "symbol": "area"}
        text = await p.call("code_symbols", action="rename", new_name="space", **given)
        assert text.startswith("error: ") and "is still loading the project, so nothing was renamed" in text
        assert {name: (tmp_path / name).read_bytes().decode() for name in FILES} == FILES
        text = await p.call("code_symbols", action="references", **given)
        assert text.endswith("is still loading the project, so places may be missing; ask again later]")
        text = await p.call("code_symbols", action="symbols", symbol="area")
        assert "places may be missing" in text and "a.toy:1: function area" in text


async def test_a_rename_of_a_file_that_a_rule_closes_changes_nothing(tmp_path: Path) -> None:
    for rule in ("read(deep/*)", "write_file(deep/*)"):
        async with project(tmp_path, files=FILES, deny=[rule]) as p:
            text = await p.call(
                "code_symbols", action="rename", path="a.toy", symbol="area", new_name="space"
            )
            assert text.startswith("error: ") and "deep/c.toy" in text, text
            assert {name: (tmp_path / name).read_bytes().decode() for name in FILES} == FILES


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("outside", "which is outside the workspace"), ("resource", "would create, rename or delete a file")],
)
async def test_a_rename_that_reaches_further_than_text_is_refused(
    tmp_path: Path, fault: str, reason: str
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "beside.toy").write_text("area\n")
    async with project(tmp_path / "p", fault, files=FILES) as p:
        text = await p.call("code_symbols", action="rename", path="a.toy", symbol="area", new_name="space")
        assert text.startswith("error: ") and reason in text
        assert (tmp_path / "beside.toy").read_text() == "area\n"


async def test_places_outside_of_the_workspace_are_named_but_not_read(tmp_path: Path) -> None:
    async with project(tmp_path, "outside", files=FILES) as p:
        text = await p.call("code_symbols", action="definition", path="a.toy", symbol="area")
        assert text.split("\n") == [
            "/etc/passwd:1 (outside the workspace)",
            "a file that has no path:1 (outside the workspace)",
        ]


class Editor:
    """An editor that holds one file with unsaved text."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def read(self, path: Path) -> str | None:
        return self.text if path == self.path else None

    def write(self, path: Path, text: str) -> bool:
        if path != self.path:
            return False
        self.text = text
        path.write_text(text)
        return True


async def test_unsaved_text_in_an_editor_is_what_is_looked_at_and_renamed(tmp_path: Path) -> None:
    async with project(tmp_path, files=FILES) as p:
        editor = p.buffers = Editor(p.folder / "a.toy", "\n\ndef area\nuse area\n")
        text = await p.call("code_symbols", action="symbols", path="a.toy")
        assert text == "3: function area"
        await p.call("code_symbols", action="rename", path="a.toy", symbol="area", new_name="space")
        assert editor.text == "\n\ndef space\nuse space\n"
