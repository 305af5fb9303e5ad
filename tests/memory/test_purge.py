"""Purging: what was learned from a session is gone from the ledger and from the disk, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.lessons.world import Say, User, World, add, create

from tests.memory.home import HAND, by_review, prompt, read_notes, review, talk, undo
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.memory.undo import CannotUndo, Purged
from whet.store import learned, ledger, session_deletion, sessions
from whet.store.purge import PURGED

SAID = "Our deploy host is zebra-nine.example.net, and deploys happen on Tuesdays only."
LEARNED = "Deploys happen on Tuesdays only, on the host zebra-nine.example.net."
LATER = "Our deploy host is new, and deploys happen on Tuesdays only."
SKILL = create(
    "deploys", "How deploys are done.", "Deploys happen on Tuesdays only, on zebra-nine.example.net.", SAID
)


def purged(world: World, session_id: str) -> Purged:
    asyncio.run(world.learning.forget(session_id, HAND, dry_run=False))
    return asyncio.run(world.learning.purge(session_id))


def disk(world: World) -> bytes:
    paths = [path for path in world.folder.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in paths)


@pytest.fixture
def taught(world: World) -> str:
    session = talk(world, User(SAID), Say("Noted."))
    states = [state for _, state in review(world, session, [add(LEARNED, SAID), SKILL])]
    assert states == ["active", "active"]
    return session


def test_no_word_is_left_and_no_undo_brings_it_back(world: World, taught: str) -> None:
    asyncio.run(world.learning.submit(MemoryRequest("add", content="Tests run with tox"), HAND))
    found = purged(world, taught)
    assert len(found.rows) == 4 and found.texts >= 2  # the two changes, and the two that took them back
    rows = world.database.read_now(lambda db: ledger.select(db))
    assert not any("zebra" in f"{row.before}{row.after}{row.evidence}{row.reason}" for row in rows)
    for row in rows:
        if PURGED in (row.before, row.after):
            with pytest.raises(CannotUndo, match="purged"):
                undo(world, row.id)
    assert b"zebra" in disk(world), "the conversation is still there"
    world.database.write_now(lambda db: session_deletion.delete_session(db, taught))
    assert purged(world, taught) == Purged(), "once is as good as twice"
    assert b"tox" in disk(world)
    assert b"zebra" not in disk(world), "neither in a freed page nor in the log"


def test_what_others_have_kept_in_their_own_right_stays(world: World, taught: str) -> None:
    other = talk(world, LATER)
    change = MemoryRequest(
        "replace", content="The deploy host is new.", old_text="zebra-nine", evidence=(LATER,)
    )
    [(outcome, state)] = review(world, other, [change])
    assert state == "active"
    purged(world, taught)
    row = world.database.read_now(lambda db: ledger.get(db, outcome.ledger_id))
    assert (row.before, row.state) == (PURGED, "active") and "is new" in row.after and row.evidence
    assert "is new" in prompt(world)
    with pytest.raises(CannotUndo, match="gone for good"):
        undo(world, row.id)


def test_it_names_the_prompts_that_still_hold_the_words(world: World, taught: str) -> None:
    new = sessions.NewSession(id="later", system_prompt=prompt(world))
    world.database.write_now(lambda db: sessions.create(db, new, "2026-11-21T00:00:00.000Z"))
    text = world.database.read_now(lambda db: ledger.select(db))[1].after
    item = learned.ContextItem("memory", "x", "y", text)
    world.database.write_now(lambda db: learned.record_items(db, "later", [item]))
    assert purged(world, taught).prompts == ("later",)
    labels = world.database.read_now(lambda db: db.execute("SELECT label FROM context_items").fetchall())
    assert labels == [("",)]


def test_a_waiting_change_is_purged_too(world: World, tmp_path: Path) -> None:
    session = talk(world, User(SAID), Say("Noted."))
    origin = by_review(session)
    asyncio.run(world.learning.submit(add(LEARNED, SAID), origin))
    purged(world, session)
    (row,) = world.database.read_now(lambda db: ledger.select(db))
    assert (row.state, row.after, row.evidence) == ("rejected", PURGED, ())


@pytest.mark.parametrize(
    "learned",
    [
        "Pitfall: `deployctl push` hangs on zebra-nine; use `deployctl sync` instead.",
        "Deploys happen on zebra-nine.\nThey happen on Tuesdays.",
        "Deploys happen on zebra-nine:  on Tuesdays",
    ],
)
def test_no_word_is_left_however_an_entry_stands_in_its_file(world: World, learned: str) -> None:
    text = learned.removeprefix("Pitfall: ")
    session = talk(world, User(text), Say("Noted."))
    ((_, state),) = review(world, session, [add(learned, text)])
    assert state == "active"
    asyncio.run(world.learning.submit(MemoryRequest("add", content="Tests run with tox"), HAND))
    new = sessions.NewSession(id="later", system_prompt=prompt(world))
    world.database.write_now(lambda db: sessions.create(db, new, "2026-11-21T00:00:00.000Z"))
    assert purged(world, session).prompts == ("later",)
    for gone in (session, "later"):
        world.database.write_now(lambda db, gone=gone: session_deletion.delete_session(db, gone))
    purged(world, session)
    assert b"zebra" not in disk(world) and b"tox" in disk(world)


def test_what_another_session_built_on_a_purged_skill_is_gone_too(world: World) -> None:
    taught = talk(world, User(SAID), Say("Noted."))
    review(world, taught, [SKILL])
    other = talk(world, "Deploys need the flag --lynx.")
    patch = SkillRequest(
        "patch",
        "deploys",
        old_string="- “",
        new_string="need the flag --lynx\n- “",
        evidence=("Deploys need the flag --lynx.",),
    )
    ((_, state),) = review(world, other, [patch])
    assert state == "active"
    purged(world, taught)
    rows = world.database.read_now(lambda db: ledger.select(db))
    assert len(rows) == 4 and not any("zebra" in f"{row.before}{row.after}" for row in rows)
    for session in (taught, other):
        world.database.write_now(lambda db, gone=session: session_deletion.delete_session(db, gone))
    purged(world, taught)
    assert b"zebra" not in disk(world)


def test_a_file_that_a_person_deleted_is_purged_from_the_ledger_too(world: World, taught: str) -> None:
    (world.folder / "memories" / "MEMORY.md").unlink()
    read_notes(world)
    purged(world, taught)
    world.database.write_now(lambda db: session_deletion.delete_session(db, taught))
    purged(world, taught)
    assert b"zebra" not in disk(world)


def test_a_purged_skills_description_is_gone_from_what_sessions_began_with(world: World) -> None:
    session = talk(world, User(SAID), Say("Noted."))
    skill = create("deploys", "Deploys on zebra-nine.example.net.", "Deploys happen on Tuesdays only.", SAID)
    ((_, state),) = review(world, session, [skill])
    assert state == "active"
    part = asyncio.run(world.learning.reader.build_prompt_part())
    items = [learned.ContextItem(item.kind, item.name, item.hash, item.label) for item in part.items]
    new = sessions.NewSession(id="later", system_prompt=part.text)
    world.database.write_now(lambda db: sessions.create(db, new, "2026-11-21T00:00:00.000Z"))
    world.database.write_now(lambda db: learned.record_items(db, "later", items))
    assert purged(world, session).prompts == ("later",)
    labels = world.database.read_now(lambda db: db.execute("SELECT label FROM context_items").fetchall())
    assert labels == [("",)]
