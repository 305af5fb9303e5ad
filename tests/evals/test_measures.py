"""Sums over runs: rates, pairs, half-lives, and the honest list of losses."""

from __future__ import annotations

import msgspec
import pytest

from whet.contract.messages import Usage
from whet_lab.evals.campaign import CampaignSettings
from whet_lab.evals.measures import find_losses, summarise
from whet_lab.evals.paired import compare
from whet_lab.evals.records import FactNeed, Funnel, StaleFact, TaskRecord, TokenSpending, WorldResult
from whet_lab.evals.world import Shape
from whet_lab.evals.world_report import check_goals, describe_lengths, format_gain, format_report


def task(number: int, first: bool, ok: bool = True) -> TaskRecord:
    return TaskRecord(number, "ana", False, first, ok, 1, ())


def run(arm: str, seed: int, first: str, *, ok: str = "", tokens: int = 1000, **more: object) -> WorldResult:
    """One letter a session: y or n."""
    ok = ok or "y" * len(first)
    pairs = enumerate(zip(first, ok, strict=True), 1)
    tasks = tuple(task(number, a == "y", b == "y") for number, (a, b) in pairs)
    used = Usage(prompt_tokens=tokens, input_tokens=tokens)
    fields: dict[str, object] = {
        "funnel": Funnel(10, 9, 9, 9),
        "spent": TokenSpending(used),
        "stale": (),
        "leaks": 0,
        "poisoned": 0,
        "false_kept": 0,
        **more,
    }
    return WorldResult(seed=seed, arm=arm, tasks=tasks, requests=1, planted=0, wall_s=1.0, **fields)  # type: ignore[arg-type]


def test_arms_are_compared_in_pairs():
    runs = [run("off", s, "nnnnny") for s in range(6)] + [run("ours", s, "nnyyyy") for s in range(6)]
    off, ours = summarise(runs)
    assert off.gain is None and off.p_value is None
    assert ours.gain is not None and ours.gain.estimate == pytest.approx(0.5)
    assert ours.p_value is not None and ours.p_value < 0.001
    assert ours.stages == (0.0, 1.0, 1.0) and ours.curve == (0.0, 0.0, 1.0, 1.0, 1.0, 1.0)
    assert ours.harm_first is not None and ours.harm_first.estimate == 0.0


def test_what_could_be_known_is_told_by_thirds():
    def needing(number: int, *learnable: bool) -> TaskRecord:
        needs = tuple(FactNeed("ship", f"k{n}", one, "absent") for n, one in enumerate(learnable))
        return TaskRecord(number, "ana", False, False, True, 1, needs)

    world_result = msgspec.structs.replace(
        run("ours", 0, "nnn"), tasks=(needing(1, False), needing(2, True, False), needing(3, True, True))
    )
    (ours,) = summarise([world_result])
    assert ours.knowable == (0.0, 0.0, 1.0) and ours.stages == (0.0, 0.0, 0.0)


def test_tokens_are_averaged_over_the_first_sessions_of_a_run():
    def growing(arm: str, tokens: int, growth: int) -> WorldResult:
        result = run(arm, 0, "y" * 40)
        tasks = [msgspec.structs.replace(task, tokens=tokens + growth * task.number) for task in result.tasks]
        return msgspec.structs.replace(result, tasks=tuple(tasks))

    sums = summarise([growing("conversation", 0, 1_000), growing("ours", 2_000, 0)])
    assert sums[0].tokens_by_length == {10: 5_500, 20: 10_500, 40: 20_500}
    assert (
        describe_lengths(sums)[-1]
        == "40 sessions: 2,000 tokens a task, 10% of the 20,500 of the whole conversation"
    )
    assert "| ours | 2,000 | 2,000 | 2,000 |" in format_report(sums, CampaignSettings(Shape(sessions=40)))


def test_harm_is_what_was_lost_relative_to_no_memory():
    runs = [run("off", s, "yyyy") for s in range(4)]
    runs += [run("ours", s, "ynyy", ok="ynyy") for s in range(4)]
    ours = summarise(runs)[1]
    assert ours.harm_first is not None and ours.harm_first.estimate == pytest.approx(0.25)
    assert ours.harm_end is not None and ours.harm_end.estimate == pytest.approx(0.25)
    assert dict((goal, met) for goal, met, _ in check_goals([ours]))["harm <= 1% of tasks"] is False


def test_a_difference_that_spans_zero_is_no_evidence():
    runs = [run("off", s, "ynyn") for s in range(6)]
    runs += [run("ours", s, "ynyn" if s % 2 else ("yyyn" if s % 4 else "nnyn")) for s in range(6)]
    text = format_gain(summarise(runs)[1].gain)
    assert text.endswith("no evidence")


def test_an_old_value_that_never_went_counts_as_longer_than_all():
    rows = ("a", 2, True), ("b", 4, True), ("c", 3, False)
    stale = tuple(StaleFact(name, "flag", since, went) for name, since, went in rows)
    half = summarise([run("ours", 0, "yy", stale=stale), run("ours", 1, "yy")])[0].half_life
    assert (half.facts, half.gone, half.sessions) == (3, 2, 4)
    never = summarise([run("ours", 0, "yy", stale=stale[2:])])[0].half_life
    assert never.sessions is None


def test_where_ours_loses_is_said():
    runs = [run("ours", 0, "nny", tokens=3000), run("off", 0, "ynn"), run("oracle", 0, "yyy", tokens=1)]
    lines = find_losses(summarise(runs))
    first = "off is right at the first try more often in the first third"
    assert any(line.startswith(first) for line in lines)
    assert any(line.startswith("off spends fewer tokens") for line in lines)
    assert not any(line.startswith("oracle") for line in lines)


class Run(msgspec.Struct, frozen=True):
    task: str
    repeat: int
    ok: bool


def runs(tasks: int, repeats: int, ok: bool) -> list[Run]:
    return [Run(f"t{task}", repeat, ok) for task in range(tasks) for repeat in range(repeats)]


def score(run: Run) -> float:
    return float(run.ok)


def test_runs_of_one_task_are_one_unit():
    paired_gap = compare(runs(7, 3, True), runs(7, 3, False), score)
    assert (paired_gap.tasks, paired_gap.pairs, paired_gap.only_first, paired_gap.only_other) == (
        7,
        21,
        21,
        0,
    )
    assert paired_gap.gap.estimate == 1.0 and paired_gap.is_clear
    # Twelve runs of one task are one task.
    assert not compare(runs(1, 12, True), runs(1, 12, False), score).is_clear


def test_few_tasks_are_no_evidence_however_clear_they_look():
    assert not compare(runs(5, 3, True), runs(5, 3, False), score).is_clear


def test_only_what_both_have_done_counts():
    paired_gap = compare(runs(7, 3, True), runs(4, 2, False), score)
    assert (paired_gap.tasks, paired_gap.pairs) == (4, 8)
    assert compare(runs(7, 3, True), [], score).gap.spans_zero
