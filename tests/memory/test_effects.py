"""What may be said of an item: only what chance compared is causal, and a span over zero is no evidence."""

from __future__ import annotations

import pytest
from benchmarks.harm import false_alarms, harm_found

from whet.memory.effects import Effect, Sums, compare_items, sum_by_session
from whet.store.learned import ContextItem
from whet.store.outcomes import ItemUse, TurnOutcome

NOTE = ContextItem("memory", "n1", "h1", "the tests need X")
OTHER = ContextItem("memory", "n2", "h2", "deploys are on Fridays")


def sessions(prefix: str, count: int, troubled: int) -> dict[str, Sums]:
    return {f"{prefix}{n}": Sums(1, int(n < troubled), 4, 1) for n in range(count)}


def uses(
    item: ContextItem, names: dict[str, Sums], *, out: bool = False, by_chance: bool = False
) -> list[ItemUse]:
    return [ItemUse(item, name, out, by_chance or out) for name in names]


def only(effects: list[Effect]) -> Effect:
    (effect,) = effects
    return effect


def held_out(kept: dict[str, Sums], held: dict[str, Sums]) -> list[ItemUse]:
    return uses(NOTE, kept, by_chance=True) + uses(NOTE, held, out=True)


@pytest.mark.parametrize(
    ("kept", "held", "finding"),
    [
        ((40, 30), (40, 4), "hurts"),
        ((10, 9), (10, 0), "hurts"),
        ((5, 0), (5, 5), "helps"),
        ((20, 4), (6, 2), "no evidence"),  # a small difference
        ((4, 0), (30, 30), "no evidence"),  # too few sessions on either side
        ((30, 0), (4, 4), "no evidence"),
        ((30, 30), (4, 0), "no evidence"),
    ],
)
def test_a_hold_out_shows_harm_and_help(kept: tuple[int, int], held: tuple[int, int], finding: str) -> None:
    with_item, without = sessions("a", *kept), sessions("b", *held)
    effect = only(compare_items(held_out(with_item, without), {**with_item, **without}))
    assert (effect.basis, effect.finding) == ("hold-out", finding)
    assert (effect.shown.sessions, effect.compared.sessions) == (kept[0], held[0])
    assert finding != "hurts" or effect.difference.low > 0


def test_a_second_item_asks_for_a_stronger_sign_than_one_alone() -> None:
    kept, held = sessions("a", 10, 9), sessions("b", 10, 0)
    rows = held_out(kept, held) + uses(OTHER, sessions("a", 1, 0))
    effects = compare_items(rows, {**kept, **held})
    assert [(effect.item, effect.finding) for effect in effects] == [
        (NOTE, "no evidence"),
        (OTHER, "no evidence"),
    ]


def test_an_items_sums_are_its_sessions_and_its_loads_its_versions() -> None:
    kept, gone = sessions("a", 3, 2), sessions("b", 2, 0)
    skill = ContextItem("skill", "deploy", "h1", "How.")
    loaded = {("deploy", "h1"): 2, ("deploy", "h0"): 7}
    effect = only(compare_items(uses(skill, {**kept, **gone}), kept, loaded=loaded))
    assert (effect.shown, effect.loaded, effect.current) == (Sums(3, 2, 12, 3), 2, True)
    assert only(compare_items(uses(skill, kept), kept)).loaded == 0


def test_without_a_hold_out_a_comparison_is_only_observed() -> None:
    kept, before = sessions("a", 40, 2), sessions("b", 40, 30)
    effect = only(compare_items(uses(NOTE, kept), {**kept, **before}))
    assert (effect.basis, effect.finding) == ("observed", "no evidence") and effect.difference.high < 0
    alone = only(compare_items(uses(NOTE, kept), kept))
    assert alone.basis == "none" and alone.compared == Sums(0, 0, 0, 0)


def test_sessions_before_the_hold_out_do_not_count_for_it() -> None:
    """Only sessions in which chance decided are compared, or time would be mistaken for the item."""
    early, kept, held = sessions("e", 100, 100), sessions("a", 20, 2), sessions("b", 20, 2)
    rows = uses(NOTE, early) + held_out(kept, held)
    effect = only(compare_items(rows, {**early, **kept, **held}))
    assert effect.shown.sessions == 120 and effect.finding == "no evidence"


def test_many_items_need_a_stronger_sign() -> None:
    kept, held = sessions("a", 30, 12), sessions("b", 30, 4)
    rows = held_out(kept, held)
    assert only(compare_items(rows, {**kept, **held})).finding == "hurts"
    many = [ContextItem("memory", f"m{n}", "h") for n in range(60)]
    crowd = [use for item in many for use in uses(item, kept, by_chance=True)]
    fields = {effect.item.name: effect for effect in compare_items(rows + crowd, {**kept, **held})}
    assert fields["n1"].finding == "no evidence"


def test_what_hurts_stands_first_and_versions_are_kept_apart() -> None:
    kept, held = sessions("a", 40, 30), sessions("b", 40, 4)
    rows = uses(OTHER, kept) + held_out(kept, held)
    older = ContextItem("memory", "n1", "h0")
    effects = compare_items(
        rows + uses(older, held), {**kept, **held}, current=frozenset({("memory", "n1", "h1")})
    )
    assert effects[0].item == NOTE and effects[0].current
    assert {effect.item.hash: effect.current for effect in effects} == {"h1": True, "h2": False, "h0": False}


def failing(prefix: str, count: int, failed: int) -> dict[str, Sums]:
    return {f"{prefix}{n}": Sums(1, 0, 4, failed) for n in range(count)}


def test_failed_calls_alone_show_harm_within_ten_uses() -> None:
    before, kept = failing("b", 20, 0), failing("a", 10, 4)
    effect = only(compare_items(uses(NOTE, kept), {**before, **kept}))
    assert (effect.basis, effect.finding) == ("observed", "hurts")
    assert effect.shown.trouble.estimate == 0


def test_a_few_failed_calls_among_failing_sessions_are_no_evidence() -> None:
    before, kept = failing("b", 20, 2), failing("a", 40, 2)
    assert only(compare_items(uses(NOTE, kept), {**before, **kept})).finding == "no evidence"


@pytest.mark.slow
def test_a_note_without_effect_is_seldom_called_harmful_however_often_it_is_looked_at() -> None:
    assert false_alarms(runs=60, uses=60) <= 0.05
    assert harm_found(runs=60, uses=10) >= 0.9


def test_steps_and_cost_are_summed() -> None:
    turns = [TurnOutcome("s", 1, 3, 1, frozenset(), 2, 0.5), TurnOutcome("s", 2, 1, 0, frozenset(), 3, 0.25)]
    assert sum_by_session(turns)["s"] == Sums(1, 0, 4, 1, 5, 0.75)


def test_a_session_has_trouble_when_one_of_its_turns_had() -> None:
    turns = [
        TurnOutcome("s", 1, 3, 1, frozenset()),
        TurnOutcome("s", 2, 2, 0, frozenset({"correction"})),
        TurnOutcome("t", 1, 1, 0, frozenset({"undo", "good"})),
    ]
    assert sum_by_session(turns) == {"s": Sums(1, 1, 5, 1), "t": Sums(1, 0, 1, 0)}
