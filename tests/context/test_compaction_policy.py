"""Two ineffective compactions in a row are the end of automatic ones, until something changes."""

from __future__ import annotations

from typing import Any

from tests.support import each
from whet.context.compaction_policy import CircuitBreaker
from whet.context.engine_runner import CompactionAnswer, CompactionQuestion, ask_engine


def test_two_that_changed_nothing_stop_it_until_the_list_has_grown() -> None:
    """Failures 8, 9."""
    brake = CircuitBreaker()
    assert not brake.note_idle(10_000, 100_000) and brake.allows(10_000)
    assert brake.note_idle(10_000, 100_000)
    assert brake.stopped and not brake.allows(14_999)
    assert brake.allows(15_000)
    assert not brake.note_idle(15_000, 100_000) and not brake.allows(19_999)


def test_two_that_did_not_get_below_the_threshold_stop_it_until_the_list_has_grown() -> None:
    """Failure 11."""
    brake = CircuitBreaker()
    for expected in (False, True):
        brake.note_compaction()
        assert not brake.allows(90_000)  # the server's count comes first (failure 7)
        assert brake.note_count(90_000, 75_000) is expected
    assert not brake.allows(94_095) and brake.allows(94_096)
    brake.note_compaction()
    assert not brake.note_count(96_000, 75_000), "the person knows already"
    assert brake.stopped and not brake.allows(100_000)
    brake.reset()
    assert brake.allows(90_000)


def test_a_count_below_the_threshold_allows_compactions_again() -> None:
    brake = CircuitBreaker()
    for _ in range(2):
        brake.note_compaction()
        brake.note_count(90_000, 75_000)
    assert brake.stopped and not brake.allows(76_000)
    brake.note_count(60_000, 75_000)
    assert not brake.stopped and brake.allows(76_000)


def test_maintenance_below_the_threshold_is_no_strike_whether_it_changed_something_or_not() -> None:
    brake = CircuitBreaker()
    for _ in range(5):
        brake.new_turn()
        assert brake.begin("preflight", 10_000, 75_000) and not brake.note_idle(10_000, 100_000)
        assert brake.begin("preflight", 10_000, 75_000) and not brake.note_compaction(grew=True)
        assert not brake.note_count(90_000, 75_000)
    assert not brake.stopped and brake.begin("preflight", 80_000, 75_000)
    brake.note_idle(80_000, 100_000)
    assert brake.begin("threshold", 80_000, 0) and brake.note_idle(80_000, 100_000)


def test_a_list_that_grows_begins_none_after_a_poor_one_though_one_before_found_nothing() -> None:
    brake = CircuitBreaker()
    brake.note_idle(10_000, 100_000)
    brake.note_compaction()
    assert brake.note_count(90_000, 75_000)
    assert not brake.allows(94_095)


def test_one_that_helped_forgets_the_strike_before() -> None:
    brake = CircuitBreaker()
    brake.note_idle(10_000, 100_000)
    brake.note_compaction()
    assert not brake.note_count(20_000, 75_000)
    assert not brake.note_idle(80_000, 100_000)
    assert brake.note_idle(80_000, 100_000), "the second one since then"


def test_three_poor_ones_in_a_turn_are_enough_and_good_ones_are_not_counted() -> None:
    """Failure 7; a turn of a thousand steps needs dozens."""
    brake = CircuitBreaker()
    for left in (1, 60_000, 50_000, 1, 60_000, 60_000):
        assert brake.allows(1)
        brake.note_compaction()
        brake.note_count(left, 75_000)
    assert not brake.allows(1)
    brake.new_turn()
    assert brake.allows(1)


def test_what_an_earlier_process_compacted_is_no_credit_for_a_turn() -> None:
    brake = CircuitBreaker()
    assert not brake.restore([1, 75_000, 1, 75_000], 75_000) and brake.restore([75_000], 75_000)
    brake = CircuitBreaker()
    assert not brake.restore([1, 1, 1], 75_000)
    for _ in range(3):
        assert brake.allows(1)
        brake.note_compaction()
        brake.note_count(60_000, 75_000)
    assert not brake.allows(1)


class Hooks:
    """An engine of hooks alone: each says what it was made with."""

    def __init__(self, **answers: Any) -> None:
        for name, answer in answers.items():
            setattr(self, name, lambda given, answer=answer: answer)


@each(
    ("hooks", "asked", "answer"),
    [
        ({"should_compress_preflight": True}, {"is_first": True, "may_compact": False}, ("preflight", "")),
        ({"should_compress_preflight": True, "should_compress": False}, {}, (None, "")),
        ({"should_compress": True}, {"may_compact": False}, (None, "")),
        ({"should_compress": True}, {}, ("threshold", "")),
        ({"pending_compression_operation": "p" * 50}, {}, ("p" * 40, "")),
        ({"pending_compression_operation": "", "should_compress": True}, {}, ("threshold", "")),
        (
            {"should_defer_preflight_to_real_usage": True, "should_compress": True},
            {"is_rough": True},
            (None, ""),
        ),
        ({"should_defer_preflight_to_real_usage": True, "should_compress": True}, {}, ("threshold", "")),
        (
            {"should_compress": False, "should_compress_info": (False, " rests \n now")},
            {},
            (None, "rests now"),
        ),
        ({"should_compress": False, "should_compress_info": (False, "y" * 201)}, {}, (None, "y" * 200)),
        ({"should_compress": False, "should_compress_info": (True, "x")}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": (False, 3)}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": (False, "x", 1)}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": "no"}, {}, (None, "")),
    ],
)
def test_an_engine_is_asked_in_order(hooks: Any, asked: Any, answer: tuple[str | None, str]) -> None:
    given = {"rows": [], "tokens": 9, "is_first": False, "may_compact": True, "is_rough": False, **asked}
    phase, blocked = answer
    expected = CompactionAnswer(wants=True, phase=phase) if phase else CompactionAnswer(blocked=blocked)
    assert ask_engine(Hooks(**hooks), CompactionQuestion(**given)) == expected  # type: ignore[arg-type]
