"""Which template and which of its examples fit a task, and which are alike."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.warm.test_templates import example, situation
from whet.warm.select import pick_examples, rank_templates
from whet.warm.template import Example, Template, example_tokens


def test_a_template_fits_by_two_words_or_one_of_its_name_description_or_tags() -> None:
    hinted = Template(name="t1", examples=(example(context_hint="sum invoices of march"),))
    named = Template(name="garden", description="roses", tags=("watering",))

    def fitting(text: str, *given: Template) -> list[str]:
        return [template.name for template, _ in rank_templates(given or (hinted, named), situation(text))]

    assert fitting("invoices") == [] and fitting("invoices in march") == ["t1"]
    assert fitting("the garden") == fitting("a rose or roses") == fitting("watering") == ["garden"]
    assert fitting("garden invoices march") == ["t1", "garden"]
    assert fitting("") == [] == fitting("nothing of the kind")
    undescribed = msgspec.structs.replace(hinted, description=hinted.default_description)
    assert hinted.default_description == "1 example from 0 sessions"
    assert fitting("an example of my sessions", undescribed) == []


def test_a_template_of_this_folder_comes_first_and_equals_by_name() -> None:
    there = Template(name="a", description="count invoices", project="/other")
    here = Template(name="b", description="count invoices", project="/proj")
    worked = Template(name="c", description="count invoices", examples=(example(workspace="/proj"),))
    others = [Template(name=f"n{n}", description="of no matter") for n in range(6)]
    found = rank_templates([worked, there, here, *others], situation("count the invoices"))
    assert [template.name for template, _ in found] == ["b", "c", "a"]
    assert found[0][1] == found[1][1] == pytest.approx(found[2][1] + 0.5)
    (alone,) = rank_templates([there], situation("count the invoices"))
    assert alone[1] == 2.0, "a single template's words weigh one each"
    assert rank_templates([msgspec.structs.replace(here, description="x y")], situation("count")) == []


def test_a_word_that_every_template_has_weighs_little_and_a_rare_one_more() -> None:
    many = [Template(name=f"n{n}", description="report") for n in range(9)]
    assert rank_templates(many, situation("report")) == []
    many.append(Template(name="rare", description="report report invoice"))
    ((best, score),) = rank_templates(many, situation("report invoice"))
    assert best.name == "rare" and score == pytest.approx(2.03895)


def test_of_the_examples_the_nearest_are_picked_in_the_templates_order() -> None:
    examples = [
        example(context_hint="water roses", arguments={"path": "a1"}),
        example(context_hint="sum invoices", arguments={"path": "b1"}),
        example(context_hint="sum totals", arguments={"path": "c1"}, why="Before it, d had failed."),
        example(context_hint="print labels", arguments={"path": "e1"}),
    ]
    chosen = Template(name="t", examples=tuple(examples), max_examples=2)

    def picked(text: str, **more: Any) -> list[str]:
        given = pick_examples(msgspec.structs.replace(chosen, **more), situation(text))
        return [str(one.arguments["path"]) for one in given]

    assert picked("sum invoices") == ["b1", "c1"]
    assert picked("nothing of it") == [], "no example has a word of the task"
    assert picked("print labels", max_examples=1) == ["e1"]
    cost = example_tokens(examples[1])
    assert picked("sum invoices", budget_tokens=cost) == ["b1"]
    assert picked("invoices", budget_tokens=cost - 1) == []
    assert picked("sum invoices", budget_tokens=cost + example_tokens(examples[2])) == ["b1", "c1"]


def test_a_rare_word_brings_an_example_nearer_than_a_common_one() -> None:
    examples = [
        example(context_hint="sum invoices", arguments={"path": "a1"}),
        example(context_hint="sum totals", arguments={"path": "b1"}),
        example(context_hint="sum labels", arguments={"path": "c1"}),
        example(context_hint="print", arguments={"path": "d1"}, why="Before it, d had failed."),
    ]

    def picked(text: str) -> list[str]:
        chosen = Template(name="t", examples=tuple(examples), max_examples=1)
        return [str(one.arguments["path"]) for one in pick_examples(chosen, situation(text))]

    assert (picked("sum labels"), picked("sum"), picked("none of it")) == (["c1"], [], [])
    examples[0] = example(context_hint="sum print", arguments={"path": "a1"})
    assert picked("labels and print") == ["c1"], "one that a single example has counts for more"


def test_the_request_of_a_mined_call_that_mended_nothing_does_not_make_it_fit() -> None:
    made = example(
        "terminal", context_hint="run the unit tests", arguments={"command": "git status"}, session_id="s"
    )
    chosen = Template(name="t", examples=(made,))
    assert pick_examples(chosen, situation("run the unit tests")) == []
    assert pick_examples(chosen, situation("what is the git status")) == [made]


def test_two_examples_are_alike_by_more_than_four_fifths_of_their_words() -> None:
    def picked(one: Example, other: Example) -> int:
        return len(pick_examples(Template(name="t", examples=(one, other)), situation("word0 one todo")))

    nine = [f"word{n}" for n in range(9)]
    first = example("terminal", arguments={"command": " ".join(nine)})
    assert picked(first, example("terminal", arguments={"command": " ".join(nine[:8])})) == 1
    assert picked(first, example("terminal", arguments={"command": " ".join(nine[:7])})) == 2
    assert picked(first, example("search_files", arguments={"pattern": " ".join(nine)})) == 2
    five = example("terminal", arguments={"command": " ".join(nine[:5])})
    assert picked(five, example("terminal", arguments={"command": " ".join(nine[:4])})) == 2
    assert (
        picked(
            example("terminal", arguments={"command": "one"}),
            example("terminal", arguments={"command": "one"}),
        )
        == 1
    )
    assert picked(example("todo"), example("todo")) == 0, "without words nothing fits"
