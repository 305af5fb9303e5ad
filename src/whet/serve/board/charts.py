"""Compute the geometry of charts, which a template draws as SVG: stacked bars by day, or a line.

Colours are classes, so that the page's policy can forbid scripts and style attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta

import msgspec

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 12, 12, 28


class Bar(msgspec.Struct, frozen=True):
    """One rectangle. `series` is its CSS class."""

    x: float
    y: float
    width: float
    height: float
    series: str


class Tick(msgspec.Struct, frozen=True):
    """A label at a position on an axis."""

    at: float
    text: str


class Dot(msgspec.Struct, frozen=True):
    """A point of a line."""

    x: float
    y: float


class Spot(msgspec.Struct, frozen=True):
    """The tooltip of one day: the position of its column and a sentence."""

    x: float
    width: float
    title: str


class Chart(msgspec.Struct, frozen=True):
    """A chart's geometry. `line` is the points of a polyline, or empty. `rows` and `columns` are the labels
    of the axes, `series` pairs of a CSS class and a name."""

    title: str
    width: int
    height: int
    left: int
    bottom: int
    bars: tuple[Bar, ...]
    line: str
    dots: tuple[Dot, ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]
    spots: tuple[Spot, ...]
    series: tuple[tuple[str, str], ...]


def days_back(today: date, days: int) -> list[str]:
    """Return the days up to today, oldest first, in the store's format."""
    return [(today - timedelta(days=days_ago)).isoformat() for days_ago in range(days - 1, -1, -1)]


def draw_bars(
    title: str,
    days: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[float]]],
    write: Callable[[float], str],
    *,
    tooltips: Sequence[str] = (),
) -> Chart:
    """Draw stacked bars. `series` are (class, name, values by day), the lowest first.

    `tooltips` are those of the columns, by default their values.
    """
    totals = [sum(values[index] for _, _, values in series) for index in range(len(days))]
    top = nice_top(max(totals, default=0.0))
    slot, scale = _slot(len(days)), (HEIGHT - _TOP - _BOTTOM) / top
    bars: list[Bar] = []
    for index in range(len(days)):
        y = float(HEIGHT - _BOTTOM)
        for kind, _, values in series:
            height = values[index] * scale
            if height > 0:
                y -= height
                x = _LEFT + index * slot + slot * 0.14
                bars.append(Bar(round(x, 2), round(y, 2), round(slot * 0.72, 2), round(height, 2), kind))
    tooltips = tooltips or [
        f"{day}: " + ", ".join(f"{write(values[index])} {name}" for _, name, values in series)
        for index, day in enumerate(days)
    ]
    return _chart(
        title,
        days,
        top,
        write,
        bars=bars,
        tooltips=tooltips,
        series=[(kind, name) for kind, name, _ in series],
    )


def draw_line(title: str, days: Sequence[str], values: Sequence[float | None], name: str) -> Chart:
    """Draw shares between 0 and 1 as a line. Days without a value are left out."""
    slot, scale = _slot(len(days)), HEIGHT - _TOP - _BOTTOM
    coordinates = [
        (_LEFT + (index + 0.5) * slot, HEIGHT - _BOTTOM - value * scale)
        for index, value in enumerate(values)
        if value is not None
    ]
    dots = [Dot(round(x, 2), round(y, 2)) for x, y in coordinates]
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in coordinates)
    tooltips = [
        f"{day}: {value:.0%} {name}" if value is not None else f"{day}: no requests"
        for day, value in zip(days, values, strict=True)
    ]
    return _chart(
        title,
        days,
        1.0,
        lambda share: f"{share:.0%}",
        path=path,
        dots=dots,
        tooltips=tooltips,
        series=[("hit", name)],
    )


def nice_top(value: float) -> float:
    """Return the next round number from `value` up whose half is round, too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


def _slot(days: int) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(days, 1)


def _chart(  # noqa: PLR0913 - one value for each part of a drawing
    title: str,
    days: Sequence[str],
    top: float,
    write: Callable[[float], str],
    *,
    tooltips: Sequence[str],
    series: Sequence[tuple[str, str]],
    bars: Sequence[Bar] = (),
    path: str = "",
    dots: Sequence[Dot] = (),
) -> Chart:
    slot = _slot(len(days))
    span = HEIGHT - _TOP - _BOTTOM
    rows = [Tick(round(HEIGHT - _BOTTOM - share * span, 2), write(top * share)) for share in (0, 0.5, 1)]
    every = max(1, math.ceil(len(days) / 6))
    columns = [
        Tick(round(_LEFT + (index + 0.5) * slot, 2), day[5:] or day)
        for index, day in enumerate(days)
        if (len(days) - 1 - index) % every == 0
    ]
    spots = [
        Spot(round(_LEFT + index * slot, 2), round(slot, 2), text) for index, text in enumerate(tooltips)
    ]
    return Chart(
        title,
        WIDTH,
        HEIGHT,
        _LEFT,
        HEIGHT - _BOTTOM,
        tuple(bars),
        path,
        tuple(dots),
        tuple(rows),
        tuple(columns),
        tuple(spots),
        tuple(series),
    )
