"""What counts as a mend, and what an example may carry: planted stores and their controls."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.warm_planted import LESSONS, build, fill, planted_found, switch_offs, unfit_examples

from tests.support import FixedClock
from tests.warm.stores import Did, Turn, read, sh, store
from whet.config.paths import Home
from whet.store.database import StateDatabase
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.template import Example
from whet.warm.template_store import WarmTemplates


def built(tmp_path: Path, database: StateDatabase, clock: FixedClock) -> list[Example]:
    templates = WarmTemplates(Home(tmp_path / "home"), database, clock)
    return list(templates.build(BuildOptions(name="t"), MiningScope(min_messages=1)).template.examples)


def fail(command: str, code: int = 2) -> Did:
    return sh(command, "sh: 1: No such file or directory", code)


@pytest.mark.slow
def test_the_default_build_finds_the_planted_lessons_and_gives_no_unfit_example(tmp_path: Path) -> None:
    database = fill(tmp_path, 150, 3)
    template = build(tmp_path, database)
    database.close()
    assert planted_found(template) == {lesson.topic for lesson in LESSONS}
    assert unfit_examples(template)[2] == []
    assert not any(".ssh" in str(example.arguments) for example in template.examples)


@pytest.mark.slow
def test_a_template_without_effect_stays_on_and_harm_is_found_within_ten_uses() -> None:
    assert switch_offs(150, 400, 0.0)[0] <= 0.05
    share, uses = switch_offs(150, 12, 0.8, seed=1)
    assert share * sum(use <= 10 for use in uses) / len(uses) >= 0.9


def test_a_call_that_worked_after_another_failed_is_no_mend(
    tmp_path: Path, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(3):
        looked = [[fail(f"grep -r TODO{number} src")], [sh("ls app/src", "a")]]
        store(database, clock, Turn(f"find the open tasks {number}", looked))
    assert [example.why for example in built(tmp_path, database, clock)] == [""]


def test_a_mend_needs_the_same_mistake_in_another_session(
    tmp_path: Path, database: StateDatabase, clock: FixedClock
) -> None:
    mended = [[fail("grep -rn basket src")], [sh("grep -rn basket app/src", "a:1")]]
    store(database, clock, Turn("find basket 1", [*mended, *([fail(f"cat {n}")] for n in range(5))]))
    assert [example.why for example in built(tmp_path, database, clock)] == [""]
    store(
        database, clock, Turn("find ledger 2", [[fail("grep -rn ledger src")], [sh("git status", "clean")]])
    )
    whys = [example.why for example in built(tmp_path, database, clock)]
    assert sum("grep -rn basket src" in why for why in whys) == 1


def test_a_mistake_that_mostly_works_elsewhere_taught_nothing(
    tmp_path: Path, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(2):
        turn = [[fail("./ledger total march")], [sh("./ledger --book a total march", "3")]]
        store(database, clock, Turn(f"total of march {number}", turn))
        works = [[sh("./ledger total march", "3")]] * 4
        store(database, clock, Turn(f"total of march again {number}", works))
    store(
        database,
        clock,
        Turn("read it all 1", [[fail("cat a")], [fail("cat b")], [read("c.md")], [sh("cat c")]]),
    )
    assert [example.why for example in built(tmp_path, database, clock)] == [""]


def test_the_task_of_an_example_is_the_message_that_asked_for_it(
    tmp_path: Path, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(3):
        wrong = read(f"docs/part{number}.md", "no such file", "not_found")
        right = read(f"handbook/part{number}.md")
        asked = Turn(f"What does the handbook say of part {number}?", [[wrong], [wrong]])
        store(database, clock, asked, Turn("No, that is wrong. Undo it.", [[right]]))
    (example,) = built(tmp_path, database, clock)
    assert example.context_hint.startswith("What does the handbook say")


def test_private_places_are_never_shown(tmp_path: Path, database: StateDatabase, clock: FixedClock) -> None:
    for number in range(3):
        calls = [
            [read(f"nothing{number}", "no", "not_found")],
            [read("~/.ssh/config", "Host a")],
            [read("a.md")],
        ]
        store(database, clock, Turn(f"look around {number}", calls))
    assert [example.arguments["path"] for example in built(tmp_path, database, clock)] == ["a.md"]
