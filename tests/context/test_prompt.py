"""What a session's system prompt says, and to whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from whet.clock import local_time
from whet.context.prompt import PROJECT_FILES, project_instructions, system_prompt, volatile_note


def test_only_a_helper_is_told_that_nobody_answers_and_what_is_handed_back(tmp_path: Path) -> None:
    own, helper = system_prompt(tmp_path, []), system_prompt(tmp_path, [], child=True)
    text = "Your last message is the only thing that\nis handed back"
    assert text in helper and text not in own
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


def test_the_first_readable_file_with_text_is_the_projects(tmp_path: Path) -> None:
    (tmp_path / ".agents").mkdir()
    for name in PROJECT_FILES:
        (tmp_path / name).write_text(f"RULES OF {name}")
    for name in PROJECT_FILES:
        assert project_instructions(tmp_path) == f"The project's instructions ({name}):\nRULES OF {name}"
        (tmp_path / name).write_text(" \n")
    assert project_instructions(tmp_path) == ""
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text("STRANGE")
    (tmp_path / PROJECT_FILES[0]).unlink()
    (tmp_path / PROJECT_FILES[0]).symlink_to(outside)
    (tmp_path / PROJECT_FILES[1]).write_text("OURS")
    assert project_instructions(tmp_path).endswith(":\nOURS"), "a link out of the workspace is left alone"


def test_instructions_above_the_workspace_count_up_to_the_repository(tmp_path: Path) -> None:
    workspace = tmp_path / "repo" / "packages" / "web"
    workspace.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("ABOVE THE REPOSITORY")
    (tmp_path / "repo" / "AGENTS.md").write_text("OF THE REPOSITORY")
    (workspace / "CLAUDE.md").write_text("OF THE PACKAGE")
    package = "The project's instructions (CLAUDE.md):\nOF THE PACKAGE"
    assert project_instructions(workspace) == package
    (tmp_path / "repo" / ".git").mkdir()
    above = "The project's instructions (../../AGENTS.md):\nOF THE REPOSITORY"
    assert project_instructions(workspace) == f"{above}\n\n{package}"
    (workspace / "CLAUDE.md").unlink()
    (workspace / "AGENTS.md").symlink_to("../../AGENTS.md")
    assert project_instructions(workspace) == "The project's instructions (AGENTS.md):\nOF THE REPOSITORY"


def test_a_long_file_is_cut_at_12_000_characters(tmp_path: Path) -> None:
    for letter in "x😀":
        (tmp_path / "AGENTS.md").write_text(letter * 12_000)
        assert project_instructions(tmp_path).endswith(":\n" + letter * 12_000)
    (tmp_path / "AGENTS.md").write_text("x" * 12_001)
    assert "cut" in project_instructions(tmp_path)


def test_the_note_of_a_turn_says_when_where_and_how_far(tmp_path: Path) -> None:
    now = datetime(2026, 11, 21, 9, 5, tzinfo=UTC)
    assert volatile_note(now, Path("/w"), 7) == "[2026-11-21 09:05 UTC, Saturday; in /w; at most 7 steps]"
    assert volatile_note(now, Path("/w"), 7, "sub") == (
        "[2026-11-21 09:05 UTC, Saturday; in /w, commands in sub; at most 7 steps]"
    )


@pytest.mark.parametrize(
    ("zone", "when"),
    [
        ("Pacific/Kiritimati", "2026-11-22 14:05 UTC+14:00 (Pacific/Kiritimati), Sunday"),
        ("America/St_Johns", "2026-11-21 20:35 UTC-03:30 (America/St_Johns), Saturday"),
        ("Europe/London", "2026-11-22 00:05 UTC+00:00 (Europe/London), Sunday"),
        ("Etc/UTC", "2026-11-22 00:05 UTC, Sunday"),
    ],
)
def test_the_note_has_the_date_of_the_person_and_their_offset(zone: str, when: str) -> None:
    moment = local_time(datetime(2026, 11, 22, 0, 5, tzinfo=UTC), zone)
    assert volatile_note(moment, Path("/w"), 7) == f"[{when}; in /w; at most 7 steps]"
