"""A note of one folder reaches no other folder's prompt, and says nothing against another folder's note."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.lessons.world import User, World, add
from click.testing import CliRunner

from tests.memory.home import change, review
from whet.cli.learned_items.memory import memory
from whet.config.paths import Home
from whet.memory.requests import MemoryRequest

MAKE, TOX = "Run the tests with `make check`.", "Run the tests with `tox -e py`."


def read_prompt(world: World, folder: Path | str) -> str:
    part = asyncio.run(world.learning.reader.build_prompt_part(folder=str(folder)))
    return part.text


def learn(world: World, folder: Path, text: str) -> str:
    session = asyncio.run(world.session([User(text)], str(folder)))
    ((outcome, state),) = review(world, session, [add(text, text)])
    assert outcome.ok, outcome.text
    return state


def test_a_note_is_in_the_prompts_of_its_own_repository_alone(world: World, tmp_path: Path) -> None:
    shop, tools = tmp_path / "shop", tmp_path / "tools"
    (shop / ".git").mkdir(parents=True)
    (shop / "api").mkdir()
    assert learn(world, shop / "api", MAKE) == learn(world, tools, TOX) == "active"
    for folder in (shop, shop / "api", shop / "docs"):
        assert MAKE in read_prompt(world, folder) and TOX not in read_prompt(world, folder)
    assert TOX in read_prompt(world, tools / "new") and MAKE not in read_prompt(world, tools)
    assert "make check" not in read_prompt(world, tmp_path) + read_prompt(world, tmp_path / "shop-2")
    assert MAKE in (text := read_prompt(world, "")) and TOX in text, "an unknown folder has all notes"


def test_a_note_of_one_working_tree_holds_in_all_of_its_repository(world: World, tmp_path: Path) -> None:
    shop, linked = tmp_path / "shop", tmp_path / "linked"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(shop)]
    subprocess.run(["git", "init", "-q", str(shop)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(linked)], check=True, capture_output=True)
    assert learn(world, linked / "api", MAKE) == learn(world, shop, TOX) == "active"
    for folder in (shop, shop / "api", linked, linked / "docs"):
        assert MAKE in (text := read_prompt(world, folder)) and TOX in text
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").write_text((linked / ".git").read_text())
    assert MAKE not in read_prompt(world, tmp_path / "other"), "the repository does not know this tree"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
def test_a_repository_of_another_user_makes_two_folders_no_project(world: World, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.chown(tmp_path / ".git", 12_345, -1)
    assert learn(world, tmp_path / "a", MAKE) == "active"
    assert MAKE in read_prompt(world, tmp_path / "a") and MAKE not in read_prompt(world, tmp_path / "b")


def test_a_note_of_a_folder_that_was_deleted_holds_in_its_repository(world: World, tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    assert learn(world, tmp_path / "shop" / "gone", MAKE) == "active"
    assert MAKE in read_prompt(world, tmp_path / "shop")


def test_what_is_said_in_two_folders_holds_in_both(world: World, tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert learn(world, folder, MAKE) == "active"
    assert all(MAKE in read_prompt(world, tmp_path / name) for name in ("a", "b"))
    assert MAKE not in read_prompt(world, tmp_path / "c")


def test_a_setting_of_one_folder_replaces_no_other_folders(world: World, tmp_path: Path) -> None:
    for name, days in (("a", "14"), ("b", "60")):
        assert learn(world, tmp_path / name, f"Invoices are paid within {days} days.") == "active"
    assert "14 days" in read_prompt(world, tmp_path / "a")
    assert learn(world, tmp_path / "a", "Invoices are paid within 30 days.") == "active"
    text = read_prompt(world, tmp_path / "a")
    assert "30 days" in text and "14 days" not in text and "60 days" not in text
    assert "60 days" in read_prompt(world, tmp_path / "b")


def test_what_is_remembered_is_shown_with_the_folders_in_which_it_holds(world: World, tmp_path: Path) -> None:
    shop, tools = tmp_path / "shop", tmp_path / "tools"
    for folder, text in ((shop, MAKE), (tools, TOX), (tools, MAKE)):
        learn(world, folder, text)
    change(world, MemoryRequest("add", "memory", "We meet on Mondays."))
    shown = CliRunner().invoke(memory, ["show"], obj=Home(world.folder)).output
    groups = [part.splitlines() for part in shown.split("Only in ")[1:]]
    assert [lines[0] for lines in groups] == [f"{folder} and below:" for folder in (shop, tools)]
    assert [len([line for line in lines if line.startswith("- ")]) for lines in groups] == [1, 2]
    assert MAKE in groups[0][1] and "Mondays" not in "".join(map(str, groups))


def test_what_the_person_writes_or_changes_by_hand_holds_everywhere(world: World, tmp_path: Path) -> None:
    learn(world, tmp_path / "a", MAKE)
    change(world, MemoryRequest("add", "memory", "We meet on Mondays."))
    assert "Mondays" in read_prompt(world, tmp_path / "b")
    file = world.folder / "memories" / "MEMORY.md"
    file.write_text(file.read_text().replace(MAKE, f"Everywhere: {MAKE}"))
    assert f"Everywhere: {MAKE}" in read_prompt(world, tmp_path / "b")
