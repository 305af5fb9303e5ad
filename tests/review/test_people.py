"""Two people and the owner in one home: what one's conversations teach stands in nobody else's requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.review.rig import Bench, bench, does, remember, says, use
from whet.agent.loop import run_turn
from whet.app.conversations.session_parts import Principal
from whet.contract.origin import Origin
from whet.memory.effects import measure_effects
from whet.review.wording import TITLE
from whet_lab.practice.script import ScriptedReply

FACTS = {
    "anna": "No, my tests run with ./check --heron here.",
    "ben": "No, my tests run with ./check --walrus here.",
    "": "No, my tests run with ./check --badger here.",
}
WORDS = {"anna": "heron", "ben": "walrus", "": "badger"}


def lesson(word: str) -> list[ScriptedReply]:
    """A conversation with a correction, and a review that saves a note and a skill."""
    quote = f"my tests run with ./check --{word} here"
    text = f"---\nname: my-tests\ndescription: Tests with {word}.\n---\n\nRun `./check --{word}`.\n"
    skill = use("skill_manage", action="create", name="my-tests", content=text, evidence=[quote])
    note = remember(f"The tests run with ./check --{word}.", quote)
    return [says("I ran pytest."), says("Understood."), does(note, skill), says("Done.")]


def strange(text: str, profile: str) -> list[str]:
    """Give the words of others that stand in a text."""
    return [word for other, word in WORDS.items() if other != profile and word in text]


@pytest.mark.slow
async def test_each_ones_lessons_are_their_own(tmp_path: Path) -> None:
    async def ask(b: Bench, profile: str, *texts: str) -> None:
        session = await b.app.new_session(whose=Principal(profile=profile))
        for text in texts:
            await run_turn(session, session.user_message(text), b.events.append)

    async with bench(tmp_path, [], settings={"review.free_tokens": "5000000"}) as b:
        for profile, word in WORDS.items():
            b.server.reset()
            b.server.install(lesson(word))
            await ask(b, profile, "Run the tests", FACTS[profile])
            [done] = await b.review()
            assert done.state == "saved" and len(done.ledger_ids) == 2, done
            bodies = [request.body.decode() for request in b.server.requests]
            assert len(bodies) >= 3 and TITLE in bodies[2]
            assert not any(strange(body, profile) for body in bodies)
        for profile, word in WORDS.items():
            b.server.reset()
            b.server.install([says("Hello.")])
            await ask(b, profile, "What runs the tests?")
            body = b.server.requests[0].body.decode()
            assert f"./check --{word}" in body and "my-tests" in body
            learning = b.app.learning.service_of(profile)
            labels = " ".join(
                effect.item.label for effect in await measure_effects(learning, ("memory", "skill"))
            )
            view = await learning.skills.view("my-tests", "", Origin("foreground"))
            assert word in labels and word in view.text
            assert not strange(body + labels + view.text, profile)
        assert "badger" in b.memory()
        assert "heron" in (b.home / "people" / "anna" / "memories" / "MEMORY.md").read_text()
