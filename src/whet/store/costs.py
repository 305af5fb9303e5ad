"""Sum up the usage and cost of turns by day, model and kind of session, and count how calls were decided.

The sums cover the turns of sessions that were active since a time; a session's own sums cover its whole
life.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from whet.contract.messages import Usage


class Spending(msgspec.Struct, frozen=True):
    """The turns, tokens and cost of one day, model, kind or source of sessions.

    `unpriced` counts the turns without a known price, which `cost_usd` does not include. `estimated_tokens`
    is the number of tokens that Whet counted itself.
    """

    label: str
    turns: int
    prompt_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced: int
    estimated_tokens: int = 0

    @property
    def cache_hit_ratio(self) -> float:
        """The share of the prompt tokens that came from the provider's cache."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def usage(self) -> Usage:
        """The same numbers as a Usage."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cost_usd=self.cost_usd,
            estimated_tokens=self.estimated_tokens,
        )


class DecisionCount(msgspec.Struct, frozen=True):
    """The number of calls that one decider decided on, and the number that it denied."""

    by: str
    calls: int
    denied: int


_LABELS = {"day": "substr(t.started, 1, 10)", "model": "s.model", "kind": "s.kind", "source": "s.source"}
_SUMS = ", ".join(
    (
        "count(*)",
        "coalesce(sum(json_extract(t.usage, '$.prompt_tokens')), 0)",
        "coalesce(sum(json_extract(t.usage, '$.cache_read_tokens')), 0)",
        "coalesce(sum(json_extract(t.usage, '$.output_tokens')), 0)",
        "coalesce(sum(json_extract(t.usage, '$.cost_usd')), 0.0)",
        "sum(json_extract(t.usage, '$.cost_usd') IS NULL)",
        "coalesce(sum(json_extract(t.usage, '$.estimated_tokens')), 0)",
    )
)


def sum_spending(connection: apsw.Connection, group: str, since: str) -> list[Spending]:
    """Sum up the turns begun since `since` (ISO) by day, model, kind or source, sorted by label."""
    label = _LABELS[group]
    cursor = connection.execute(
        f"SELECT {label}, {_SUMS} FROM sessions s JOIN turns t ON t.session = s.key"
        " WHERE s.last_active >= ? AND t.started >= ? AND t.usage <> '' GROUP BY 1 ORDER BY 1",
        (since, since),
    )
    return [_read_spending(row) for row in cursor]


def count_decisions(connection: apsw.Connection, since: str) -> list[DecisionCount]:
    """Count the calls of sessions active since `since` by who decided on them; "" if no rule asked. Calls
    that a fork copied count for their original session only."""
    cursor = connection.execute(
        "SELECT c.decided_by, count(*), sum(c.error_kind = 'denied') FROM sessions s"
        " JOIN tool_calls c ON c.session = s.key LEFT JOIN forks f ON f.session = s.key"
        " WHERE s.last_active >= ? AND (f.turn IS NULL OR c.turn > f.turn) GROUP BY 1 ORDER BY 2 DESC",
        (since,),
    )
    return [DecisionCount(str(row[0]), int(row[1]), int(row[2] or 0)) for row in cursor]


def _read_spending(row: tuple[Any, ...]) -> Spending:
    label, turns, prompt, cached, output, usd, unpriced, estimated = row
    return Spending(
        str(label),
        int(turns),
        int(prompt),
        int(cached),
        int(output),
        float(usd),
        int(unpriced),
        int(estimated),
    )
