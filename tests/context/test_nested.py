"""Which instructions stand behind a call's result: by the places it names, how much of them, how often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from whet.context.prompt import NestedInstructions, add_instructions
from whet.contract.messages import Message
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec, clip


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


class Calls:
    """Calls of one tool in one session, which says `text` each time."""

    def __init__(self, workspace: Path, history: Sequence[Message] = (), cap: int = 20_000) -> None:
        self.text, self.error_kind = "result", ""

        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            return ToolOutput(self.text, self.error_kind)  # type: ignore[arg-type]

        plain = Tool(
            ToolSpec("t", "", {}), "t", frozenset(), run, tags=frozenset({"path"}), output_cap_chars=cap
        )
        self.tool = add_instructions({"t": plain}, workspace, lambda: history)["t"]

    def __call__(self, **arguments: Any) -> str:
        return asyncio.run(self.tool.run(None, arguments)).text  # type: ignore[arg-type]

    def folders(self, **arguments: Any) -> list[str]:
        return [part.split("/ (")[0] for part in self(**arguments).split("[Instructions for ")[1:]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for folder in ("a", "a/b", "c"):
        write(tmp_path / "w" / folder / "AGENTS.md", f"RULES OF {folder}\n")
    write(tmp_path / "w/AGENTS.md", "ROOT")
    return tmp_path / "w"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "a/x.py"}, ["a"]),
        ({"path": "a/b"}, ["a", "a/b"]),
        ({"path": "a/b/no/x.py"}, ["a", "a/b"]),
        ({"path": "x.py"}, []),
        ({"path": ""}, []),
        ({"path": 3, "workdir": "c"}, ["c"]),
        ({"path": "c/x", "workdir": "a"}, ["c", "a"]),
        ({"path": "../w/c/x"}, ["c"]),
        ({"path": "../elsewhere/x"}, []),
        ({"path": "a\0b"}, []),
        ({"content": "a/x.py"}, []),
        ({"diff": "--- a/a/x.py\n+++ b/a/x.py\t2026\n@@\n-a/c/y\n+++c/z\n"}, ["a"]),
        ({"diff": "--- /dev/null\n+++ c/new.py\n"}, ["c"]),
        ({"diff": ["--- a/a/x.py"]}, []),
    ],
)
def test_a_call_brings_the_instructions_of_the_places_it_names(
    work: Path, arguments: dict[str, Any], expected: list[str]
) -> None:
    assert Calls(work).folders(**arguments) == expected


def test_the_text_stands_behind_the_result_with_its_source(work: Path) -> None:
    call = Calls(work)
    text = call(path="c/x")
    assert text.startswith("result\n\n[Instructions for c/ (AGENTS.md): the project's own,")
    assert text.endswith("]\nRULES OF c")
    assert call(path="c/y") == "result", "once in a session"


def test_instructions_of_the_transcript_are_not_given_again(work: Path) -> None:
    text = Calls(work)(path="a/b/x")
    message = Message("tool", text, tool_call_id="1")
    assert Calls(work, [message]).folders(path="a/b/x") == []
    assert Calls(work, [message]).folders(path="c/x") == ["c"]
    for other in (
        Message("user", text),
        Message("tool", "x\n\n[Instructions for a/ (AGENTS.md): as I say", tool_call_id="1"),
    ):
        assert Calls(work, [other]).folders(path="a/b/x") == ["a", "a/b"], "only a result of ours counts"


@pytest.mark.parametrize(("kind", "count"), [("bad_input", 0), ("denied", 0), ("failed", 1), ("", 1)])
def test_a_call_that_did_not_run_brings_none(work: Path, kind: str, count: int) -> None:
    call = Calls(work)
    call.error_kind = kind
    assert len(call.folders(path="c/x")) == count
    call.error_kind = ""
    assert len(call.folders(path="c/x")) == 1 - count


def test_a_call_of_the_file_itself_counts_as_given(work: Path) -> None:
    call = Calls(work)
    assert call.folders(path="c/AGENTS.md") == [] == call.folders(path="c/x")
    write(work / "d/CLAUDE.md", "RULES")
    assert call.folders(path="a/b/AGENTS.md") == ["a"]
    assert call.folders(path="d/AGENTS.md") == ["d"], "another file than the one that counts"


def test_four_files_at_most_come_with_one_call_and_the_next_brings_the_rest(work: Path) -> None:
    deep = "/".join("efghij")
    for depth in range(1, 7):
        write(work / "/".join("efghij"[:depth]) / "AGENTS.md", f"RULES {depth}")
    call = Calls(work)
    assert call.folders(path=f"{deep}/x") == ["e", "e/f", "e/f/g", "e/f/g/h"]
    assert call.folders(path=f"{deep}/x") == ["e/f/g/h/i", deep]


def test_an_empty_or_unreadable_file_gives_way_to_the_next(work: Path) -> None:
    write(work / "d/AGENTS.md", " \n")
    write(work / "d/CLAUDE.md", "CLAUDE")
    (work / "e").mkdir()
    (work / "e/AGENTS.md").mkdir()
    write(work / "e/CLAUDE.md", "CLAUDE")
    call = Calls(work)
    assert call.folders(path="d/x") == ["d"] and call.folders(path="e/x") == ["e"]
    write(work / "f/AGENTS.md", "")
    assert call.folders(path="f/x") == []
    write(work / "f/AGENTS.md", "LATER")
    assert call.folders(path="f/x") == ["f"], "what had none yet may get some"


@pytest.mark.parametrize("cap", [20_000, 1_000])
def test_a_long_result_makes_room_for_them(work: Path, cap: int) -> None:
    call = Calls(work, cap=cap)
    assert call.tool.output_cap_chars == cap + 4 * 6_500
    call.text = "y" * 50_000
    text = call(path="c/x")
    found = text[text.index("[Instructions") :]
    room = 19_800 - len(found) if cap == 20_000 else 2_000
    assert text == f"{clip(call.text, room)}\n\n{found}"
    call.text = "y"
    write(work / "e/AGENTS.md", "😀" * 6_000)
    assert call(path="e/x").endswith(".]\n" + "😀" * 6_000)
    for size in (6_000, 6_001):
        write(work / f"d{size}/AGENTS.md", "z" * size)
        part = call(path=f"d{size}/x").split(".]\n", 1)[1]
        assert part == clip("z" * size, 6_000) and ("cut" in part) is (size > 6_000)


def test_without_places_or_of_another_machine_a_tool_stays_itself(work: Path) -> None:
    plain = Calls(work).tool
    nested = NestedInstructions(work, list)
    for tags in ({"mcp", "path"}, {"web"}):
        tool = Tool(plain.spec, "t", frozenset(), plain.run, tags=frozenset(tags))
        assert nested.wrap(tool) is tool
