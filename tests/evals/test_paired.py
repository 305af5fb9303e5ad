"""Two arms on the same tasks: paired, the task the unit."""

from __future__ import annotations

import msgspec

from whet_lab.evals.paired import compare


class Run(msgspec.Struct, frozen=True):
    task: str
    repeat: int
    ok: bool


def runs(tasks: int, repeats: int, ok: bool) -> list[Run]:
    return [Run(f"t{task}", repeat, ok) for task in range(tasks) for repeat in range(repeats)]


def score(run: Run) -> float:
    return float(run.ok)


def test_runs_of_one_task_are_one_unit():
    found = compare(runs(7, 3, True), runs(7, 3, False), score)
    assert (found.tasks, found.pairs, found.only_first, found.only_other) == (7, 21, 21, 0)
    assert found.gap.estimate == 1.0 and found.is_clear
    # Twelve runs of one task are one task.
    assert not compare(runs(1, 12, True), runs(1, 12, False), score).is_clear


def test_few_tasks_are_no_evidence_however_clear_they_look():
    assert not compare(runs(5, 3, True), runs(5, 3, False), score).is_clear


def test_only_what_both_have_done_counts():
    found = compare(runs(7, 3, True), runs(4, 2, False), score)
    assert (found.tasks, found.pairs) == (4, 8)
    assert compare(runs(7, 3, True), [], score).gap.spans_zero
