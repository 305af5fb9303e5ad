"""The entries of a note: how many it takes, how one is named, and what becomes of the text around them."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.lessons.world import World, add

from tests.memory.home import HAND, by_review, talk
from tests.memory.test_changes import SAID, build_learning
from whet.config.schema import MemorySettings
from whet.memory import notes
from whet.memory.notes import EntryChange
from whet.memory.requests import MemoryRequest, Refused


def test_a_file_may_be_full_to_its_last_character() -> None:
    text = "# Memory\n\n- one\n"
    exact = len("# Memory\n\n- one\n- 4567")
    assert notes.plan_change(text, MemoryRequest("add", content="4567"), exact)[1].after == "4567"
    with pytest.raises(Refused, match="needs 1 more") as full:
        notes.plan_change(text, MemoryRequest("add", content="45678"), exact)
    assert "MEMORY.md is full: " in full.value.message and f"({exact:,} characters)" in full.value.message
    assert full.value.hint.endswith("The longest entries: one")
    # What is over the limit already may be changed to something as long, not to something longer.
    assert (
        notes.plan_change(text, MemoryRequest("replace", content="two", old_text="one"), 5)[1].after == "two"
    )
    with pytest.raises(Refused, match="is full"):
        notes.plan_change(text, MemoryRequest("replace", content="four", old_text="one"), 5)
    with pytest.raises(Refused, match=r"USER\.md"):
        notes.plan_change("", MemoryRequest("add", "user", "x" * 50), 20)
    with pytest.raises(Refused, match="says already"):
        notes.plan_change(text, MemoryRequest("replace", content="One", old_text="one"), 500)


def test_the_longest_entries_are_offered_as_few_as_are_needed() -> None:
    text = "".join(f"- {'x' * size}\n" for size in (10, 30, 20, 5, 4, 3))
    assert [len(droppable) for droppable in notes.find_droppable(text, 33)] == [30]
    assert [len(droppable) for droppable in notes.find_droppable(text, 34)] == [30, 20]
    assert [len(droppable) for droppable in notes.find_droppable(text, 900)] == [30, 20, 10, 5]
    assert notes.find_droppable(text, 0) == []
    assert notes.describe_use("x" * 37 + "\n", 100) == "37% used"


def test_both_files_have_limits_of_their_own(world: World) -> None:
    learning = build_learning(world, MemorySettings(memory_chars=60, user_chars=30))
    long = "Anna drinks tea every morning"
    assert not asyncio.run(learning.submit(MemoryRequest("add", "user", long), HAND)).ok
    outcome = asyncio.run(learning.submit(MemoryRequest("add", "memory", long), HAND))
    assert outcome.ok and outcome.text.endswith("MEMORY.md: 68% used.")
    outcome = asyncio.run(learning.submit(MemoryRequest("add", "user", "Anna"), HAND))
    assert "USER.md: 47% used." in outcome.text and outcome.summary == "User profile updated"
    states = {note.target: note for note in asyncio.run(learning.reader.read_notes())}
    assert (states["memory"].used, states["user"].used) == ("68% used", "47% used")
    assert (states["memory"].entries, states["user"].entries) == (1, 1)
    assert states["user"].path == str(world.folder / "memories/USER.md") and not states["user"].trouble


def test_a_staged_note_that_no_longer_has_room_is_refused(world: World) -> None:
    learning = build_learning(world, MemorySettings(memory_chars=130))
    session = talk(world, SAID)
    origin = by_review(session)
    assert asyncio.run(learning.submit(add("Deploy on Tuesdays only.", SAID), origin)).state == "staged"
    asyncio.run(learning.submit(MemoryRequest("add", content="x" * 60), HAND))
    (row,) = world.database.write_now(lambda db: learning.settle(db, "t"))
    assert row.state == "refused" and "is full" in row.reason


def test_the_longest_entry_that_is_taken() -> None:
    assert notes.clean("x" * 700) == "x" * 700
    with pytest.raises(Refused, match="701 characters; at most 700"):
        notes.clean("x" * 701)
    assert notes.clean("* one\n\n  two ") == "one\ntwo"


def test_a_part_names_one_entry_and_the_whole_of_one_stands_before_parts_of_others() -> None:
    text = "- deploy\n- deploy on Mondays\n\n## Pitfalls\n- tar\n"
    assert notes.find_entry(text, " DEPLOY ").text == "deploy"
    assert notes.find_entry(text, "on mondays").text == "deploy on Mondays"
    assert notes.find_entry(text, "Pitfall: tar").text == "tar"
    with pytest.raises(Refused, match="is empty"):
        notes.find_entry(text, " ")
    with pytest.raises(Refused, match="fits 2 entries: deploy; deploy on Mondays"):
        notes.find_entry(text, "deplo")
    with pytest.raises(Refused) as none:
        notes.find_entry("", "deploy")
    assert none.value.hint == "There is no entry yet."
    with pytest.raises(Refused) as none:
        notes.find_entry(text, "zzz yyy")
    assert none.value.hint == "There is no entry yet."
    with pytest.raises(Refused) as near:
        notes.find_entry(text, "deploys on tuesdays")
    assert near.value.hint == "The nearest entry is: deploy on Mondays"
    many = "".join(f"- deploy {n} {'x' * 90}\n" for n in range(6))
    with pytest.raises(Refused, match="fits 6 entries") as several:
        notes.find_entry(many, "deploy")
    assert several.value.message.count(";") == 3 and "x…" in several.value.message


def test_a_replaced_pitfall_stays_one_and_says_so_once() -> None:
    text = "## Pitfalls\n- tar hangs\n"
    asked = MemoryRequest("replace", content="Pitfall: tar needs -z", old_text="tar")
    after, edit = notes.plan_change(text, asked, 500)
    assert (edit.before, edit.after) == ("Pitfall: tar hangs", "Pitfall: tar needs -z")
    assert after == "## Pitfalls\n- tar needs -z\n"
    request = MemoryRequest("add", "user", "Pitfall: is a word")
    assert notes.plan_change("", request, 500)[0] == "# User\n\n- Pitfall: is a word\n"


def test_a_pitfall_is_known_in_the_notes_of_work_however_it_is_written() -> None:
    asked = MemoryRequest("add", "memory", "- PITFALL :  tar hangs")
    assert notes.plan_change("", asked, 500)[1].after == "Pitfall: tar hangs"
    of_person = MemoryRequest("add", "user", "PITFALL : tar hangs")
    assert notes.plan_change("", of_person, 500)[1].after == "PITFALL : tar hangs"
    replaced = EntryChange("Pitfall: tar hangs", "tar is fine")
    assert (
        notes.apply_change("## Pitfalls\n- tar hangs\n", "memory", replaced) == "# Memory\n\n- tar is fine\n"
    )


def test_comments_and_headings_are_no_entries() -> None:
    text = "<!-- a\nb -->\nfact\n<!-- c -->\n# Title\n### Deep\n- one\n"
    assert [
        (note_entry.text, note_entry.section, note_entry.first, note_entry.last)
        for note_entry in notes.parse_entries(text)
    ] == [
        ("fact", "", 2, 2),
        ("one", "deep", 6, 6),
    ]


def test_a_heading_ends_the_paragraph_above_it() -> None:
    note_entries = notes.parse_entries("fact\n# Title\nanother\n## Deep\nthird")
    assert [(note_entry.text, note_entry.section, note_entry.last) for note_entry in note_entries] == [
        ("fact", "", 0),
        ("another", "", 2),
        ("third", "deep", 4),
    ]


def test_an_entry_goes_before_the_next_heading_with_a_line_between() -> None:
    assert notes.append_entry("## Mine\n- x\n", "memory", "new") == "- new\n\n## Mine\n- x\n"
    assert (
        notes.append_entry("# Memory\n- a\n## Mine\n", "memory", "new") == "# Memory\n- a\n- new\n\n## Mine\n"
    )
    assert notes.append_entry("# Memory\n", "memory", "one\ntwo") == "# Memory\n\n- one\n  two\n"
    assert notes.append_entry("## PITFALLS\n- a\n", "memory", "Pitfall: b") == "## PITFALLS\n- a\n- b\n"


def test_moved_entries_are_unchanged_and_pairs_are_replacements() -> None:
    assert notes.diff_entries("- a\n- b\n- c\n", "- c\n- a\n- b\n") == []
    changes = notes.diff_entries("- a\n- b\n", "- x\n- y\n- z\n")
    assert changes == [EntryChange("a", "x"), EntryChange("b", "y"), EntryChange("", "z")]
    assert notes.diff_entries("- a\n- b\n", "- x\n") == [EntryChange("a", "x"), EntryChange("b", "")]
    assert [change.action for change in (*changes, EntryChange("b", ""))] == [
        "replace",
        "replace",
        "add",
        "remove",
    ]
