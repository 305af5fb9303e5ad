"""A call that the person edits: the edit is no answer, it is asked about like the model's own call."""

from __future__ import annotations

from pathlib import Path

from tests.approval.test_gate import Bench, Someone
from whet.contract.events import Notice
from whet.contract.protocols import Reply

EDITED = "you edited it: this is your version"


def changed(command: str) -> Reply:
    return Reply("once", arguments={"command": command})


def test_what_the_person_wrote_runs_after_a_yes_to_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(changed("make test"), "once"))
    decision = bench.sh("make world")
    assert (decision.verdict, decision.decided_by) == ("allow", "person")
    assert decision.arguments == {"command": "make test"}
    assert [request.subject for request in bench.person.asked] == ["make world", "make test"]
    assert EDITED not in bench.person.asked[0].reasons and EDITED in bench.person.asked[1].reasons
    assert decision.digest == bench.person.asked[1].digest
    assert bench.sh("make test").verdict == "deny", "it was allowed once"


def test_an_edit_without_a_yes_to_it_runs_nothing(tmp_path: Path) -> None:
    for answer in ("no", None):
        decision = Bench(tmp_path, Someone(changed("make test"), answer)).sh("make world")
        assert (decision.verdict, decision.arguments) == ("deny", None)


def test_an_edited_command_that_needs_no_yes_is_shown_before_it_runs(tmp_path: Path) -> None:
    person = Someone(changed("git status"), "once")
    assert Bench(tmp_path, person).sh("git fetch").arguments == {"command": "git status"}
    assert person.asked[1].subject == "git status" and EDITED in person.asked[1].reasons
    assert person.asked[1].scopes[0].text == "terminal(git status)"


def test_a_lasting_yes_after_an_edit_covers_what_was_edited_and_not_what_was_proposed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(changed("make test"), "session"))
    assert bench.sh("npm install").verdict == "allow"
    assert [bench.sh(text).verdict for text in ("make test", "npm install")] == ["allow", "deny"]


def test_an_edit_back_to_what_the_model_wrote_is_the_models_call(tmp_path: Path) -> None:
    person = Someone(changed("make test"), changed("make world"), "once")
    decision = Bench(tmp_path, person).sh("make world")
    assert (decision.verdict, decision.arguments, len(person.asked)) == ("allow", None, 3)
    assert EDITED not in person.asked[2].reasons


def test_the_same_arguments_are_a_plain_yes(tmp_path: Path) -> None:
    decision = Bench(tmp_path, Someone(changed("make world"))).sh("make world")
    assert (decision.verdict, decision.arguments) == ("allow", None)


def test_what_the_person_wrote_is_held_to_the_rules_and_asked_again(tmp_path: Path) -> None:
    denied, deadly = changed("git push origin"), changed("rm -rf /")
    bench = Bench(
        tmp_path, Someone(denied, deadly, changed("git status"), "once"), deny=["terminal(git push *)"]
    )
    assert bench.sh("git fetch").arguments == {"command": "git status"}
    texts = [event.text for event in bench.events if isinstance(event, Notice)]
    assert len(texts) == 2 and all("denied by policy" in line for line in texts)
    assert len(bench.person.asked) == 4
