"""The effect of learned items: how sessions went with an item and without it, and what follows from that.

Sums and comparisons of stored records. Only the hold-out is a causal comparison, because chance assigned
it, so only it can show that an item helps. The comparison with sessions that did not have the item is shown
as an observation. The tests for harm may be repeated after every session: the chance that any harmless item
is ever called harmful is at most 5 %. This module only reports; it never removes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import apsw
import msgspec

from whet.memory.service import LearningService
from whet.stats import Interval, rate_difference, sum_evidence, wilson
from whet.store import outcomes
from whet.store.learned import ContextItem, ItemKind
from whet.store.outcomes import ItemUse, TurnOutcome

Finding = Literal["helps", "hurts", "no evidence"]
Basis = Literal["hold-out", "observed", "none"]
MIN_SESSIONS = 5
"""Groups with fewer sessions are not compared."""
_LIMIT = 40
"""Evidence of harm per item and test: two tests for each item have 5 % together."""
_MARGIN = 0.05


class Sums(msgspec.Struct, frozen=True):
    """Counts of a group of sessions: sessions, those with trouble, their tool calls, steps and cost."""

    sessions: int = 0
    troubled: int = 0
    calls: int = 0
    failed_calls: int = 0
    steps: int = 0
    cost_usd: float = 0.0

    @property
    def harm(self) -> float:
        """How badly a session went, from 0 to 1: 1 with trouble, otherwise its share of failed calls."""
        return 1.0 if self.troubled else self.failed_calls / max(self.calls, 1)

    @property
    def trouble(self) -> Interval:
        """The share of sessions with trouble, with its 95 % interval."""
        return wilson(self.troubled, self.sessions)


class Effect(msgspec.Struct, frozen=True):
    """One item: the sessions with it, the sessions compared with, and the finding.

    `difference` is the share of troubled sessions with the item minus the share without it. `loaded`
    counts the sessions in which a skill was opened.
    """

    item: ContextItem
    shown: Sums
    compared: Sums
    basis: Basis
    difference: Interval
    finding: Finding
    loaded: int
    current: bool


def sum_by_session(turns: Iterable[TurnOutcome]) -> dict[str, Sums]:
    """Sum up each session's turns."""
    sums: dict[str, Sums] = {}
    for turn in turns:
        old = sums.get(turn.session_id, Sums())
        calls, failed = old.calls + turn.calls, old.failed_calls + turn.failed_calls
        steps, cost_usd = old.steps + turn.steps, old.cost_usd + turn.cost_usd
        troubled = max(old.troubled, int(turn.had_trouble))
        sums[turn.session_id] = Sums(1, troubled, calls, failed, steps, cost_usd)
    return sums


def compare_items(
    uses: Sequence[ItemUse],
    ended: Mapping[str, Sums],
    *,
    current: frozenset[tuple[str, str, str]] | None = None,
    loaded: Mapping[tuple[str, str], int] | None = None,
) -> list[Effect]:
    """Compare every item, worst first.

    `current` holds (kind, name, hash) of the items that exist now (None: all). `loaded` counts the
    sessions that opened a skill, by (name, hash). With many items one looks bad by chance, so each
    comparison needs more evidence until all of them together have 95 %.
    """
    by_item: dict[tuple[str, str, str], list[ItemUse]] = {}
    for use in uses:
        if use.session_id in ended:
            by_item.setdefault((use.item.kind, use.item.name, use.item.hash), []).append(use)
    confidence = 1 - 0.05 / max(len(by_item), 1)
    results = [
        _compare(group, ended, confidence, (loaded or {}).get(key[1:], 0), current is None or key in current)
        for key, group in by_item.items()
    ]
    order = {"hurts": 0, "helps": 1, "no evidence": 2}
    return sorted(
        results, key=lambda effect: (order[effect.finding], -effect.shown.sessions, effect.item.name)
    )


async def measure_effects(learning: LearningService, kinds: Sequence[ItemKind]) -> list[Effect]:
    """Compare a profile's items of these kinds, from the store's records. Raises StoreError."""
    part = await learning.reader.build_prompt_part()
    now = frozenset((item.kind, item.name, item.hash) for item in part.items)

    def read(connection: apsw.Connection) -> list[Effect]:
        turns = outcomes.list_turn_outcomes(connection, learning.profile)
        uses = outcomes.list_item_uses(connection, kinds, learning.profile)
        loads = outcomes.count_loading_sessions(connection, learning.profile)
        return compare_items(uses, sum_by_session(turns), current=now, loaded=loads)

    return await learning.database.read(read)


def _compare(
    uses: list[ItemUse], ended: Mapping[str, Sums], confidence: float, loaded: int, current: bool
) -> Effect:
    with_item = [ended[use.session_id] for use in uses if not use.held_out]
    by_chance = [use for use in uses if use.randomised]
    control = [ended[use.session_id] for use in by_chance if use.held_out]
    if control:
        treated = [ended[use.session_id] for use in by_chance if not use.held_out]
        basis, first, second = "hold-out", treated, control
    else:
        session_ids = {use.session_id for use in uses}
        second = [outcome for session, outcome in ended.items() if session not in session_ids]
        basis, first = ("observed", with_item) if second else ("none", with_item)
    a, b = _add_up(first), _add_up(second)
    gap = rate_difference(a.troubled, a.sessions, b.troubled, b.sessions, confidence)
    finding: Finding = "no evidence"
    if is_harmful(first, second, _LIMIT * 0.05 / (1 - confidence)):
        finding = "hurts"
    elif control and min(a.sessions, b.sessions) >= MIN_SESSIONS and gap.high < 0:
        finding = "helps"
    return Effect(uses[0].item, _add_up(with_item), b, basis, gap, finding, loaded, current)


def is_harmful(first: Sequence[Sums], second: Sequence[Sums], limit: float) -> bool:
    """Return whether sessions with an item, oldest first, went worse than those without it.

    There are two tests, which may be repeated: session by session, and against the usual harm of the others
    plus a margin. The second needs few sessions with the item.
    """
    if len(second) < MIN_SESSIONS:
        return False
    if sum_evidence(a.harm - b.harm for a, b in zip(first, second, strict=False)) >= limit:
        return True
    usual = wilson(round(sum(row.harm for row in second)), len(second)).high + _MARGIN
    return sum_evidence(row.harm / usual - 1 for row in first) >= limit


def _add_up(ended: Iterable[Sums]) -> Sums:
    rows = list(map(msgspec.structs.astuple, ended))
    return Sums(*map(sum, zip(*rows, strict=True))) if rows else Sums()
