"""Orders of steps whose names hold placeholders: kept from the error that names them, or from the calls."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import accepted, verdict
from whet.memory.entries import restore_placeholders

ERROR = "kiln: run `kiln warm BATCH` before `kiln fire BATCH`"
STEPS: list[Step] = [
    User("Fire batch b17, slowly."),
    Run("terminal", "kiln fire b17 --slow", ERROR, ok=False),
    Run("terminal", "kiln warm b17", "warm: b17 at 300"),
    Run("terminal", "kiln fire b17 --slow", "fired: b17"),
    Say("Fired."),
]
ORDER = "Run `kiln warm BATCH` before `kiln fire BATCH`."


def test_an_error_that_names_a_placeholder_is_kept_with_the_calls_that_it_asked_for() -> None:
    text = accepted(STEPS, ORDER, ERROR).text
    assert ERROR in text
    assert text.index("`kiln warm BATCH` worked") < text.index("`kiln fire BATCH --slow` worked")


def test_a_skill_on_it_has_the_calls_in_their_order_with_the_parameter() -> None:
    lines = accepted(STEPS, ORDER, ERROR, "fired: b17", kind="skill").text.splitlines()
    assert lines[:2] == ["1. `kiln warm BATCH`", "2. `kiln fire BATCH --slow`"]
    assert lines[2] == f"- Fails: `kiln fire b17 --slow` → “{ERROR}”"


def test_an_objection_to_what_was_done_takes_no_result_back() -> None:
    objected = [*STEPS, User("No, that is not how I want it fired: my glaze needs the fast way.")]
    assert ERROR in accepted(objected, ORDER, ERROR).text
    users = [User("The glaze is fired slowly here."), Say("ok"), User("No, the glaze is fired fast.")]
    assert "took that back" in str(verdict(users, "Slow.", "The glaze is fired slowly here."))


def test_what_worked_instead_is_the_call_most_like_the_failed_one() -> None:
    steps: list[Step] = [
        User("go on"),
        Run("terminal", "kiln fire b17 --gas", "kiln: gas is off, try electric", ok=False),
        Run("terminal", "kiln show b17", "b17: clay"),
        Run("terminal", "kiln fire b17 --electric", "fired: b17"),
    ]
    text = accepted(steps, "Pitfall: gas is off.", "gas is off, try electric").text
    assert "`kiln fire b17 --electric` worked" in text and "show" not in text


def test_what_is_quoted_from_after_a_failure_needs_no_other_remedy() -> None:
    steps: list[Step] = [
        User("The kiln is for clay only."),
        Run("terminal", "kiln fire b17 --gas", "kiln: gas is off, try electric", ok=False),
        User("Then take the oven: bake b17 for an hour."),
    ]
    quotes = ("The kiln is for clay only", "gas is off, try electric", "bake b17 for an hour")
    assert "bake b17" in accepted(steps, "Pitfall: gas is off.", *quotes).text
    assert "nothing shows what worked instead" in str(verdict(steps, "Pitfall: gas is off.", *quotes[:2]))


@pytest.mark.parametrize(
    ("form", "command", "expected"),
    [
        ("kiln warm BATCH", "kiln warm b17", "kiln warm BATCH"),
        ("kiln warm BATCH", "cd hall && kiln warm b17", "cd hall && kiln warm BATCH"),
        ("kiln fire BATCH", "kiln fire b17 shelf2 --slow mode=dry", "kiln fire BATCH --slow mode=dry"),
        ("kiln move <batch> to {shelf}", "kiln move b17 to 4", "kiln move <batch> to {shelf}"),
        ("kiln fire BATCH", "kiln cool b17", ""),
        ("kiln fire BATCH", "cd hall && kiln fire", ""),
        ("kiln move BATCH out", "kiln move b17 in", ""),
        ("kiln fire", "kiln fire b17", ""),
    ],
)
def test_placeholders_are_put_back_where_a_command_fits(form: str, command: str, expected: str) -> None:
    assert restore_placeholders(form, command) == expected


def test_a_step_that_settled_its_error_is_kept_though_the_work_failed_for_something_else() -> None:
    error = "kiln: run `warm BATCH` before `fire BATCH`"
    asked = [
        User("Fire batch b17, slowly."),
        Run("terminal", "fire b17 --slow --all", error, ok=False),
        Run("terminal", "warm b17", "b17 is at 300"),
    ]
    settled = Run("terminal", "fire b17 --slow --all", "kiln: no clay left", ok=False)
    text = accepted([*asked, settled, Say("There is no clay.")], ORDER, error).text
    assert error in text and "`warm BATCH` worked" in text
    half = Run("terminal", "fire b17 by hand", "kiln: no clay left", ok=False)
    assert error in accepted([*asked, half], ORDER, error).text
    less = Run("terminal", "fire b18 by hand", "kiln: no clay left", ok=False)
    same = Run("terminal", "fire b17 --slow --all", error, ok=False)
    for rest in ([same], [less], []):  # the step did not help; nobody knows
        assert "nothing shows what worked" in str(verdict([*asked, *rest, Say("No.")], ORDER, error))
