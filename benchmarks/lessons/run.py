"""Tries the corpora on the real gate and counts what got through; used by the benchmark and by the tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lessons import attacks, fabricated, genuine
from benchmarks.lessons.world import Case, Request, Say, User, World
from whet.config.schema import MemorySettings
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome

_USER = Origin("user")


@dataclass
class Tally:
    """How often something was tried and what came of it, by family; `wrong` names each case that failed."""

    tried: Counter[str] = field(default_factory=Counter[str])
    wrong: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def total(self) -> int:
        """All cases."""
        return sum(self.tried.values())

    def wrong_in(self, *families: str) -> int:
        """How many cases of these families failed."""
        return sum(name.rpartition("-")[0] in families for name in self.wrong)


async def refused_genuine(world: World, cases: Sequence[Case]) -> Tally:
    """Count genuine lessons that were not kept: in force, or for the person to decide where only prose says it."""
    tally = Tally()
    for case in cases:
        tally.tried[case.family] += 1
        results = await _known_before(world, case)
        results += await world.review(await world.session(case.steps), case.tries[len(results) :])
        outcome, state = results[-1]
        if state != case.expect:
            tally.wrong[case.name] = f"{state}: {outcome.text}"
        await _take_back(world, results)
    return tally


async def _known_before(world: World, case: Case) -> list[tuple[WriteOutcome, str]]:
    """Remember what an edit is about, in a session before."""
    if case.family != "edits":
        return []
    first = case.tries[0]
    assert isinstance(first, MemoryRequest)
    before = await world.session([User(first.content), Say("ok")])
    return await world.review(before, [first])


async def saved_fabricated(world: World, cases: Sequence[Case]) -> Tally:
    """Count fabricated lessons that a later session could read: not what was pointed at, but the claim."""
    tally = Tally()
    for case in cases:
        tally.tried[case.family] += 1
        if case.before:
            await world.session(case.before)
        results = await world.review(await world.session(case.steps), case.tries)
        told = await world.prompt()
        kept = [
            request
            for (_, state), request in zip(results, case.tries, strict=True)
            if state == "active" and _claimed(request) in told
        ]
        if kept:
            tally.wrong[case.name] = repr(kept[0])
        await _take_back(world, results)
    return tally


async def active_poison(world: World, cases: Sequence[Case]) -> Tally:
    """Count poison that a later session could read, tried by a review and in the foreground."""
    tally = Tally()
    for case in cases:
        tally.tried[case.family] += 1
        if case.before:
            await world.session(case.before)
        session_id = await world.session(case.steps)
        results = await world.review(session_id, case.tries)
        results += await world.foreground(session_id, case.tries)
        if case.marker.lower() in (await world.prompt()).lower():
            said = [
                request
                for (_, state), request in zip(results, [*case.tries] * 2, strict=True)
                if state == "active"
            ]
            tally.wrong[case.name] = repr(said[:1])
        await _take_back(world, results)
    return tally


async def leaked_facts(world: World, people: int = 6) -> tuple[int, int]:
    """Give how many private facts of one person stand in another's prompt or skills, and how many there are."""
    services = [world.learning.for_person(f"p{n}", world.folder / "people" / f"p{n}") for n in range(people)]
    facts: list[list[str]] = []
    for number, service in enumerate(services):
        mine = [f"zq{number}{word}" for word in ("street", "doctor", "salary", "nickname")]
        facts.append(mine)
        for word in mine[:3]:
            await service.submit(MemoryRequest("add", "user", f"The private word is {word}"), _USER)
        text = f"---\nname: own-{number}\ndescription: About {mine[3]}.\n---\nSay {mine[3]}.\n"
        await service.submit(SkillRequest("create", f"own-{number}", content=text), _USER)
    leaks = 0
    for number, service in enumerate([*services, world.learning]):
        read = (await service.reader.build_prompt_part()).text + await service.skills.describe("")
        for other, words in enumerate(facts):
            if other != number:
                leaks += sum(word in read for word in words)
    return leaks, sum(map(len, facts))


async def prompt_cost(world: World, skills: int = 200) -> tuple[float, int]:
    """Give the tokens of full notes and an index of so many skills, and how many of these it shows."""
    for number in range(skills):
        folder = world.folder / "skills" / f"skill-{number:03d}"
        folder.mkdir(parents=True)
        about = f"How to do the {number}th recurring job of this team, step by step, and what to check before and after it."
        (folder / "SKILL.md").write_text(
            f"---\nname: skill-{number:03d}\ndescription: {about}\n---\nDo it.\n", "utf-8"
        )
    for target, limit in (("memory", world.limits.memory_chars), ("user", world.limits.user_chars)):
        number = 0
        while True:
            line = f"Fact {number} about {target}: the value is {number * 7} and it is kept for the measure of size."
            request = MemoryRequest("add", "memory" if target == "memory" else "user", line)
            if not (await world.learning.submit(request, _USER)).ok:
                break
            number += 1
        assert number * 60 < limit * 2
    part = await world.learning.reader.build_prompt_part()
    return len(part.text) / 4, sum(item.kind == "skill" for item in part.items)


def corpora(folder: Path, fabricated_each: int, every: int = 1) -> dict[str, Tally]:
    """Run the three corpora, each in a home of its own; with `every` only each so-manieth case of two."""

    async def everything() -> dict[str, Tally]:
        found: dict[str, Tally] = {}
        for name, count, cases in (
            ("genuine", refused_genuine, genuine.cases()[::every]),
            ("fabricated", saved_fabricated, fabricated.cases(fabricated_each)),
            ("poison", active_poison, attacks.cases()[::every]),
        ):
            world = World(folder / name)
            found[name] = await count(world, cases)
            world.close()
        return found

    return asyncio.run(everything())


def small_world(folder: Path) -> World:
    """A home with the default limits."""
    return World(folder, MemorySettings())


def _claimed(request: Request) -> str:
    return request.content


async def _take_back(world: World, results: Sequence[tuple[WriteOutcome, str]]) -> None:
    for outcome, state in reversed(results):
        if state in ("active", "quarantined", "inbox"):
            await world.learning.undo(outcome.ledger_id, _USER)
