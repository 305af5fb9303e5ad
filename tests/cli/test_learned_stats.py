"""`whet memory stats`, `whet skills stats`: uses, outcomes, findings; taking out what hurts, and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.running import invoke
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.cli.learned_items.changes import with_learning
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.memory.service import LearningService
from whet.store import learned, outcomes
from whet.store.database import StateDatabase
from whet.store.learned import ContextItem

_USER = Origin("user", platform="test")
_SKILL = "---\nname: deploy\ndescription: Deploys the site.\n---\n\nRun make deploy.\n"


def run(*words: str) -> str:
    return invoke(*words, catch_exceptions=False).output


def filled(home: Home, clock: FixedClock) -> None:
    """A note that chance left out of half of 24 sessions; those with it were corrected."""

    async def learn(learning: LearningService) -> list[ContextItem]:
        await learning.submit(MemoryRequest("add", content="The tests need X=1."), _USER)
        await learning.submit(SkillRequest("create", "deploy", content=_SKILL), _USER)
        part = await learning.reader.build_prompt_part()
        return [ContextItem(item.kind, item.name, item.hash, item.label) for item in part.items]

    items = with_learning(home, learn)
    notes = [item for item in items if item.kind == "memory"]
    others = [item for item in items if item.kind == "skill"]
    for number in range(24):
        id_ = store(home.root, clock, f"s{number}", Said("go", "done"), Said("and again", "ok"))
        shown, held = (notes, ()) if number % 2 else ((), notes)
        asyncio.run(_record(home, id_, [*shown, *others], list(held), corrected=bool(number % 2)))


async def _record(
    home: Home, session_id: str, shown: list[ContextItem], held: list[ContextItem], *, corrected: bool
) -> None:
    database = StateDatabase.open(home.database, SystemClock())
    if corrected:
        await database.write(lambda db: outcomes.record_signal(db, session_id, "correction", "now", turn=1))
    await database.write(lambda db: learned.record_items(db, session_id, shown, held, randomised=True))
    database.close()


def test_nothing_learned_yet_is_said(home: Path) -> None:
    assert "no session has begun with a learned item yet" in run("memory", "stats")
    assert json.loads(run("memory", "stats", "--json")) == {"items": [], "proposed": []}


@pytest.mark.slow
def test_what_hurts_is_proposed_and_a_person_takes_it_out(home: Path, clock: FixedClock) -> None:
    place = Home(home)
    filled(place, clock)
    data = json.loads(run("memory", "stats", "--json"))
    (note,) = data["items"]
    assert (note["basis"], note["finding"], note["shown"]["sessions"]) == ("hold-out", "hurts", 12)
    assert [item["name"] for item in data["proposed"]] == [note["item"]["name"]]
    text = run("memory", "stats")
    assert "proposed for retirement (hold-out): The tests need X=1." in text
    assert f"whet memory retire {note['item']['name']}" in text
    assert "X=1" in (home / "memories" / "MEMORY.md").read_text()
    said = json.loads(run("memory", "retire", note["item"]["name"], "--json"))
    assert "X=1" not in (home / "memories" / "MEMORY.md").read_text()
    assert json.loads(run("memory", "stats", "--json"))["proposed"] == []
    with_learning(place, lambda learning: learning.undo(said["ledger_id"], _USER))
    assert "X=1" in (home / "memories" / "MEMORY.md").read_text()


@pytest.mark.slow
def test_a_skill_without_a_comparison_is_no_evidence(home: Path, clock: FixedClock) -> None:
    place = Home(home)
    filled(place, clock)
    data = json.loads(run("skills", "stats", "--json"))
    mine = next(item for item in data["items"] if item["item"]["name"] == "deploy")
    assert mine["finding"] == "no evidence" and mine["basis"] == "none"
    assert "Nothing here is causal" in run("skills", "stats")
    run("skills", "retire", "deploy")
    assert not (home / "skills" / "deploy").exists()


@pytest.mark.slow
def test_a_note_that_is_not_there_is_named(home: Path, clock: FixedClock) -> None:
    filled(Home(home), clock)
    assert "no note nope" in str(invoke("memory", "retire", "nope").exception)
