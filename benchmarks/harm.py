"""Harm of learned items: false alarms of an item without effect, and harm found within ten uses.

Sessions are drawn at random; the comparison is the product's own and is made after every session.
"""

from __future__ import annotations

import random

from benchmarks.table import Row
from whet.memory.effects import Sums, compare_items
from whet.store.learned import ContextItem
from whet.store.outcomes import ItemUse

COMMAND = "python -m benchmarks harm"
_NOTE = ContextItem("memory", "note", "h1", "the tests need X")
_BEFORE = 20


def false_alarms(runs: int, uses: int, *, seed: int = 0) -> float:
    """Return in which share of runs a note without effect is called harmful after any of its uses."""
    rng = random.Random(seed)
    rates = [rng.choice((0.0, 0.1, 0.3, 0.6)) for _ in range(runs)]
    return sum(_is_called_harmful(rng, rate, rate, uses) for rate in rates) / runs


def harm_found(runs: int, uses: int, *, seed: int = 1) -> float:
    """Return in which share of runs a note with which nearly every call fails is called harmful in time."""
    rng = random.Random(seed)
    rates = [rng.choice((0.0, 0.1, 0.2)) for _ in range(runs)]
    return sum(_is_called_harmful(rng, rate, 0.95, uses) for rate in rates) / runs


def _is_called_harmful(rng: random.Random, usual: float, with_note: float, uses: int) -> bool:
    ended = {f"b{n}": _draw(rng, usual) for n in range(_BEFORE)}
    rows: list[ItemUse] = []
    for n in range(uses):
        ended[f"a{n}"] = _draw(rng, with_note)
        rows.append(ItemUse(_NOTE, f"a{n}", held_out=False, randomised=False))
        (effect,) = compare_items(rows, ended)
        if effect.finding == "hurts":
            return True
    return False


def _draw(rng: random.Random, rate: float) -> Sums:
    calls = rng.randint(2, 12)
    own = min(max(rng.gauss(rate, 0.1), 0.0), 1.0) if rate else 0.0  # sessions differ
    failed = sum(rng.random() < own for _ in range(calls))
    return Sums(1, int(rng.random() < rate / 3), calls, failed)


def run(runs: int, full: bool) -> list[Row]:
    """Draw the sessions; one run draws them all."""
    count = 2_000 if full else 400
    alarms, found = false_alarms(count, 100), harm_found(count, 10)
    return [
        Row(
            "harm",
            "notes and skills: without effect called harmful, looked at after each of 100 uses; harm (95 % of"
            f" calls fail) found within 10 uses; {count} runs each",
            "≤ 5 %; ≥ 90 %",
            f"{alarms:.1%}; {found:.1%}",
            "-",
            alarms <= 0.05 and found >= 0.9,
            COMMAND,
        )
    ]
