"""A home that the version before pointing wrote: its notes, skills and ledger keep their meaning."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest
from benchmarks.lessons.world import Run, User, World, add

from tests.store.test_pointed_migration import old_home
from whet.contract.origin import Origin
from whet.memory.requests import SkillRequest
from whet.memory.skill_changes import hash_tree
from whet.store.ledger import hash_text

NOTES = "# How this place works\n\n- Tests run with nox.\n- My own line, *as I like it*.\n"
SKILL = "---\nname: deploy\ndescription: x\n---\n\n1. Run `./ship --dry`.\nThen look at the log.\n"
NOTE_PATH, SKILL_PATH = "memories/MEMORY.md", "skills/deploy/SKILL.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A home as that version left it, with a note and a skill of a review, and a line of the person's."""
    home = tmp_path / "home"
    home.mkdir()
    old_home(home / "state.db")
    connection = apsw.Connection(str(home / "state.db"))
    for path, text in ((NOTE_PATH, NOTES), (SKILL_PATH, SKILL)):
        (home / path).parent.mkdir(parents=True)
        (home / path).write_text(text)
        key = hash_text(text)
        connection.execute("INSERT INTO learned_texts VALUES (?, ?)", (key, text.encode()))
        connection.execute("INSERT INTO learned_files VALUES ('', ?, ?, ?)", (path, key, key))
    connection.execute("INSERT INTO skill_marks VALUES ('', 'deploy', 'agent', 0, '')")
    connection.execute(
        "INSERT INTO ledger (profile, at, kind, item, action, state, before, after, changes, base_hash, hash,"
        " evidence, trust, reason, write_origin, session_id, turn_id, tool_call_id, parent_session_id,"
        " execution_context, platform, tool_name, task_id) VALUES ('', '2026-01-01T00:00:00.000Z', 'skill',"
        " 'deploy', 'create', 'active', '', ?, ?, '', ?, '[]', 'user', '', 'review', 's', '', 'd', 'p', '',"
        " '', '', 't')",
        (
            SKILL,
            json.dumps([{"path": SKILL_PATH, "before": "", "after": hash_text(SKILL)}]),
            hash_tree({"SKILL.md": hash_text(SKILL)}),
        ),
    )
    connection.close()
    return home


async def test_what_an_old_home_learned_is_in_force_as_it_was_and_can_be_taken_back(folder: Path) -> None:
    world = World(folder)
    prompt = await world.prompt()
    assert "Tests run with nox." in prompt and "My own line" in prompt and "./ship --dry" in prompt
    await world.learning.apply()
    assert (folder / NOTE_PATH).read_text() == NOTES and (folder / SKILL_PATH).read_text() == SKILL
    rows = {
        ledger_row.kind: ledger_row
        for ledger_row in [await world.learning.get_change(1), await world.learning.get_change(2)]
    }
    await world.learning.undo(rows["skill"].id, Origin("user"))
    await world.learning.undo(rows["memory"].id, Origin("user"))
    assert (folder / NOTE_PATH).read_text() == NOTES.replace("- Tests run with nox.\n", "")
    assert not (folder / SKILL_PATH).exists()
    world.close()


async def test_new_lessons_stand_beside_old_ones_and_leave_them_as_they_were(folder: Path) -> None:
    world = World(folder)
    ran = Run("terminal", "./ship --now", "shipped to eu-1")
    session = await world.session([User("Ship it, please."), ran, User("I always want metric units.")])
    old = "1. Run `./ship --dry`."
    patch = SkillRequest(
        "patch", "deploy", old_string=old, new_string=f"{old}\n2. Ship.", evidence=("shipped to eu-1",)
    )
    wish = add("Metric units.", "I always want metric units.")
    [(_, note), (outcome, skill)] = await world.review(session, [wish, patch])
    assert (note, skill) == ("active", "active"), outcome
    assert (folder / NOTE_PATH).read_text().startswith(NOTES.rstrip("\n"))
    text = (folder / SKILL_PATH).read_text()
    assert all(line in text for line in SKILL.splitlines()) and "\n2. `./ship --now`\n" in text
    world.close()
