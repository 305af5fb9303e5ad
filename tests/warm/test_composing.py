"""Templates made of stored sessions: what goes in, what stays out, and how much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support import FixedClock
from tests.warm.stores import SPECS, Did, Turn, read, sh, steps, store
from tests.warm.test_reading_the_store import bad, mined
from whet.clock import iso
from whet.contract.errors import NotFound
from whet.store.database import StateDatabase
from whet.warm.compose import BuildOptions, Composition, compose
from whet.warm.template import Example, Template, example_tokens, schema_hash
from whet_lab.evals.warm_placebo import make_placebo


def composed(database: StateDatabase, clock: FixedClock, **options: Any) -> Composition:
    mining_result = mined(database)
    return database.read_now(
        lambda db: compose(db, mining_result, BuildOptions(name="t", **options), clock.now())
    )


def refused(database: StateDatabase, clock: FixedClock, *good: Did, **options: Any) -> str:
    """Give why nothing of a session's good calls may be shown."""
    failures = [bad("missing-thing") if good[0].name != "terminal" else sh("frob", "frob: not found", 127)]
    store(database, clock, Turn("go", steps(*failures * 5, *good)))
    with pytest.raises(NotFound) as caught:
        composed(database, clock, **options)
    return caught.value.message.partition(": ")[2]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (read("notes/we go and see for ourselves.txt"), "its arguments hold sentences"),
        (read("a/\u202etxt.exe"), "it holds characters that people don't see"),
        (Did("read_file", {"pathname": "a/b"}), "its arguments don't fit the tool"),
        (Did("read_file", {"path": 5}), "its arguments don't fit the tool"),
        (read("home/.ssh/id_rsa"), "it reads a private place"),
        (sh("redis-cli -a hunter2 ping"), "its arguments hold a secret"),
        (sh("python3 make.py"), "it changes something"),
        (sh("rm -rf /"), "outside a sandbox it needs a person's yes"),
        (sh("curl http://example.org"), "its result is not from this machine"),
        (Did("terminal", {"command": ["ls"]}), "it changes something"),
        (Did("terminal", {"command": "cat", "stdin": 5}), "it changes something"),
    ],
)
def test_a_call_that_may_not_be_shown_is_counted_with_the_reason(
    database: StateDatabase, clock: FixedClock, call: Did, why: str
) -> None:
    assert refused(database, clock, call) == f"{why} (1)"


def test_what_the_network_brought_and_what_edits_is_left_out_unless_asked_for(
    database: StateDatabase, clock: FixedClock
) -> None:
    page, edit = Did("web_fetch", {"url": "http://x"}), Did("write_file", {"path": "a/b", "content": "x"})
    wrong = [
        Did("web_fetch", {"url": "http://y/z"}, "no", "failed"),
        Did("write_file", {"path": "q"}, "no", "failed"),
    ]
    store(database, clock, Turn("go", steps(*wrong * 5, page, edit)))
    with pytest.raises(
        NotFound, match="it changes something \\(1\\), its result is not from this machine \\(1\\)"
    ) as caught:
        composed(database, clock)
    assert "--with-changes" in caught.value.hint
    composition = composed(database, clock, with_changes=True)
    assert [example.tool_name for example in composition.template.examples] == ["write_file"]
    assert composition.left_out == {"its result is not from this machine": 1}


def test_a_command_in_a_folder_of_the_persons_home_is_taken(
    database: StateDatabase, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    failures = [sh("frob", "frob: not found", 127)] * 5
    calls = steps(*failures, sh("./depot/run.sh list > out.txt"))
    store(database, clock, Turn("go", calls), workspace="/home/u/work")
    with pytest.raises(NotFound) as caught:
        composed(database, clock)
    assert "it changes something (1)" in caught.value.message and "--with-changes" in caught.value.hint
    [example] = composed(database, clock, with_changes=True).template.examples
    assert example.arguments == {"command": "./depot/run.sh list > out.txt"}


def test_no_option_is_named_that_would_take_nothing_more(database: StateDatabase, clock: FixedClock) -> None:
    failures = [sh("frob", "frob: not found", 127)] * 5
    store(database, clock, Turn("go", steps(*failures, sh("rm -rf build"))), workspace="/home/u/work")
    with pytest.raises(NotFound, match="outside a sandbox it needs a person's yes") as caught:
        composed(database, clock)
    assert caught.value.hint == ""


def test_nothing_to_learn_is_told_apart(database: StateDatabase, clock: FixedClock) -> None:
    with pytest.raises(NotFound, match="no finished session"):
        composed(database, clock)
    store(database, clock, Turn("go", steps(*[bad()] * 1, *(read(f"{n}") for n in range(19)))))
    with pytest.raises(NotFound, match=r"no tool failed in 6% or more of its calls \(1 sessions\)"):
        composed(database, clock, least_error_rate=0.06)
    assert composed(database, clock, least_error_rate=0.05).template.examples


def test_an_example_says_where_it_is_from_and_why_it_was_chosen(
    database: StateDatabase, clock: FixedClock
) -> None:
    ids = set[str]()
    for number in range(2):
        turn = Turn(
            f"sum {number}",
            steps(*[bad(f"x{number}.txt")] * 3, read(f"a/x{number}.txt", "1|a\n2|b"), read("q")),
        )
        ids.add(store(database, clock, turn, workspace="/proj"))
    template = composed(database, clock, description="d", tags=("a",), project="/proj").template
    one = template.examples[0]
    assert one.tool_name == "read_file" and one.arguments["path"].startswith("a/x")
    assert one.result_summary == "[It gave 2 lines, 7 characters. What it said then is left out.]"
    assert one.context_hint.startswith("sum ") and one.model == "practice" and one.workspace == "/proj"
    assert one.schema_hash == schema_hash(SPECS[1]) and one.at.startswith("2026-11-21T09:0")
    number = one.arguments["path"][3]
    assert one.why == f'Before it, {{"path":"x{number}.txt"}} had failed (failed).'
    assert one.chosen_because == "in 2 sessions, 2 calls, 2 of them mended a failure; read_file fails in 60%"
    assert template.examples[1].chosen_because == "in 2 sessions, 2 calls; read_file fails in 60%"
    assert (template.description, template.tags, template.project, template.budget_tokens) == (
        "d",
        ("a",),
        "/proj",
        1_500,
    )
    assert set(template.source_session_ids) == {example.session_id for example in template.examples}
    assert template.created_at == iso(clock.now()) and set(template.source_session_ids) <= ids


def many_shapes(database: StateDatabase, clock: FixedClock) -> None:
    good = [read(f"some/where.{ending}") for ending in ("md", "txt", "csv", "toml", "py", "js")]
    store(database, clock, Turn("go", steps(*[bad("nope")] * 4, *good)))


def test_the_budget_and_the_number_of_examples_hold(database: StateDatabase, clock: FixedClock) -> None:
    many_shapes(database, clock)
    every = composed(database, clock).template.examples
    cost = example_tokens(every[0])
    assert len(every) == 6
    assert len(composed(database, clock, max_examples=2).template.examples) == 2
    assert len(composed(database, clock, budget_tokens=1).template.examples) == 1, "one at least"
    three = composed(database, clock, budget_tokens=3 * cost + 5).template.examples
    assert len(three) == 3 and sum(map(example_tokens, three)) <= 3 * cost + 5


def test_a_placebo_is_drawn_from_other_shapes_and_filled_up_to_size(
    database: StateDatabase, clock: FixedClock
) -> None:
    many_shapes(database, clock)
    store(database, clock, Turn("count", steps(sh("wc -l a.txt"), sh("head -n 5 b.md"), sh("rm -rf /"))))
    mining_result = mined(database)

    def drawn(like: Template, seed: int = 0) -> Template:
        options = BuildOptions(name="p")
        return database.read_now(lambda db: make_placebo(db, mining_result, like, options, clock.now(), seed))

    own = composed(database, clock).template
    long = tuple(msgspec.structs.replace(example, result_summary="word " * 90) for example in own.examples)
    examples = drawn(Template(name="x", examples=long, max_examples=7, budget_tokens=999))
    assert {example.tool_name for example in examples.examples} == {"terminal"} and len(
        examples.examples
    ) == 2
    assert (examples.max_examples, examples.budget_tokens) == (7, 999)
    for one in examples.examples:
        assert abs(example_tokens(one) - example_tokens(long[0])) <= 0.1 * example_tokens(long[0])
        assert one.chosen_because == "drawn by chance" and one.why == ""
    tiny = drawn(Template(name="x", examples=(Example(tool_name="todo"),)))
    assert len(tiny.examples) == 1 and "[left out]" not in tiny.examples[0].result_summary
    assert len({drawn(own, seed).examples[0].arguments["command"] for seed in range(20)}) == 2
    assert drawn(own, 3) == drawn(own, 3)


def test_an_example_of_a_placebo_has_the_size_of_the_one_that_it_stands_for(
    database: StateDatabase, clock: FixedClock
) -> None:
    good = [sh("wc -l a.txt"), sh("head " + " ".join(f"part{n}.md" for n in range(20)))]
    store(database, clock, Turn("count", steps(*good)))
    mining_result = mined(database)
    everything = Template(name="x", examples=(Example(tool_name="todo"),) * 2)
    options = BuildOptions(name="p")

    def drawn(like: Template) -> tuple[Example, ...]:
        return database.read_now(
            lambda db: make_placebo(db, mining_result, like, options, clock.now(), 0)
        ).examples

    for example in drawn(everything):
        size = example_tokens(example)
        like = Example(
            tool_name="todo", result_summary="word" * (size - example_tokens(everything.examples[0]))
        )
        assert drawn(Template(name="x", examples=(like,))) == (example,), size
