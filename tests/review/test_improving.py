"""A skill is improved by the real GEPA on its own cases: kept is a gain on held-out ones, no loss."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from benchmarks.lessons.world import Run, Step, User, World, create
from click.testing import CliRunner

from tests.memory.conftest import world as world
from whet.cli.learned_items.skill_improve import skills_improve
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.contract.origin import Origin
from whet.memory.cases import SkillCase, parse_steps
from whet.memory.requests import SkillRequest
from whet.review.improving import improve, replace_steps, score
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

SKILL = "---\nname: fire\ndescription: x\n---\n\n1. `kiln fire BATCH` → “fired”\n- Mind the door.\n"
BETTER = "```\n1. `kiln warm BATCH`\n2. `kiln fire BATCH`\n```"


def case(batch: str, *more: tuple[str, bool]) -> SkillCase:
    ran = (f"kiln fire {batch}", True), (f"kiln warm {batch}", False), (f"kiln fire {batch}", False)
    return SkillCase(f"s-{batch}", f"Fire {batch}.", (*ran, *more))


def test_what_failed_scores_nothing_and_what_is_missing_less() -> None:
    skill_case = case("b1", ("kiln break b1", True))
    assert score(["kiln warm BATCH", "kiln fire BATCH"], skill_case) == 1.0
    assert 0 < score(["kiln fire BATCH"], skill_case) < 1
    assert score(["kiln break BATCH", "kiln fire BATCH"], skill_case) == 0.0


def test_copying_a_whole_session_scores_little() -> None:
    cases = [
        case(f"b{n}", *((f"look at shelf-{word}", False) for word in words))
        for n, words in enumerate((("oak", "elm", "ash"), ("fir", "yew", "bay"), ("fig", "ivy", "sage")))
    ]
    whole = list(dict.fromkeys(command for command, failed in cases[0].commands if not failed))
    assert score(["kiln warm BATCH", "kiln fire BATCH"], cases[0], cases) == 1.0
    assert score(whole, cases[0], cases) < 0.6
    assert score(["kiln warm BATCH"] * 3 + ["kiln fire BATCH"], cases[0], cases) < 1.0


def test_the_real_optimiser_finds_steps_that_win_on_held_out_cases() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    prompts: list[str] = []
    cases = [case(f"b{number}") for number in range(4)]
    improvement = improve(SKILL, cases, lambda prompt: prompts.append(prompt) or BETTER, 3)
    assert improvement.steps == ("kiln warm BATCH", "kiln fire BATCH") and improvement.is_gain
    assert 1 <= improvement.calls <= 3 and improvement.held_out == ("s-b1", "s-b3")
    assert "```\n1. `kiln fire BATCH`\n```" in prompts[0]
    assert "kiln warm b0" in prompts[0] and not any("b1" in prompt or "b3" in prompt for prompt in prompts)
    text = replace_steps(SKILL, improvement.steps)
    assert parse_steps(text) == list(improvement.steps)
    assert "2. `kiln fire BATCH` → “fired”" in text and "- Mind the door." in text


def test_two_cases_are_enough_and_what_is_perfect_is_not_asked_about() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    asked: list[str] = []
    cases = [case("b0"), case("b1")]
    improvement = improve(SKILL, cases, lambda prompt: asked.append(prompt) or BETTER, 9)
    assert improvement.is_gain and improvement.held_out == ("s-b1",) and improvement.calls == len(asked) == 1
    again = improve(
        replace_steps(SKILL, improvement.steps), cases, lambda prompt: asked.append(prompt) or SKILL, 9
    )
    assert again.steps == improvement.steps and not again.is_gain and len(asked) == 1


def test_a_proposal_is_made_from_three_cases_at_most() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    prompts: list[str] = []
    improve(
        SKILL, [case(f"b{number}") for number in range(9)], lambda text: prompts.append(text) or BETTER, 1
    )
    assert len({f"Fire b{number}." for number in range(9) if f"Fire b{number}." in prompts[0]}) == 3


def test_steps_that_no_session_shows_and_losses_are_not_kept() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    cases = [case(f"b{number}") for number in range(4)]
    made_up = improve(SKILL, cases, lambda prompt: "```\n1. `rm -rf /`\n2. `kiln fire BATCH`\n```", 2)
    assert "rm -rf /" not in made_up.steps and not made_up.is_gain
    other = SkillCase("s-x", "", (("kiln fire x", False), ("kiln warm x", True)))
    lost = improve(SKILL, [*cases[:3], other], lambda prompt: BETTER, 2)
    assert not lost.is_gain


def test_a_step_that_only_a_held_out_case_shows_is_not_taken() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    cases = [case("b0"), case("b1", ("kiln polish b1", False)), case("b2"), case("b3")]
    more = BETTER.replace("BATCH`\n```", "BATCH`\n3. `kiln polish BATCH`\n```")
    improvement = improve(SKILL, cases, lambda prompt: more, 2)
    assert improvement.steps == ("kiln warm BATCH", "kiln fire BATCH") and improvement.is_gain


def test_a_search_asks_no_more_often_than_it_may() -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")
    cases = [case(f"b{number}") for number in range(4)]
    assert improve(SKILL, cases, lambda prompt: "```\n1. `rm -rf /`\n```", 2).calls == 2


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(ConfigError, match="not installed"):
        improve(SKILL, [case("b0"), case("b1")], lambda prompt: BETTER, 1)


def fired(batch: str) -> list[Step]:
    return [
        User(f"Fire batch {batch}."),
        Run(
            "terminal", f"kiln fire {batch}", "kiln: run `kiln warm BATCH` before `kiln fire BATCH`", ok=False
        ),
        Run("terminal", f"kiln warm {batch}", f"{batch} is at 300"),
        Run("terminal", f"kiln fire {batch}", f"{batch} fired"),
    ]


def test_the_command_keeps_a_gain_as_one_change_that_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gepa", reason="whet-agent[improve] is not installed")

    async def learn() -> None:
        first = await world.session(fired("b1"))
        await world.review(first, [create("fire-batch", "Fire.", "- fire it", "b1 fired")])
        line = "1. `kiln fire BATCH`"
        for batch in ("b2", "b3"):
            text = f"Fire batch {batch}."
            patch = SkillRequest(
                "patch", "fire-batch", old_string=line, new_string=f"{line}\n- {text}", evidence=(text,)
            )
            [(outcome, state)] = await world.review(await world.session(fired(batch)), [patch])
            assert state == "active", outcome.text

    asyncio.run(learn())
    path = world.folder / "skills" / "fire-batch" / "SKILL.md"
    before = path.read_text()
    with PracticeServer(script=[ScriptedReply(BETTER)] * 9) as server:
        monkeypatch.setenv("WHET_MODEL_PROVIDER", "practice")
        monkeypatch.setenv("WHET_MODEL_MODEL", "practice")
        monkeypatch.setenv("WHET_MODEL_BASE_URL", server.base_url)
        done = CliRunner().invoke(
            skills_improve, ["fire-batch", "--budget", "2", "--json"], obj=Home(world.folder)
        )
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    assert data["kept"] and data["calls"] <= 2 and sum(one["held_out"] for one in data["cases"]) == 1
    assert parse_steps(path.read_text()) == ["kiln warm BATCH", "kiln fire BATCH"]
    row = asyncio.run(world.learning.get_change(data["change"]))
    assert (row.kind, row.action, row.state) == ("skill", "edit", "active") and "held out" in row.reason
    asyncio.run(world.learning.undo(row.id, Origin("user")))
    assert path.read_text() == before
