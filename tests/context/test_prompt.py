"""What a session's system prompt says, and to whom."""

from __future__ import annotations

from pathlib import Path

from whet.context.prompt import system_prompt


def test_only_a_helper_is_told_that_nobody_answers_and_what_is_handed_back(tmp_path: Path) -> None:
    own, helper = system_prompt(tmp_path, []), system_prompt(tmp_path, [], child=True)
    told = "Your last message is the only thing that\nis handed back"
    assert told in helper and told not in own
    assert f"Workspace: {tmp_path}" in helper and f"Workspace: {tmp_path}" in own


def test_each_part_stands_once_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Run ./check.\n")
    text = system_prompt(tmp_path, ["file"], instructions=" Be short.\n", learned="Memory: none.")
    parts = [
        "(file tools stay inside).",
        "The person's standing instructions:\nBe short.\n\n",
        "The project's instructions (AGENTS.md):\nRun ./check.\n\n",
        "Memory: none.",
    ]
    assert [text.count(part) for part in parts] == [1, 1, 1, 1]
    assert sorted(parts, key=text.index) == parts
    bare = system_prompt(tmp_path / "sub", [], instructions="  ")
    assert "file tools" not in bare and "instructions:" not in bare and "(AGENTS.md)" not in bare
