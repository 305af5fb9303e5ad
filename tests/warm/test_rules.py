"""The twelve rules of a good template, one test or more each, named by their number."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support import FixedClock
from tests.warm.stores import TOOLS, Did, Turn, pitfalls, read, sh, steps, store
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.contract.tools import ToolSpec
from whet.stats import Interval
from whet.store import calls, sessions, warm
from whet.store.database import StateDatabase
from whet.warm.aftermath import OutcomeJudge
from whet.warm.compose import BuildOptions
from whet.warm.label import label_all
from whet.warm.mine import MiningScope
from whet.warm.prime import decode_prime, encode_prime, make_prime
from whet.warm.proof import measure_uplift, rate_gap, update_verdict
from whet.warm.rates import measure
from whet.warm.select import Situation, pick_examples, rank_templates, usable_examples
from whet.warm.template import Example, Template, example_tokens, schema_hash, staleness
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
            found += [one.outcome for one in judge.take()]
        return found + [one.outcome for one in judge.finish()]

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

    found = database.write_now(swap)
    assert {(call.arguments, call.result) for call in found} == {
        ('{"path":"a.txt"}', "A"),
        ('{"path":"b.txt"}', "B"),
    }


# Rule 2: success from evidence.


def test_rule_2_success_is_read_from_exit_codes_and_fields(
    database: StateDatabase, clock: FixedClock
) -> None:
    turn = Turn(
        "go",
        [
            [
                sh("make", "x", 2),
                sh("grep foo a", "", 1),
                sh("call-api", '{"success": false}'),
                sh("call-api", '{"success": true, "error": null}'),
                sh("cc a.c", "a.c:1: warning: this error is only a word"),
                sh("cat app.log", "error: this is what the log says"),
            ]
        ],
    )
    expected = ["failed", "ok", "failed", "ok", "ok", "ok"]
    assert outcomes(database, store(database, clock, turn)) == expected


def test_rule_2_a_mended_call_at_the_same_target_corrects(database: StateDatabase, clock: FixedClock) -> None:
    made_again = Turn("go", steps(sh("pytest tests", "ok"), sh("pytest -x tests", "ok")))
    next_file = Turn("go", steps(read("a.txt"), read("b.txt")))
    next_page = Turn("go", steps(read("a.txt"), Did("read_file", {"path": "a.txt", "offset": 500})))
    assert outcomes(database, store(database, clock, made_again)) == ["corrected", "ok"]
    assert outcomes(database, store(database, clock, next_file)) == ["ok", "ok"]
    assert outcomes(database, store(database, clock, next_page)) == ["ok", "ok"]


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


# Rule 4: deduplicate by shape, medoid, budget by error rate.


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


def test_rule_4_nothing_fails_so_nothing_is_taught(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    store(database, clock, Turn("go", steps(*(read(f"{n}.txt") for n in range(20)))))
    with pytest.raises(NotFound, match="no tool failed in 2%"):
        build(desk)


# Rule 5: select by task, diverse, k <= 3, none fits.


def test_rule_5_the_template_that_fits_the_task_or_none(clock: FixedClock) -> None:
    def about(name: str, hint: str) -> Template:
        return Template(
            name=name,
            examples=(Example(tool_name="read_file", arguments={"path": f"{name}.txt"}, context_hint=hint),),
        )

    offered = [
        about("invoices", "sum up the invoices of march"),
        about("garden", "when are the roses watered"),
    ]
    found = rank_templates(offered, situation("please sum the invoices of april", clock))
    assert [template.name for template, _ in found] == ["invoices"]
    assert rank_templates(offered, situation("translate this poem", clock)) == []


def test_rule_5_at_most_three_and_not_two_alike(clock: FixedClock) -> None:
    examples = [Example(tool_name="read_file", arguments={"path": f"dir{n}/file{n}.txt"}) for n in range(6)]
    examples += [Example(tool_name="terminal", arguments={"command": "ls"})] * 2
    template = Template(name="t", examples=tuple(examples))
    assert len(pick_examples(template, situation("read dir0 file1 dir2 file3 dir4 file5", clock))) == 3
    twins = Template(name="t", examples=tuple(examples[-2:]))
    assert len(pick_examples(twins, situation("ls", clock))) == 1
    more = msgspec.structs.replace(template, max_examples=5)
    assert len(pick_examples(more, situation("read dir0 file1 dir2 file3 dir4 file5", clock))) == 5


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


def test_rule_8_the_same_template_gives_the_same_marked_messages() -> None:
    example = Example(
        tool_name="read_file", arguments={"path": "a"}, result_summary="x", context_hint="do it"
    )
    one, two = (make_prime("abc123", [example, example], "Mind the gap.") for _ in range(2))
    assert encode_prime(one) == encode_prime(two)
    assert encode_prime(one) == msgspec.json.encode(decode_prime(encode_prime(one))).decode()
    assert [message.role for message in one.messages] == ["user", "assistant", "tool", "assistant"] * 2
    assert "not this session's state" in one.messages[0].text
    assert "past examples" in one.addendum and "Mind the gap." in one.addendum
    ids = [call.id for message in one.messages for call in message.tool_calls]
    assert len(set(ids)) == 2


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


# Rule 10: provenance and staleness.


def test_rule_10_every_example_says_where_it_is_from_and_when_it_is_stale(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock, tmp_path: Path
) -> None:
    workspace = tmp_path / "project"
    (workspace / "reports/2026").mkdir(parents=True)
    pitfalls(database, clock, workspace=str(workspace))
    (example,) = build(desk).examples
    assert example.session_id and example.message_seq and example.at and example.model == "practice"
    assert example.schema_hash == schema_hash(TOOLS["read_file"])
    assert staleness(example, TOOLS, clock.now()) == f"{example.arguments['path']} is gone"
    for name in ("~$report.docx", "~nobody-of-this-name/notes.md", "~\0"):
        moved = msgspec.structs.replace(example, arguments={"path": name})
        assert staleness(moved, TOOLS, clock.now()) == f"{name} is gone"
    (workspace / "~$report.docx").touch()
    moved = msgspec.structs.replace(example, arguments={"path": "~$report.docx"})
    assert staleness(moved, TOOLS, clock.now()) == ""
    (workspace / example.arguments["path"]).touch()
    assert staleness(example, TOOLS, clock.now()) == ""
    changed = TOOLS | {"read_file": ToolSpec("read_file", "Other.", TOOLS["read_file"].parameters)}
    assert "schema" in staleness(example, changed, clock.now())
    assert "no tool" in staleness(example, {}, clock.now())
    later = clock.now() + timedelta(days=31)
    assert "30 days" in staleness(example, TOOLS, later)
    assert staleness(example, TOOLS, later, last_win=later.isoformat()) == ""


# Rule 11: measured, with a hold-out; switched off when worse.


def _used(database: StateDatabase, clock: FixedClock, arm: str, failed: int, count: int) -> None:
    for _ in range(count):
        bad = [read("x", "no", "failed")] * failed
        id_ = store(database, clock, Turn("go", steps(*bad, *(read(f"{n}") for n in range(10 - failed)))))
        start = warm.WarmStart("t", "hash", arm, "auto", 3)
        database.write_now(
            lambda db, id_=id_, start=start: warm.record_start(db, id_, start, "2026-11-21T09:00:00Z")
        )


@pytest.mark.slow
def test_rule_11_uplift_is_measured_and_what_hurts_is_switched_off(
    database: StateDatabase, clock: FixedClock
) -> None:
    _used(database, clock, "warm", 5, 4)
    _used(database, clock, "held_out", 1, 4)
    label_all(database, lambda done, total: None)
    assert database.read_now(lambda db: measure_uplift(db, "hash")).verdict == "too few"
    _used(database, clock, "warm", 7, 8)
    _used(database, clock, "held_out", 0, 8)
    label_all(database, lambda done, total: None)
    found = database.write_now(lambda db: update_verdict(db, "hash", "t", "now"))
    assert found.verdict == "hurts"
    assert found.interval.high < 0
    assert "failed more often" in database.read_now(warm.list_states)["hash"].off_reason


def test_rule_11_the_interval_takes_sessions_not_calls_as_the_units() -> None:
    # Two sessions carry every error: ten calls each say little about the template.
    warmed = [warm.ArmCounts("warm", 0, 10, "")] * 10
    held = [warm.ArmCounts("held_out", 10, 10, "")] + [warm.ArmCounts("held_out", 0, 10, "")] * 9
    assert rate_gap(held, warmed).low <= 0
    assert isinstance(rate_gap(held, warmed), Interval)


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


@pytest.mark.slow
def test_rule_12_later_calls_of_the_same_session_and_tool_are_the_evidence(
    database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(12):
        bad, good = [read("x", "no", "failed")] * (4 + number % 3), [read("y")] * 6
        store(database, clock, Turn("go", steps(*bad, *good)))
    label_all(database, lambda done, total: None)
    assert database.read_now(measure).verdict.startswith("Long sessions err less")
