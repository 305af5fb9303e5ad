"""A call that the person changes before allowing it: theirs is the yes, and rules stand above it."""

from __future__ import annotations

from pathlib import Path

from tests.approval.test_gate import Bench, Someone
from whet.contract.events import Notice
from whet.contract.protocols import Reply


def changed(command: str) -> Reply:
    return Reply("once", arguments={"command": command})


def test_what_the_person_wrote_runs_without_another_question(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(changed("make test")))
    decision = bench.sh("make world")
    assert (decision.verdict, decision.decided_by) == ("allow", "person")
    assert decision.arguments == {"command": "make test"} and len(bench.person.asked) == 1
    assert bench.sh("make test").verdict == "deny", "it was allowed once"


def test_the_same_arguments_are_a_plain_yes(tmp_path: Path) -> None:
    decision = Bench(tmp_path, Someone(changed("make world"))).sh("make world")
    assert (decision.verdict, decision.arguments) == ("allow", None)


def test_what_the_person_wrote_is_held_to_the_rules_and_asked_again(tmp_path: Path) -> None:
    denied, deadly = changed("git push origin"), changed("rm -rf /")
    bench = Bench(tmp_path, Someone(denied, deadly, changed("git status")), deny=["terminal(git push *)"])
    assert bench.sh("git fetch").arguments == {"command": "git status"}
    told = [event.text for event in bench.events if isinstance(event, Notice)]
    assert len(told) == 2 and all("denied by policy" in line for line in told)
    assert len(bench.person.asked) == 3
