"""The learning service: hand edits, broken files, staging, settling, repeating, undoing, forgetting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.lessons.world import Say, User, World, add, create

from tests.memory.home import (
    HAND,
    accept,
    by_review,
    change,
    in_chat,
    made,
    memory_file,
    prompt,
    read_notes,
    remember,
    review,
    rows,
    statements,
    talk,
    undo,
    view,
)
from whet.contract.errors import NotFound
from whet.contract.origin import Origin
from whet.memory import disk
from whet.memory.requests import Claim, GateVerdict, MemoryRequest, SkillRequest
from whet.memory.undo import CannotUndo
from whet.store import learned, ledger

TWICE = "Always run make check twice."
SAID = "We run make check before each commit, and we deploy on Tuesdays only."


def test_an_edit_by_hand_is_entered_as_the_persons(world: World) -> None:
    remember(world, "Tests run with tox")
    file = memory_file(world)
    file.write_text(file.read_text("utf-8").replace("tox", "nox") + "- my own line\n", "utf-8")
    remember(world, "Deploys go out on Mondays")
    found = [(row.action, row.origin.write_origin, row.before, row.after) for row in rows(world)]
    assert found[1:3] == [
        ("replace", "user", "Tests run with tox", "Tests run with nox"),
        ("add", "user", "", "my own line"),
    ]
    text = file.read_text("utf-8")
    assert "nox" in text and "my own line" in text and "Mondays" in text
    file.write_text(text + "- another line\n", "utf-8")
    assert change(world, MemoryRequest("remove", old_text="another line")).ok


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (lambda file: file.write_bytes(b"- caf\xe9 \xff\n"), "is not UTF-8"),
        (lambda file: file.write_bytes(b"x" * 10_000_000), "bytes, more than"),
        (make_folder, "is a folder"),
        (make_link, "is a symbolic link"),
        (lambda file: os.mkfifo(file) if not file.unlink() else None, "not a plain file"),
    ],
    ids=["bytes", "10 MB", "folder", "link", "pipe"],
)
def test_a_broken_file_is_named_and_nothing_is_lost(
    world: World, break_it: Callable[[Path], None], line: str
) -> None:
    remember(world, "Tests run with nox")
    file = memory_file(world)
    break_it(file)
    outcome = remember(world, "Deploys go out on Mondays")
    assert outcome.ok and line in outcome.text
    assert "nox" in prompt(world) and "Mondays" in prompt(world)
    if file.is_dir():
        file.rmdir()
    else:
        file.unlink()
    file.write_text("# Memory\n\n- Tests run with nox\n- my own line\n", "utf-8")  # the person mends it
    asyncio.run(world.learning.apply())
    text = file.read_text("utf-8")
    assert "Mondays" in text and "nox" in text and "my own line" in text


def test_a_file_that_a_crash_left_aside_is_no_deleted_one(world: World) -> None:
    remember(world, "Tests run with nox")
    file = memory_file(world)
    file.rename(file.with_name(".MEMORY.md.before"))
    assert read_notes(world)[0].entries == 1
    assert "nox" in file.read_text("utf-8") and [row.action for row in rows(world)] == ["add"]


def test_a_deleted_file_can_be_had_back(world: World) -> None:
    for text in ("Tests run with nox", "Deploys go out on Mondays"):
        remember(world, text)
    memory_file(world).unlink()
    assert read_notes(world)[0].entries == 0
    last = rows(world)[-1]
    assert last.action == "hand_edit" and last.origin.write_origin == "user"
    undo(world, last.id)
    assert "nox" in memory_file(world).read_text("utf-8") and "Mondays" in memory_file(world).read_text(
        "utf-8"
    )


async def test_a_person_and_the_service_writing_at_once_lose_nothing(world: World) -> None:
    file = memory_file(world)
    await world.learning.submit(MemoryRequest("add", content="the first fact"), HAND)

    async def person() -> None:
        for number in range(40):
            text = disk.read_text(file)  # None in the moment in which the service swaps it
            if text is not None:
                fresh = file.with_suffix(".tmp")
                fresh.write_text(text + f"- by hand {number}\n", "utf-8")
                if disk.read_text(file) == text:
                    os.replace(fresh, file)
                    written.append(f"by hand {number}")
            await asyncio.sleep(0)

    async def read_prompt() -> None:
        for number in range(10):
            await world.learning.submit(MemoryRequest("add", content=f"learned {number}"), HAND)

    written: list[str] = []
    await asyncio.gather(person(), read_prompt())
    await world.learning.apply()
    text = file.read_text("utf-8")
    # A person who saves an older text over a newer one takes out what it lacked, or puts a line of theirs
    # in its place, and that is on record.
    gone = [row.before for row in rows(world) if row.origin.execution_context == "edited by hand"]
    for one in (f"learned {number}" for number in range(10)):
        assert f"- {one}\n" in text or any(one in before for before in gone)
    assert written and all(f"- {one}\n" in text for one in written)


def reviewed(world: World) -> str:
    return talk(world, User(SAID), Say("Understood."), TWICE)


SKILL = create("commit", "How we commit.", "Run make check before each commit.", SAID)


def test_a_reviews_changes_come_into_force_together(world: World) -> None:
    session_id = reviewed(world)
    first = by_review(session_id, "c1")
    request = add("Deploy on Tuesdays only.", SAID)
    staged = change(world, request, first)
    assert staged.state == "staged" and "Tuesdays" not in prompt(world)
    assert change(world, request, first) == staged  # the same call again
    assert change(world, SKILL, by_review(session_id, "c2")).state == "staged"
    on_top = SkillRequest("patch", "commit", old_string="We run make", new_string="Twice.", evidence=(TWICE,))
    assert change(world, on_top, by_review(session_id, "c3")).state == "staged"
    viewed = view(world, "commit", "", by_review(session_id, "c4"))
    assert "Always run make check" in viewed.text
    done = world.database.write_now(lambda db: world.learning.settle(db, "t"))
    asyncio.run(world.learning.apply(done))
    assert [row.state for row in done] == ["active", "active", "active"]
    assert [row.remark for row in done] == ["Deploy on Tuesdays only.", SKILL.content, "Twice."]  # type: ignore[union-attr]
    text = prompt(world)
    assert "Tuesdays" in text and "Always run make check" in text


def test_what_changed_meanwhile_refuses_a_staged_change(world: World) -> None:
    before = talk(world, "Staging is on port 8080.")
    session_id = talk(world, "Staging moved to port 9090.")
    review(world, before, [add("Staging is on port 8080.", "Staging is on port 8080.")])
    request = MemoryRequest(
        "replace",
        content="Staging is on port 9090.",
        old_text="8080",
        evidence=("Staging moved to port 9090.",),
    )
    outcome = change(world, request, by_review(session_id))
    assert outcome.state == "staged", outcome
    file = memory_file(world)
    file.write_text(file.read_text("utf-8").replace("8080", "7070"), "utf-8")
    read_notes(world)
    (row,) = world.database.write_now(lambda db: world.learning.settle(db, "t"))
    assert row.state == "refused" and "changed since" in row.reason
    assert "7070" in file.read_text("utf-8")


def test_a_given_up_review_leaves_nothing(world: World) -> None:
    session_id = reviewed(world)
    change(world, add("Deploy on Tuesdays only.", SAID), by_review(session_id))
    world.database.write_now(lambda db: world.learning.discard(db, "t"))
    assert world.database.write_now(lambda db: world.learning.settle(db, "t"))[0].state == "rejected"
    assert "Tuesdays" not in prompt(world)


def test_a_reviews_change_of_a_persons_own_skill_waits_for_their_yes(world: World) -> None:
    file, text = world.folder / "skills/mine/SKILL.md", "Do it slowly, but check twice."
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: mine\ndescription: My way.\n---\nDo it slowly.\n", "utf-8")
    patch = SkillRequest("patch", "mine", old_string="slowly.", new_string=text, evidence=(text,))
    ((outcome, state),) = review(world, talk(world, text), [patch])
    assert state == "inbox" and "check twice" not in file.read_text("utf-8")
    accept(world, outcome.ledger_id)
    assert "check twice" in file.read_text("utf-8")


def test_what_stands_in_the_way_of_an_undo_is_named(world: World) -> None:
    first = remember(world, "Tests run with tox").ledger_id
    second = made(world, MemoryRequest("replace", content="Tests run with nox", old_text="tox"))
    with pytest.raises(CannotUndo) as refused:
        undo(world, first)
    assert f"change {second}" in refused.value.hint
    with pytest.raises(NotFound):
        undo(world, 999)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_a_chain_of_undos_says_of_each_whether_it_is_in_force(world: World, depth: int) -> None:
    first = remember(world, "Tests run with tox").ledger_id
    last = first
    for _ in range(depth):
        last = undo(world, last).id
    is_there = "tox" in memory_file(world).read_text("utf-8")
    assert is_there is (depth % 2 == 0)
    found = [(row.state, row.undone_by) for row in rows(world)]
    ends = [("active", 0) if (depth - at) % 2 == 0 else ("undone", first + at + 1) for at in range(depth + 1)]
    assert found == ends
    if is_there:
        undo(world, first)
        assert "tox" not in memory_file(world).read_text("utf-8")


@pytest.mark.parametrize("content", ["Deploys:\n    - on Tuesdays\n    - never alone", "Pitfall: a\n\tb"])
def test_what_is_indented_can_be_taken_back(world: World, content: str) -> None:
    first = remember(world, content).ledger_id
    back = undo(world, first).id
    assert statements(world) == []
    undo(world, back)
    assert statements(world) == [rows(world)[0].after]


@pytest.mark.parametrize("own", ["word " * 200 + "end", "#123 is the ticket", "- a list in a list", "# big"])
def test_a_persons_entry_comes_back_as_it_was_whatever_it_is(world: World, own: str) -> None:
    remember(world, "Tests run with tox")
    file = memory_file(world)
    file.write_text(file.read_text("utf-8") + f"- {own}\n", "utf-8")
    undo(world, made(world, MemoryRequest("replace", content="Shorter", old_text=own)))
    undo(world, made(world, MemoryRequest("remove", old_text=own)))
    assert statements(world) == ["Tests run with tox", own]


def test_a_large_edit_by_hand_is_taken_back_whatever_the_file_ends_with(world: World) -> None:
    file = memory_file(world)
    file.write_text("\n".join(f"- fact number {n}" for n in range(20)), "utf-8")
    read_notes(world)
    undo(world, rows(world)[-1].id)
    assert not file.exists() or statements(world) == []


def test_a_fact_that_was_replaced_by_a_pitfall_comes_back_as_a_fact(world: World) -> None:
    file = memory_file(world)
    file.write_text("# Memory\n\n## Pitfalls\n\n- one hangs\n", "utf-8")
    read_notes(world)
    text = file.read_text("utf-8")
    file.write_text("# Memory\n\n- a fact\n", "utf-8")
    read_notes(world)
    file.write_text(text, "utf-8")
    read_notes(world)
    undo(world, rows(world)[-1].id)
    assert statements(world) == ["a fact"]


def test_forgetting_a_session_takes_its_skills_along(world: World) -> None:
    first, second = (reviewed(world), talk(world, "Always run make check twice."))
    review(world, first, [SKILL, add("Deploy on Tuesdays only.", SAID)])
    patch = SkillRequest(
        "patch", "commit", old_string="We run make check", new_string="Twice.", evidence=(TWICE,)
    )
    (_, state), *_ = review(world, second, [patch])
    assert state == "active"
    planned = asyncio.run(world.learning.forget(first, HAND, dry_run=True))
    assert [step.what for step in planned] == ["take back"] * 3 and (world.folder / "skills/commit").exists()
    asyncio.run(world.learning.forget(first, HAND, dry_run=False))
    assert not (world.folder / "skills/commit").exists() and "Tuesdays" not in prompt(world)
    assert asyncio.run(world.learning.forget(first, HAND, dry_run=True)) == []


def test_another_persons_service_sees_nothing_of_the_first(world: World) -> None:
    service = world.learning.for_person("anna", world.folder / "people" / "anna")
    two = world.learning.for_person("ben", world.folder / "people" / "ben")
    asyncio.run(service.submit(MemoryRequest("add", "user", "Anna's mother is called Ruth"), HAND))
    skill = SkillRequest(
        "create", "gift", content="---\nname: gift\ndescription: Gifts for Ruth.\n---\nFlowers.\n"
    )
    asyncio.run(service.submit(skill, HAND))
    assert "Ruth" in asyncio.run(service.reader.build_prompt_part()).text
    for learning in (two, world.learning):
        assert "Ruth" not in asyncio.run(learning.reader.build_prompt_part()).text
        assert "Ruth" not in asyncio.run(learning.skills.describe("gift"))
        assert not asyncio.run(learning.skills.view("gift", "", HAND)).ok
    row = world.database.read_now(lambda db: ledger.select(db, profile="anna"))[0]
    assert asyncio.run(service.get_change(row.id)) == row
    for work in (two.get_change(row.id), two.accept(row.id), two.reject(row.id), two.undo(row.id, HAND)):
        with pytest.raises(NotFound):
            asyncio.run(work)


def test_a_load_leaves_a_receipt_with_the_hash(world: World) -> None:
    change(world, SkillRequest("create", "commit", content=SKILL.content))  # type: ignore[union-attr]
    load = view(world, "commit", "", Origin("foreground", "s", "t", "c"))
    (use,) = world.database.read_now(lambda db: learned.list_uses(db, name="commit"))
    assert (use.session_id, use.turn_id, use.hash) == ("s", "t", load.hash)
    assert (load.ok, load.state) == (True, "active")


def test_forgetting_a_session_brings_back_what_it_removed(world: World) -> None:
    remember(world, "Tests run with tox")
    session = talk(world, "Forget that tests run with tox.")
    removed = MemoryRequest("remove", old_text="tox")
    origin = in_chat(session, "c")
    assert change(world, removed, origin).ok
    remember(world, "Deploys go out on Mondays")
    steps = asyncio.run(world.learning.forget(session, HAND, dry_run=False))
    assert [step.what for step in steps] == ["take back"]
    assert "tox" in prompt(world)


def test_no_session_is_not_every_session(world: World) -> None:
    remember(world, "Tests run with tox")
    assert asyncio.run(world.learning.forget("", HAND, dry_run=False)) == []
    undo(world, rows(world)[0].id)
    assert asyncio.run(world.learning.purge("")).rows == ()


def test_a_mark_at_a_files_beginning_is_no_entry(world: World) -> None:
    file = memory_file(world)
    file.write_bytes(b"\xef\xbb\xbf# Memory\r\n\r\n- Tests run with tox\r\n")
    assert read_notes(world)[0].entries == 1
    assert "# Memory" not in prompt(world)
    remember(world, "Deploys go out on Mondays")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    read_notes(world)
    assert [row.action for row in rows(world)] == ["add", "add"]


def test_a_skill_edited_by_hand_names_the_waiting_change_that_it_replaces(world: World) -> None:
    text = "---\nname: commit\ndescription: How.\n---\n\nFirst run make.\n"
    change(world, SkillRequest("create", "commit", content=text))
    file = world.folder / "skills" / "commit" / "SKILL.md"
    make_folder(file)
    patch = SkillRequest("patch", "commit", old_string="make", new_string="nox")
    waiting = change(world, patch)
    assert waiting.ok and "could not be written" in waiting.text
    file.rmdir()
    file.write_text(text.replace("make", "tox"), "utf-8")
    view(world, "commit")
    row = rows(world)[-1]
    assert (row.action, row.before, row.after) == (
        "hand_edit",
        text.replace("make", "nox"),
        text.replace("make", "tox"),
    )
    assert row.reason == f"it replaces what came in between (change {waiting.ledger_id})"
    file.write_text(text, "utf-8")
    view(world, "commit")
    assert (rows(world)[-1].after, rows(world)[-1].reason) == (text, "")


def test_another_judge_in_the_gates_place_hears_the_claim_and_whose_it_is(world: World) -> None:
    """A trial without the gate is what the gate is measured against."""
    heard: list[tuple[str, str]] = []

    def takes(claim: Claim, origin: Origin) -> GateVerdict:
        heard.append((claim.text, origin.write_origin))
        return GateVerdict("observed")

    world.learning.changes.judge_override = takes
    assert remember(world, "Deploys go out on Mondays").state == "active"
    assert heard == [("Deploys go out on Mondays", "user")]
