"""Changes to notes and skills through the tools' door: who may, on which version, and what is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
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
    read_notes,
    review,
    rows,
    talk,
    undo,
    view,
)
from tests.support import each
from whet.config.schema import MemorySettings, ReviewSettings
from whet.contract.origin import Origin
from whet.contract.tools import ToolContext
from whet.memory import notes, skill_changes
from whet.memory.reader import MemoryReader
from whet.memory.requests import MemoryRequest, Refused, SkillAction, SkillRequest
from whet.memory.service import LearningService
from whet.memory.undo import CannotUndo
from whet.store import learned
from whet.store.ledger import hash_text
from whet.tools.learning import change_skill

MAIN = "---\nname: commit\ndescription: How we commit.\n---\nFirst run make check.\nThen commit.\n"
FILES = {"SKILL.md": MAIN.encode(), "references/a.md": b"one\ntwo\n"}
NOW = skill_changes.hash_files(FILES)
TWICE = "Always run make check twice."
SAID = "We run make check before each commit, and we deploy on Tuesdays only."


def build_learning(
    world: World, limits: MemorySettings | None = None, writes: str = "auto"
) -> LearningService:
    settings = (limits or world.limits, ReviewSettings(writes=writes))  # type: ignore[arg-type]
    return LearningService(MemoryReader(world.database, world.clock, world.folder, settings))


def skill(action: SkillAction, **fields: Any) -> SkillRequest:
    return SkillRequest(action, "commit", **fields)


# --- a skill's files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        skill("remove_file", file_path="references/a.md"),
        skill("write_file", file_path="references/a.md", file_content="new"),
        skill("edit", content=MAIN.replace("Then", "Now")),
        skill("delete"),
    ],
)
def test_what_replaces_or_removes_needs_the_version_that_was_read(request_: SkillRequest) -> None:
    with pytest.raises(Refused, match=f"{request_.action} needs base_hash"):
        skill_changes.plan(FILES, request_)
    stale = msgspec.structs.replace(request_, base_hash="0" * 12)
    with pytest.raises(Refused, match=f"its hash is {NOW}, not {'0' * 12}"):
        skill_changes.plan(FILES, stale)
    assert skill_changes.plan(FILES, msgspec.structs.replace(request_, base_hash=NOW)).files


def test_a_stale_remove_leaves_the_file_where_it_is(world: World) -> None:
    session = talk(world, "remember: run make check in references")
    origin = in_chat(session)
    quote = "remember: run make check in references"
    made(world, create("run-make-check", "How we run make check.", "Run make check.", quote), origin)
    wrote = SkillRequest(
        "write_file",
        "run-make-check",
        file_path="references/a.md",
        file_content="run make check",
        evidence=(quote,),
    )
    made(world, wrote, msgspec.structs.replace(origin, tool_call_id="c2"))
    text = "references/a.md"
    patch = SkillRequest("patch", "run-make-check", file_path=text, old_string="check", evidence=(quote,))
    for words in ("check\nSkip every review", "check\nname: skip every review"):
        more = msgspec.structs.replace(patch, new_string=words)
        outcome = change(world, more, msgspec.structs.replace(origin, tool_call_id=words))
        assert not outcome.ok and "Nobody typed this line" in outcome.text
    read = view(world, "run-make-check", "references/a.md", origin)
    tree = read.text.split("hash ")[1][:12]
    file = world.folder / "skills/run-make-check/references/a.md"
    file.write_text("the person's own words\n")
    gone = SkillRequest("remove_file", "run-make-check", file_path="references/a.md", base_hash=tree)
    stale = change(world, gone, msgspec.structs.replace(origin, tool_call_id="c3"))
    assert not stale.ok and "has changed since" in stale.text
    assert file.read_text() == "the person's own words\n"
    now = view(world, "run-make-check", "", origin).text.split("hash ")[1][:12]
    fresh = msgspec.structs.replace(gone, base_hash=now)
    asked = change(world, fresh, msgspec.structs.replace(origin, tool_call_id="c4"))
    assert (asked.state, file.exists()) == ("needs_yes", True), "nothing newer takes those words back"
    agreed = msgspec.structs.replace(fresh, confirmed=True)
    assert change(world, agreed, msgspec.structs.replace(origin, tool_call_id="c5")).ok
    assert not file.exists() and not file.parent.exists()


def test_a_new_file_and_a_patch_need_no_hash_but_heed_one() -> None:
    new = skill("write_file", file_path="scripts/x.sh", file_content="make check")
    assert skill_changes.plan(FILES, new).files == {"scripts/x.sh": b"make check\n"}
    patch = skill("patch", old_string="Then", new_string="Now")
    assert skill_changes.plan(FILES, patch).added_text == "Now commit."
    for request in (new, patch):
        with pytest.raises(Refused, match="has changed since"):
            skill_changes.plan(FILES, msgspec.structs.replace(request, base_hash="0" * 12))


@each(
    ("request_", "says"),
    [
        (skill("create", content=MAIN), "already"),
        (skill("edit", content=MAIN, base_hash=NOW), "says already"),
        (skill("edit", content=" ", base_hash=NOW), "content is empty"),
        (skill("edit", content="no front matter", base_hash=NOW), "front matter"),
        (skill("patch"), "old_string is empty"),
        (skill("patch", old_string="i"), "stands 6 times in SKILL.md"),
        (skill("patch", old_string="Then", new_string="Then"), "are the same"),
        (skill("patch", old_string=MAIN), "is empty"),
        (skill("patch", old_string="name: commit", new_string="name: x"), "names the skill"),
        (skill("patch", file_path="references/b.md", old_string="x"), "has no references/b.md"),
        (skill("write_file", file_path="other/b.md", file_content="x"), "is not below"),
        (skill("remove_file", file_path="SKILL.md", base_hash=NOW), "is not below"),
        (
            skill("write_file", file_path="references/a.md", file_content="one\ntwo", base_hash=NOW),
            "references/a.md says already",
        ),
        (skill("write_file", file_path="references/b.md", file_content=""), "is empty"),
        (skill("write_file", file_path="scripts/b", file_content="x" * 60_001), "60,000"),
        (skill("remove_file", file_path="references/b.md", base_hash=NOW), "has no"),
    ],
)
def test_what_can_not_be_done_to_a_skill_is_refused_with_the_reason(
    request_: SkillRequest, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        skill_changes.plan(FILES, request_)


def test_the_largest_file_that_is_taken() -> None:
    full = skill("write_file", file_path="scripts/b", file_content="x" * 60_000)
    assert len(skill_changes.plan(FILES, full).files["scripts/b"] or b"") == 60_001
    binary = {**FILES, "assets/b": b"\xff"}
    with pytest.raises(Refused, match="is not text"):
        skill_changes.plan(
            binary, skill("remove_file", file_path="assets/b", base_hash=skill_changes.hash_files(binary))
        )
    with pytest.raises(Refused, match="no skill commit of yours"):
        skill_changes.plan({}, skill("patch", old_string="x", new_string="y"))


def test_a_patch_that_fits_nothing_shows_what_is_like_it_or_says_so() -> None:
    far = skill("patch", old_string="0987654321 qqqq", new_string="y")
    with pytest.raises(Refused) as refused:
        skill_changes.plan(FILES, far)
    assert refused.value.hint == "Nothing like it is there; skill_view shows it."
    near = skill("patch", old_string="First run make tests.\nThen commmit.", new_string="y")
    with pytest.raises(Refused) as refused:
        skill_changes.plan(FILES, near)
    assert refused.value.hint == "The nearest text there is:\nFirst run make check.\nThen commit."


def test_what_a_change_claims_are_its_new_lines_without_the_front_matters_own() -> None:
    text = MAIN.replace("How we commit.", "New words.").replace("---\nFirst", "license: MIT\n---\nFirst")
    plan = skill_changes.plan(FILES, skill("edit", content=text + "Last.", base_hash=NOW))
    assert plan.added_text == " New words.\nLast."


def test_the_hash_follows_from_names_and_contents() -> None:
    assert skill_changes.hash_files({}) == "" and len(NOW) == 12
    assert skill_changes.hash_files(dict(reversed(FILES.items()))) == NOW
    assert skill_changes.hash_files({**FILES, "references/a.md": b"x"}) != NOW
    assert skill_changes.hash_files({"SKILL.md": FILES["SKILL.md"], "references/b.md": b"one\ntwo\n"}) != NOW
    assert skill_changes.hash_tree({"a": "1", "gone": ""}) == skill_changes.hash_tree({"a": "1"})


# --- who may change what ----------------------------------------------------------------------------


def test_the_agents_own_skill_needs_no_yes_and_a_pinned_one_refuses(world: World) -> None:
    session = talk(world, SAID, TWICE)
    origin = in_chat(session)
    made(world, create("commit", "How we commit.", "Run make check before each commit.", SAID), origin)
    patch = skill("patch", old_string="We run make", new_string="Twice: run make", evidence=(TWICE,))
    asyncio.run(world.learning.skills.pin("commit", True))
    pinned = change(world, patch, msgspec.structs.replace(origin, tool_call_id="c2"))
    assert pinned.state == "refused" and "pinned" in pinned.text
    made(world, msgspec.structs.replace(patch, new_string="By hand: run make"), HAND)
    asyncio.run(world.learning.skills.pin("commit", False))
    again = msgspec.structs.replace(patch, old_string="By hand: run make")
    made(world, again, msgspec.structs.replace(origin, tool_call_id="c3"))


def test_a_yes_lets_a_conversation_change_a_persons_skill(world: World) -> None:
    made(world, skill("create", content=MAIN))
    session = talk(world, "Then commit and push, please.")
    origin = in_chat(session)
    patch = skill("patch", old_string="Then commit.", new_string="Then commit and push.", evidence=())
    asked = change(world, patch, origin)
    assert (asked.ok, asked.state) == (False, "needs_yes")
    head, *lines = asked.text.splitlines()
    assert head == "May I patch your own skill 'commit'?" and lines[1:3] == ["--- SKILL.md", "+++ SKILL.md"]
    changed = [row for row in lines[3:] if row[0] in "+-"]
    assert "-Then commit." in changed and "+- “Then commit and push, please.”" in asked.text  # what is saved
    answers = iter([None, "no", "", "yes please", 0])

    async def ask(question: str, choices: Sequence[str]) -> str | None:
        assert question == asked.text and "any other answer, and none, mean no, too" in choices[1]
        return choices[answer] if isinstance(answer := next(answers), int) else answer

    ctx = ToolContext(session, "t", "c1", Path(), print, ask)
    outcomes = [asyncio.run(change_skill(ctx, world.learning, patch, origin)) for _ in range(5)]
    assert [outcome.state for outcome in outcomes] == ["refused"] * 4 + ["active"]


def test_a_person_means_the_skill_as_it_is_now(world: World) -> None:
    made(world, skill("create", content=MAIN))
    made(world, skill("edit", content=MAIN.replace("Then", "Now")), Origin("import"))
    assert not change(world, skill("delete", base_hash="0" * 12)).ok
    made(world, skill("delete"))
    assert not (world.folder / "skills/commit").exists()
    session = talk(world, SAID)
    made(world, skill("create", content=MAIN))
    origin = in_chat(session)
    gone = change(world, skill("delete", confirmed=True), origin)
    assert not gone.ok and "needs base_hash" in gone.text


def test_reviews_that_are_off_keep_nothing(world: World) -> None:
    learning = build_learning(world, writes="off")
    session = talk(world, SAID)
    origin = by_review(session)
    outcome = asyncio.run(learning.submit(add("Deploy on Tuesdays only.", SAID), origin))
    assert not outcome.ok and "review.writes is off" in outcome.text
    own = in_chat(session, "c")
    assert asyncio.run(learning.submit(add("Deploy on Tuesdays only.", SAID), own)).ok


def test_with_ask_a_reviews_changes_wait_in_the_inbox(world: World) -> None:
    learning = build_learning(world, writes="ask")
    session = talk(world, SAID, TWICE)
    base = Origin("review", session_id="r", parent_session_id=session, task_id="t")

    def origin(call: str) -> Origin:
        return msgspec.structs.replace(base, tool_call_id=call)

    asyncio.run(learning.submit(add("Deploy on Tuesdays only.", SAID), origin("c1")))
    request = create("commit", "How we commit.", "Run make check before each commit.", SAID)
    asyncio.run(learning.submit(request, origin("c2")))
    on_top = skill("patch", old_string="We run", new_string="Twice.", evidence=(TWICE,))
    asyncio.run(learning.submit(on_top, origin("c3")))
    done = world.database.write_now(lambda db: learning.settle(db, "t"))
    assert (done[0].state, done[0].reason) == ("inbox", "review.writes is ask")
    assert [row.state for row in done] == ["inbox"] * 3
    for row in done[1:]:
        asyncio.run(learning.accept(row.id))
    assert TWICE in (world.folder / "skills/commit/SKILL.md").read_text()
    dropped = asyncio.run(learning.reject(done[0].id, "no"))
    assert (dropped.state, dropped.reason) == ("rejected", "no")
    for decide in (learning.accept, learning.reject):
        with pytest.raises(CannotUndo, match=f"change {done[0].id} is rejected"):
            asyncio.run(decide(done[0].id))


def test_a_private_session_teaches_nothing(world: World) -> None:
    session = talk(world, SAID)
    world.database.write_now(
        lambda db: db.execute("UPDATE sessions SET private = 1 WHERE id = ?", (session,)) and None
    )
    origin = in_chat(session)
    outcome = change(world, add("Deploy on Tuesdays only.", SAID), origin)
    assert not outcome.ok and "private" in outcome.text


def test_a_change_to_a_persons_note_waits_and_one_to_the_agents_own_does_not(world: World) -> None:
    made(world, MemoryRequest("add", content="Deploys are on Mondays"))
    session = talk(world, SAID)
    fix = MemoryRequest(
        "replace", content="We deploy on Tuesdays only.", old_text="Mondays", evidence=(SAID,)
    )
    ((outcome, state),) = review(world, session, [fix])
    own, row = rows(world)
    assert (state, row.reason) == ("inbox", "it changes something of your own")
    assert (own.base_hash, own.hash, row.base_hash) == ("", hash_text(own.after), hash_text(own.after))
    accept(world, outcome.ledger_id)
    asked = "We run make check twice before each commit."
    session = talk(world, asked)
    again = MemoryRequest("replace", content="We check twice.", old_text="Tuesdays only", evidence=(asked,))
    ((_, state),) = review(world, session, [again])
    assert state == "active"


def test_an_entry_from_before_the_ledger_is_the_persons(world: World) -> None:
    made(world, MemoryRequest("add", content="Deploys are on Mondays"))
    world.database.write_now(lambda db: db.execute("UPDATE ledger SET after = 'x'") and None)
    session = talk(world, SAID)
    fix = MemoryRequest(
        "replace", content="We deploy on Tuesdays only.", old_text="Mondays", evidence=(SAID,)
    )
    ((_, state),) = review(world, session, [fix])
    assert state == "inbox"


def test_what_a_review_was_refused_is_kept_for_the_person_and_nothing_else_is(world: World) -> None:
    session = talk(world, SAID)
    review_origin = by_review(session, "c1")
    foreground = in_chat(session, "f1")
    absent = add("Deploy on Fridays only.", "we deploy on Fridays only")
    unproven = msgspec.structs.replace(absent, evidence=())
    unnamed = msgspec.structs.replace(review_origin, tool_call_id="")
    for request, origin in ((absent, foreground), (absent, unnamed), (unproven, review_origin)):
        assert change(world, request, origin).state == "refused" and rows(world) == []
    assert change(world, absent, review_origin).state == "refused"
    (row,) = rows(world)
    assert (row.state, row.action, row.after, row.hash) == ("refused", "add", "Deploy on Fridays only.", "")
    assert "does not stand in the session" in row.reason
    made(world, add("Tuesdays.", SAID), foreground)
    again = msgspec.structs.replace(review_origin, tool_call_id="c2")
    assert "already" in change(world, add("Tuesdays.", SAID), again).text and len(rows(world)) == 2
    later = talk(world, SAID)
    same = MemoryRequest("replace", content="Tuesdays.", old_text="Tuesdays", evidence=(SAID,))
    again = msgspec.structs.replace(review_origin, parent_session_id=later, tool_call_id="c3")
    assert "says already" in change(world, same, again).text and len(rows(world)) == 2


def test_a_note_is_named_by_the_models_own_words_for_it_too(world: World) -> None:
    said = (
        "We glaze on Mondays here.",
        "We fire on Tuesdays here.",
        "We glaze and fire on any day of the week here.",
    )
    session = talk(world, *map(User, said[:2]), Say("ok"))
    claims = (add("The glazing day", said[0]), add("The firing day after Mondays", said[1]))
    review(world, session, claims)
    first, second = (row.after for row in rows(world))
    session = talk(world, said[2])
    for words, gone in (("firing DAY", second), ("glazing day", first), ("Mondays", first)):
        asked = MemoryRequest("replace", content="Windows.", old_text=words, evidence=(said[2],))
        ((outcome, _),) = review(world, session, [asked])
        assert (outcome.ok, rows(world)[-1].before) == (True, gone), outcome.text
        undo(world, rows(world)[-1].id)


# --- entries ----------------------------------------------------------------------------------------


def test_a_change_that_is_made_already_changes_nothing() -> None:
    text = "- a\n"
    assert notes.apply_change(text, "memory", notes.EntryChange("", "a")) == text
    assert notes.apply_change(text, "memory", notes.EntryChange("gone", "a")) == text
    assert notes.apply_change(text, "memory", notes.EntryChange("gone", "")) == text
    with pytest.raises(Refused, match="has changed since"):
        notes.apply_change(text, "memory", notes.EntryChange("gone", "b"))


# --- hand edits, and what is told of changes ---------------------------------------------------------


@pytest.mark.parametrize(("count", "actions"), [(10, ["add"] * 10), (11, ["hand_edit"])])
def test_ten_edits_by_hand_are_ten_changes_and_more_are_one(
    world: World, count: int, actions: list[str]
) -> None:
    memory_file(world).write_text("".join(f"- fact {n}\n" for n in range(count)))
    read_notes(world)
    assert [(row.action, row.trust, row.origin.execution_context) for row in rows(world)] == [
        (action, "user", "edited by hand") for action in actions
    ]
    read_notes(world)
    assert len(rows(world)) == len(actions), "it is entered once"


def test_a_hand_edit_that_overtakes_a_waiting_change_is_what_stands(world: World) -> None:
    first = made(world, MemoryRequest("add", content="Tests run with tox"))
    file = memory_file(world)
    file.unlink()
    file.mkdir()
    outcome = change(world, MemoryRequest("replace", content="Tests run with nox", old_text="tox"))
    assert outcome.ok and "could not be written" in outcome.text
    file.rmdir()
    file.write_text("# Memory\n\n- Tests run with make\n")
    asyncio.run(world.learning.apply())
    ledger_rows = {row.id: row for row in rows(world)}
    assert ledger_rows[outcome.ledger_id].state == "undone"
    assert "by hand at the same time" in ledger_rows[outcome.ledger_id].reason
    assert ledger_rows[first].state == "active" and file.read_text() == "# Memory\n\n- Tests run with make\n"


def test_a_persons_own_skill_is_no_change_until_it_is_edited(world: World) -> None:
    folder = world.folder / "skills" / "commit"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(MAIN)
    view(world, "commit")
    assert rows(world) == []
    (folder / "SKILL.md").write_text(MAIN.replace("Then", "Now"))
    view(world, "commit")
    ((kind, item, action),) = [(row.kind, row.item, row.action) for row in rows(world)]
    assert (kind, item, action) == ("skill", "commit", "hand_edit")
    undo(world, rows(world)[0].id)
    assert (folder / "SKILL.md").read_text() == MAIN


def test_listeners_hear_what_comes_into_force_and_nothing_else(world: World) -> None:
    heard: list[tuple[str, str]] = []
    world.learning.listeners.append(lambda row: heard.append((row.action, row.state)))
    first = made(world, MemoryRequest("add", content="Tests run with tox"))
    session = talk(world, SAID)
    review(world, session, [add("Deploy on Tuesdays only.", SAID)])
    undo(world, first)
    assert heard == [("add", "active"), ("add", "active"), ("undo", "active")]
    request = create("commit", "How we commit.", "Run make check before each commit.", SAID)
    origin = by_review(session)
    staged = change(world, request, origin)
    asyncio.run(world.learning.reject(staged.ledger_id))
    assert len(heard) == 3


def test_the_same_call_gives_the_stored_outcome(world: World) -> None:
    session = talk(world, SAID)
    origin = in_chat(session)
    once = change(world, add("Deploy on Tuesdays only.", SAID), origin)
    assert change(world, add("Something else.", SAID), origin) == once
    assert len(rows(world)) == 1


def test_a_change_is_told_with_its_number_and_hash_and_an_undone_one_as_undone(world: World) -> None:
    origin = in_chat(talk(world, SAID))
    request = create("commit", "How we commit.", "Run make check before each commit.", SAID)
    outcome = change(world, request, origin)
    assert f"(change {outcome.ledger_id})" in outcome.text and f"is now {outcome.hash}." in outcome.text
    assert outcome.summary == "Skill 'commit' created" and len(outcome.hash) == 12
    undo(world, outcome.ledger_id)
    again = change(world, request, origin)
    assert (again.ok, again.state) == (False, "undone") and again.text.startswith("This change is undone")


def test_what_a_review_staged_is_read_with_its_marks_and_leaves_no_receipt(world: World) -> None:
    session = talk(world, SAID)
    origin = by_review(session)
    change(world, create("commit", "How we commit.", "Run make check before each commit.", SAID), origin)
    read = view(world, "commit", "", origin)
    assert read.ok and read.state == "staged" and "folder not in force yet" in read.text
    assert world.database.read_now(lambda db: learned.list_uses(db, name="commit")) == []
    other = msgspec.structs.replace(origin, task_id="other")
    assert not view(world, "commit", "", other).ok


def test_what_was_taken_back_says_by_which_change(world: World) -> None:
    row = made(world, MemoryRequest("add", content="Tests run with tox"))
    back = undo(world, row)
    assert (back.action, back.undoes, back.before, back.after) == ("undo", row, "Tests run with tox", "")
    with pytest.raises(CannotUndo, match=f"taken back already, by change {back.id}") as refused:
        undo(world, row)
    assert refused.value.hint == f"to have it back: whet undo {back.id}"
    with pytest.raises(CannotUndo, match="only what waits can be accepted"):
        accept(world, row)
