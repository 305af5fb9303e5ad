"""What a new session reads is recorded with it; the hold-out leaves items out by chance and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.review.rig import Bench, bench, says
from whet.app.learning.services import Outcomes
from whet.contract.origin import Origin
from whet.memory.effects import measure_effects
from whet.memory.requests import MemoryRequest, SkillRequest
from whet.store import outcomes, sessions

USER = Origin("user", platform="cli")
SKILL = "---\nname: deploy\ndescription: Deploys the site.\n---\n\nRun `make deploy`.\n"


async def learn(b: Bench) -> None:
    await b.app.learning.owner_service.submit(MemoryRequest("add", content="The tests need X=1."), USER)
    await b.app.learning.owner_service.submit(
        MemoryRequest("add", "user", content="Likes short answers."), USER
    )
    await b.app.learning.owner_service.submit(SkillRequest("create", "deploy", content=SKILL), USER)


async def begin(b: Bench, text: str = "hello") -> str:
    b.session = await b.app.new_session()
    await b.turn(text)
    prompt, _ = b.app.database.read_now(lambda db: sessions.read_prefix(db, b.session.id))
    return prompt


def recorded(b: Bench) -> list[outcomes.ItemUse]:
    mine = ("deploy", "The tests need X=1.", "Likes short answers.")
    uses = b.app.database.read_now(lambda db: outcomes.list_item_uses(db, ("memory", "user", "skill")))
    return [use for use in uses if use.item.name in mine or use.item.label in mine]


def with_chance(b: Bench, share: float, chance: Callable[[], float]) -> None:
    b.app.sessions.outcomes = Outcomes(b.app.learning, b.app.database, share, chance)


def alternating() -> Iterator[float]:
    while True:
        yield from (0.0, 0.9)


async def test_a_new_session_begins_with_the_present_instructions(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("hi")]) as b:
        b.app.sessions.instructions = "Speak plainly."
        assert "Speak plainly." in await begin(b)


async def test_a_session_is_recorded_with_what_it_read(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("hi")]) as b:
        await learn(b)
        prompt = await begin(b)
        assert "The tests need X=1." in prompt and "deploy" in prompt
        item_uses = recorded(b)
        assert {use.item.kind for use in item_uses} == {"memory", "user", "skill"}
        assert all(use.session_id == b.session.id and use.item.hash for use in item_uses)
        assert not any(use.held_out or use.randomised for use in item_uses)


async def test_what_is_held_out_is_not_read_and_is_on_record(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("hi"), says("hi")]) as b:
        await learn(b)
        with_chance(b, 0.05, lambda: 0.0)
        prompt = await begin(b)
        assert "X=1" not in prompt and "short answers" not in prompt and "Deploys" not in prompt
        assert all(use.held_out and use.randomised for use in recorded(b))
        chances = alternating()
        with_chance(b, 0.05, lambda: next(chances))
        prompt = await begin(b)
        here = [use for use in recorded(b) if use.session_id == b.session.id]
        assert {use.held_out for use in here} == {True, False}
        for use in here:
            shown = use.item.label in prompt
            assert shown is not use.held_out


@pytest.mark.slow
async def test_effects_follow_from_real_sessions(tmp_path: Path) -> None:
    script = [says("ok")] * 40
    async with bench(tmp_path, script, settings={"review.on_correction": "false"}) as b:
        await learn(b)
        for number in range(12):
            with_chance(b, 0.5, lambda number=number: 0.0 if number % 2 else 0.9)
            await begin(b)
            if number % 2 == 0:
                await b.turn("No, that is wrong, use pytest.")
                await b.app.database.write(
                    lambda db, id_=b.session.id: outcomes.record_signal(db, id_, "bad", "now", turn=1)
                )
        effects = await measure_effects(b.app.learning.owner_service, ("memory",))
        note = next(effect for effect in effects if effect.item.label == "The tests need X=1.")
        assert (note.basis, note.shown.sessions, note.compared.sessions) == ("hold-out", 6, 6)
        assert note.shown.troubled == 6 and note.compared.troubled == 0
        assert note.finding == "hurts" and note.current
