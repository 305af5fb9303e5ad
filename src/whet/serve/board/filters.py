"""The filters of the templates: how pages show numbers, times and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whet.serve.board import shown
from whet.serve.board.marked import mark_code, mark_rows

FILTERS: Mapping[str, Callable[..., object]] = {
    "text": shown.text,
    "line": shown.line,
    "whole": shown.whole,
    "count": shown.count,
    "cost": shown.cost,
    "usage_cost": shown.usage_cost,
    "spending_cost": shown.spending_cost,
    "percent": shown.percent,
    "duration": shown.duration,
    "moment": shown.moment,
    "clock": shown.clock_time,
    "age": shown.age,
    "difference": shown.difference_with_interval,
    "rate": shown.rate_with_interval,
    "left": shown.time_left,
    "marked": mark_rows,
    "code": mark_code,
}
