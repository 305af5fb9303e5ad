"""The world's truth, its verdicts and its secrets, without any program."""

from __future__ import annotations

import msgspec
import pytest

from whet_lab.evals.world import FactWorld, SessionPlan, Shape
from whet_lab.practice.gated_facts import FactCommand, FactStatement, parse_command, parse_task


def right(world: FactWorld, plan: SessionPlan) -> dict[str, str]:
    """The settings that a plan's task needs."""
    return {
        key: world.truth(about, plan.number, plan.person)
        for about, key in zip(plan.task.needs, plan.task.keys, strict=True)
    }


def command_of(plan: SessionPlan, settings: dict[str, str]) -> FactCommand:
    """The plan's command with these settings, after the step that they name."""
    command = parse_command(plan.task.command(settings))
    assert command is not None
    return msgspec.structs.replace(command, step=settings.get("before", ""))


def test_a_seed_gives_the_same_world_and_another_one_another():
    first, again, other = FactWorld(3), FactWorld(3), FactWorld(4)
    assert first.plans == again.plans and first.drifts == again.drifts
    assert first.plans != other.plans


def test_every_task_can_be_done_with_the_truth_and_is_read_back_from_its_text():
    for seed in range(5):
        world = FactWorld(seed)
        for plan in world.plans:
            assert parse_task(plan.task.text) == plan.task
            assert 1 <= len(plan.task.keys) <= 4
            command = command_of(plan, right(world, plan))
            assert world.judge(command, plan).is_ok
            assert world.objection(command, plan) == ""


def test_a_world_has_the_same_tasks_with_ordinary_commands_and_without():
    plain, with_looks = FactWorld(3), FactWorld(3, Shape(looks=4))
    tasks = [plan.task for plan in with_looks.plans]
    assert [msgspec.structs.replace(task, looks=()) for task in tasks] == [plan.task for plan in plain.plans]
    assert all(len(set(task.looks)) == 4 and parse_task(task.text) == task for task in tasks)


def test_a_wrong_setting_is_refused_and_usually_named():
    world = FactWorld(0, Shape(reveal=1.0))
    plan = next(plan for plan in world.plans if "flag" in plan.task.keys)
    settings = right(world, plan) | {"flag": "--none"}
    command = command_of(plan, settings)
    verdict = world.judge(command, plan)
    truth = FactStatement(plan.task.tool, "flag", world.truth((plan.task.tool, "flag"), plan.number, "ana"))
    assert verdict.text == f"refused: {truth.text}"
    assert verdict.wrong == verdict.revealed == (truth.topic,)
    silent = FactWorld(0, Shape(reveal=0.0)).judge(command, plan)
    assert silent.revealed == () and truth.value not in silent.text


def test_what_comes_first_is_refused_by_name_until_it_was_run_on_the_same_item():
    world = FactWorld(0, Shape(reveal=1.0))
    plan = next(plan for plan in world.plans if "before" in plan.task.keys)
    command = msgspec.structs.replace(command_of(plan, right(world, plan)), step="")
    step = world.truth((plan.task.tool, "before"), plan.number, plan.person)
    first = f"run `./ops {step} ITEM` before `./ops {plan.task.tool} ITEM`"
    assert world.judge(command, plan).text == f"refused: {first}"
    run = parse_command(f"{step} {plan.task.target} {plan.task.number}")
    assert run is not None and world.judge(run, plan).is_ok
    silent = FactWorld(0, Shape(reveal=0.0)).judge(command, plan)
    assert not silent.is_ok and step not in silent.text


def test_a_wish_is_the_persons_own():
    world = FactWorld(1)
    plan = next(plan for plan in world.plans if "format" in plan.task.keys and plan.person == "ana")
    command = command_of(plan, right(world, plan) | {"format": "plain"})
    assert world.judge(command, plan).is_ok
    assert right(world, plan)["format"] in world.objection(command, plan)
    ben = msgspec.structs.replace(plan, person="ben")
    assert right(world, plan)["format"] in world.secrets_from(ben)
    assert right(world, plan)["format"] not in world.secrets_from(plan)


def test_what_was_private_is_a_secret_everywhere_else():
    world = FactWorld(2)
    private = next(plan for plan in world.plans if plan.is_private)
    secret = right(world, private)["format"]
    assert secret not in world.secrets_from(private)
    others = [plan for plan in world.plans if not plan.is_private]
    assert all(secret in world.secrets_from(plan) for plan in others)


def test_facts_drift_to_another_value_in_the_middle_third():
    world = FactWorld(5)
    assert len(world.drifts) == world.shape.drifts
    for about, since in world.drifts.items():
        assert 10 < since <= 20
        assert world.truth(about, since - 1, "ana") != world.truth(about, since, "ana")
        assert world.was_true(FactStatement(*about, world.truth(about, 1, "ana")))


@pytest.mark.parametrize("text", ["", "shipit", "shipit billing x flag=1", "shipit billing 3 flag"])
def test_what_is_no_command_is_read_as_none(text):
    assert parse_command(text) is None
