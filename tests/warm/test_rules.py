"""The twelve rules of a good template, one test or more each, named by their number."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support import FixedClock
from tests.warm.stores import TOOLS, Did, Turn, pitfalls, read, sh, steps, store
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.store import calls, sessions
from whet.store.database import StateDatabase
from whet.warm.aftermath import OutcomeJudge
from whet.warm.compose import BuildOptions
from whet.warm.label import label_all
from whet.warm.mine import MiningScope
from whet.warm.prime import make_prime
from whet.warm.rates import measure
from whet.warm.select import Situation, pick_examples, usable_examples
from whet.warm.template import Example, Template, example_tokens
from whet.warm.template_store import WarmTemplates


@pytest.fixture
def desk(tmp_path: Path, database: StateDatabase, clock: FixedClock) -> WarmTemplates:
    return WarmTemplates(Home(tmp_path / "home"), database, clock)


def build(desk: WarmTemplates, name: str = "t", min_messages: int = 1, **options: object) -> Template:
    chosen = BuildOptions(name=name, **options)  # type: ignore[arg-type]
    return desk.build(chosen, MiningScope(min_messages=min_messages)).template


def outcomes(database: StateDatabase, session_id: str) -> list[str]:
    def work(connection):
        key = sessions.key_of(connection, session_id)
        judge = OutcomeJudge(calls.list_undone_turns(connection, key))
        found = []
        for item in calls.stream_calls(connection, key):
            judge.add(item)
            found += [judged_call.outcome for judged_call in judge.take()]
        return found + [judged_call.outcome for judged_call in judge.finish()]

    return database.read_now(work)


def situation(text: str, clock: FixedClock, **more: object) -> Situation:
    fields = {"workspace": "/proj/here", "tools": TOOLS, "now": clock.now()} | more
    return Situation(text=text, **fields)  # type: ignore[arg-type]


# Rule 1: pair call and result by id; drop orphans.


def test_rule_1_a_call_without_result_is_unknown_and_no_example(
    database: StateDatabase, clock: FixedClock
) -> None:
    lost = Turn("go", [[read("a.txt"), Did("read_file", {"path": "b.txt"}, None)]])
    assert outcomes(database, store(database, clock, lost)) == ["ok", "unknown"]


def test_rule_1_results_are_paired_by_id_and_orphans_dropped(
    database: StateDatabase, clock: FixedClock
) -> None:
    id_ = store(database, clock, Turn("go", [[read("a.txt", "A"), read("b.txt", "B")]]))

    def swap(connection):
        key = sessions.key_of(connection, id_)
        rows = connection.execute(
            "SELECT id, content, extra FROM messages WHERE role = 2 ORDER BY id"
        ).fetchall()
        (one, first, first_extra), (two, second, second_extra) = rows
        connection.execute(
            "UPDATE messages SET content = ?, extra = ? WHERE id = ?", (second, second_extra, one)
        )
        connection.execute(
            "UPDATE messages SET content = ?, extra = ? WHERE id = ?", (first, first_extra, two)
        )
        # An answer that nobody asked for, and the first one a second time.
        for offset, id_text in ((20, '{"i":"nobody","n":"read_file"}'), (21, first_extra)):
            connection.execute(
                "INSERT INTO messages (id, turn, role, at, content, extra) VALUES (?, 1, 2, 0, 'stray', ?)",
                (two + offset, id_text),
            )
        return [item for item in calls.stream_calls(connection, key) if isinstance(item, calls.StoredCall)]

    stored_calls = database.write_now(swap)
    assert {(call.arguments, call.result) for call in stored_calls} == {
        ('{"path":"a.txt"}', "A"),
        ('{"path":"b.txt"}', "B"),
    }


# Rule 2: success from evidence.


def test_rule_2_a_call_of_a_turn_that_was_undone_is_no_success(
    database: StateDatabase, clock: FixedClock
) -> None:
    undone = store(database, clock, Turn("go", steps(read("a.txt")), undone=True))
    content = store(database, clock, Turn("go", steps(read("a.txt"))), Turn("no problem, thanks"))
    assert outcomes(database, undone) == ["undone"]
    assert outcomes(database, content) == ["ok"]


# Rule 3: repair pairs teach most.


def test_rule_3_a_repair_pair_keeps_the_corrected_call_and_why(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    pitfalls(database, clock)
    (example,) = build(desk).examples
    assert example.arguments["path"].startswith("reports/2026/report")
    assert example.why.endswith("had failed (bad input).")
    assert '"report' in example.why
    assert example.result_success


# Rule 4: deduplicate by shape, budget by error rate.


def test_rule_4_one_example_for_a_shape_and_none_for_a_tool_that_does_not_fail(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    pitfalls(database, clock, 5)
    template = build(desk)
    assert [example.tool_name for example in template.examples] == ["read_file"]  # ls never failed


def test_rule_4_the_tool_that_fails_more_gets_more(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(6):
        often = [read(f"gone{number}.txt", "no", "failed")]
        often += [read(f"some/where{number}.{ending}") for ending in ("md", "txt", "csv", "toml")]
        seldom = [
            sh(f"ls -{flag} src{number}") for flag in ("l", "a", "la", "lh", "t", "r", "S", "X", "1", "d")
        ]
        if number == 0:
            seldom.append(sh("ls nowhere", "ls: cannot access 'nowhere'", 2))
        store(database, clock, Turn("look", steps(*often, *seldom)))
    names = [example.tool_name for example in build(desk, budget_tokens=700).examples]
    assert names.count("read_file") > names.count("terminal")


# Rule 6: redacted when stored and when injected; never from private sessions.


def test_rule_6_secrets_are_taken_out_when_stored(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(3):
        text = f"1|token: abcD{number}efGH1234ijKL5678\n2|by ada@example.org in /home/ada/x"
        store(
            database,
            clock,
            Turn(
                "read it",
                steps(*(read(f"no{n}", "no", "failed") for n in range(3)), read("conf/app.cfg", text)),
            ),
        )
    shown = msgspec.json.encode(build(desk)).decode()
    assert "abcD" not in shown and "ada@" not in shown and "/home/ada" not in shown


def test_rule_6_private_sessions_never_count_and_not_afterwards_either(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    pitfalls(database, clock, 3, private=True)
    with pytest.raises(NotFound, match="no finished session"):
        build(desk)
    ids = pitfalls(database, clock, 3)
    template = build(desk)
    for id_ in ids:
        database.write_now(lambda db, id_=id_: sessions.set_private(db, id_, True))
    private, gone = desk.hidden_sources(template)
    assert usable_examples(template, situation("report", clock, private=private, gone=gone)) == []


# Rule 7: a token budget; results trimmed head and tail.


def test_rule_7_the_budget_holds_and_of_results_only_the_outline(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    long = "begin " + "x " * 5_000 + " end"
    for number in range(3):
        wrong = read(f"w{number}.md", "no", "failed")
        store(database, clock, Turn("go", steps(wrong, wrong, wrong, read(f"docs/w{number}.md", long))))
    (example,) = build(desk).examples
    assert len(example.result_summary) <= 520
    assert "1 line, 10,010 characters" in example.result_summary and "begin" not in example.result_summary
    small = Template(name="t", examples=(example,) * 1, budget_tokens=100)
    assert pick_examples(small, situation("go to docs", clock)) == [example]
    large = msgspec.structs.replace(example, result_summary="x " * 200)
    assert example_tokens(large) > 100
    assert (
        pick_examples(msgspec.structs.replace(small, examples=(large,)), situation("go to docs", clock)) == []
    )


# Rule 8: frozen, same bytes, marked as past examples.


@pytest.mark.parametrize("result", ["", "  \n"])
def test_rule_8_an_empty_result_is_said_in_words(result: str) -> None:
    example = Example(tool_name="shell", arguments={"command": "true"}, result_summary=result)
    texts = [message.text for message in make_prime("abc123", [example]).messages if message.role == "tool"]
    assert texts == ["[It gave nothing.]"]


# Rule 9: read-only by default; never one that needed a confirmation.


def test_rule_9_only_what_reads_and_needed_no_yes(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    def session(*good: Did) -> None:
        bad = sh("frob", "frob: not found", 127)
        store(database, clock, Turn("go", steps(bad, bad, bad, *good)))

    for _ in range(3):
        session(
            sh("rm -r build"),
            sh("python3 make.py"),
            sh("curl https://example.org/x", "page"),
            sh("cat ok.txt"),
        )
    assert [e.arguments["command"] for e in build(desk).examples] == ["cat ok.txt"]
    changing = {e.arguments["command"] for e in build(desk, with_changes=True).examples}
    assert "cat ok.txt" in changing and "python3 make.py" in changing
    assert not any("curl" in command for command in changing)


def test_rule_9_a_call_that_a_person_allowed_is_no_example(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    bad = sh("frob", "frob: not found", 127)
    asked = sh("cat asked.txt", "x", decided_by="person")
    for _ in range(3):
        store(database, clock, Turn("go", steps(bad, bad, bad, asked)))
    with pytest.raises(NotFound, match="no call of terminal may be shown"):
        build(desk)


# Rule 12: survivorship; compare within sessions, stratified by tool.


@pytest.mark.slow
def test_rule_12_a_difference_between_sessions_alone_is_no_evidence(
    database: StateDatabase, clock: FixedClock
) -> None:
    # Short sessions fail all the time, long ones never: between sessions it looks like learning.
    for _ in range(12):
        store(database, clock, Turn("go", steps(*[read("x", "no", "failed")] * 4)))
        store(database, clock, Turn("go", steps(*(read(f"{n}") for n in range(20)))))
    label_all(database, lambda done, total: None)
    rates = database.read_now(measure)
    by_length = {rate.label: rate.rate.estimate for rate in rates.by_length}
    assert by_length["under 10"] == 1.0 and by_length["10-29"] == 0.0
    assert rates.within.spans_zero
    assert rates.verdict.startswith("No evidence")
