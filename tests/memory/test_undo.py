"""Taking back, accepting and forgetting: what stands in the way, and how that is told."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.lessons.world import Say, User, World, add, create

from tests.memory.home import HAND, accept, by_review, prompt, read_notes, review, rows, talk, undo
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.memory.undo import CannotUndo, ForgetStep
from whet.store import ledger

SAID = "We glaze on Mondays in the north hall."
LATER = "We glaze in the north hall on Fridays now, windows open."


def session(world: World, *texts: str) -> str:
    return talk(world, *map(User, texts), Say("ok"))


def by_hand(world: World, request: MemoryRequest) -> int:
    return asyncio.run(world.learning.submit(request, HAND)).ledger_id


def taught(world: World) -> tuple[str, ledger.LedgerRow]:
    """Give a session that taught a note, and the note's change."""
    first = session(world, SAID)
    ((_, state),) = review(world, first, [add("Glaze.", SAID)])
    assert state == "active"
    return first, rows(world)[-1]


def forgotten(world: World, session_id: str) -> list[tuple[int, str, str]]:
    """Give what forgetting would do, and check that it does that."""

    def said(steps: list[ForgetStep]) -> list[tuple[int, str, str]]:
        return [(step.row.id, step.what, step.why) for step in steps]

    planned = said(asyncio.run(world.learning.forget(session_id, HAND, dry_run=True)))
    done = asyncio.run(world.learning.forget(session_id, HAND, dry_run=False))
    assert said(done) == planned and all((step.back is None) is (step.what == "keep") for step in done)
    return planned


def test_what_the_person_changed_since_is_not_forgotten(world: World) -> None:
    first, row = taught(world)
    own = by_hand(world, MemoryRequest("replace", content="We glaze when we like", old_text="Mondays"))
    assert forgotten(world, first) == [(row.id, "keep", f"you changed it since (change {own})")]
    assert "when we like" in prompt(world)


def test_what_another_session_replaced_since_is_not_forgotten(world: World) -> None:
    first, row = taught(world)
    other = session(world, LATER)
    change = MemoryRequest("replace", content="Windows.", old_text="Mondays", evidence=(LATER,))
    ((outcome, state),) = review(world, other, [change])
    assert state == "active"
    why = f"replaced since by change {outcome.ledger_id}, which has evidence of its own"
    assert forgotten(world, first) == [(row.id, "keep", why)]
    assert forgotten(world, other) == [(outcome.ledger_id, "take back", "")]
    assert forgotten(world, first) == [(row.id, "take back", "")], "nothing stands on it any more"
    assert forgotten(world, first) == [] and "Mondays" not in prompt(world)


def test_what_was_built_on_a_forgotten_skill_goes_first(world: World) -> None:
    first, other = session(world, SAID), session(world, LATER)
    ((outcome, _),) = review(world, first, [create("glaze", "How.", "Do it on Mondays.", SAID)])
    patch = SkillRequest("patch", "glaze", old_string="- “", new_string="Windows.\n- “", evidence=(LATER,))
    ((patched, state),) = review(world, other, [patch])
    assert state == "active"
    heard: list[tuple[str, int]] = []
    world.learning.listeners.append(lambda row: heard.append((row.action, row.undoes)))
    assert forgotten(world, first) == [
        (patched.ledger_id, "take back", f"it was built on change {outcome.ledger_id}"),
        (outcome.ledger_id, "take back", ""),
    ]
    assert heard == [("undo", patched.ledger_id), ("undo", outcome.ledger_id)]
    assert not (world.folder / "skills/glaze").exists()


def test_what_waits_is_dropped_with_its_session(world: World) -> None:
    first = session(world, SAID)
    origin = by_review(first)
    staged = asyncio.run(world.learning.submit(add("Glaze.", SAID), origin)).ledger_id
    assert forgotten(world, first) == [(staged, "drop", "")]
    (row,) = rows(world)
    assert (row.state, row.reason) == ("rejected", "taken back before it came into force")
    with pytest.raises(CannotUndo, match=f"change {staged} is rejected; there is nothing to take back"):
        undo(world, staged)


def test_what_can_not_be_taken_back_is_kept_and_says_why(world: World) -> None:
    first, row = taught(world)
    file = world.folder / "memories" / "MEMORY.md"
    file.write_text("".join(f"- fact {number}\n" for number in range(12)))  # too many edits to tell apart
    read_notes(world)
    large = rows(world)[-1]
    assert large.action == "hand_edit"
    (step,) = asyncio.run(world.learning.forget(first, HAND, dry_run=False))
    text = f"change {row.id} can't be taken back: its entry has changed since"
    assert (step.what, step.why, step.back) == ("keep", text, None)
    by_hand(world, MemoryRequest("replace", content="fact 0 and more", old_text="fact 0"))
    with pytest.raises(CannotUndo, match="some of its entries have changed since"):
        undo(world, large.id)
    assert "fact 11" in file.read_text()
    undo(world, rows(world)[-1].id)
    back = undo(world, large.id)
    assert "Mondays" in file.read_text() and "fact" not in file.read_text()
    undo(world, back.id)
    assert "fact 11" in file.read_text() and "Mondays" not in file.read_text()


def test_a_refused_note_is_accepted_on_the_persons_word_and_a_refused_skill_is_not(world: World) -> None:
    first = session(world, SAID)
    absent = "we glaze on Fridays in the hall"
    asked = [add("Glaze on Fridays.", absent), create("glaze", "How.", "On Fridays.", absent)]
    review(world, first, asked)
    note, skill = rows(world)
    assert [row.state for row in (note, skill)] == ["refused", "refused"]
    accepted = accept(world, note.id)
    assert (accepted.state, accepted.reason) == ("active", "accepted by the person (was refused)")
    assert "Glaze on Fridays." in prompt(world)
    with pytest.raises(CannotUndo, match="is refused; only what waits can be accepted"):
        accept(world, skill.id)
    with pytest.raises(CannotUndo, match="is refused; there is nothing to take back"):
        undo(world, skill.id)
    dropped = asyncio.run(world.learning.reject(skill.id))
    assert (dropped.state, dropped.reason) == ("rejected", "rejected by the person")
    with pytest.raises(CannotUndo, match="is rejected; only what waits can be rejected"):
        asyncio.run(world.learning.reject(skill.id))


def test_what_has_changed_since_can_not_be_accepted_only_dropped(world: World) -> None:
    by_hand(world, MemoryRequest("add", content="Glaze is blue"))
    first = session(world, SAID)
    change = MemoryRequest("replace", content="Mondays.", old_text="blue", evidence=(SAID,))
    ((outcome, state),) = review(world, first, [change])
    assert state == "inbox"
    by_hand(world, MemoryRequest("replace", content="Glaze is green", old_text="blue"))
    with pytest.raises(CannotUndo, match="can't be accepted: The entry has changed since") as refused:
        accept(world, outcome.ledger_id)
    assert refused.value.hint == f"whet undo {outcome.ledger_id} drops it"
    assert undo(world, outcome.ledger_id).state == "rejected"


def test_a_removal_of_a_note_that_is_gone_is_not_accepted(world: World) -> None:
    note = by_hand(world, MemoryRequest("add", content="Glaze is blue"))
    first = session(world, "Forget that glaze is blue.")
    change = MemoryRequest("remove", old_text="blue", evidence=("Forget that glaze is blue.",))
    ((outcome, state),) = review(world, first, [change])
    assert state == "inbox"
    undo(world, note)
    with pytest.raises(CannotUndo, match="the note that it removes is gone already"):
        accept(world, outcome.ledger_id)
    assert undo(world, outcome.ledger_id).state == "rejected" and "blue" not in prompt(world)
