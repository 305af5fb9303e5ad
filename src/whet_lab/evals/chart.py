"""Draws SVG charts, for light and dark mode: learning curves over sessions, and engines side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT = 760, 360, 50, 40, 130
_COLOURS = ("#8a94a0", "#c27c0e", "#0a7d5a", "#7a5cc0", "#b0476b", "#2f6fb0", "#5b7a1e", "#444")
_STYLE = (
    "<style>text{font-family:system-ui,sans-serif;fill:#333;font-size:12px}.t{font-size:14px;font-weight:600}"
    ".g{stroke:#8884;stroke-width:1}polyline{fill:none;stroke-width:2}.m{font-weight:600}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>"
)
_BARS_WIDTH, _LABEL, _BAR = 720, 190, 400
_SMOOTHED_SESSIONS = 5
_BAR_COLOURS = ("#0a7d5a", "#c27c0e", "#7a5cc0", "#2f6fb0", "#b0476b", "#8a94a0")


def draw_learning_chart(title: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Draw shares between 0 and 1 by session; each point is the mean of five sessions around it."""
    inner_w, inner_h = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - 40
    longest = max((len(curve) for curve in curves.values()), default=1)
    parts = [f'<text x="{_LEFT}" y="22" class="t">{escape(title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _TOP + inner_h * (1 - share)
        parts.append(f'<line class="g" x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + inner_w}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for session in sorted({1, *range(5, longest + 1, 5)}):
        x = _LEFT + inner_w * (session - 1) / max(longest - 1, 1)
        parts.append(f'<text x="{x:.1f}" y="{_TOP + inner_h + 18}" text-anchor="middle">{session}</text>')
    parts.append(f'<text x="{_LEFT + inner_w / 2}" y="{_HEIGHT - 4}" text-anchor="middle">session</text>')
    ends: list[float] = []
    for number, (name, curve) in enumerate(curves.items()):
        points = [
            (_LEFT + inner_w * i / max(longest - 1, 1), _TOP + inner_h * (1 - value))
            for i, value in enumerate(_smooth_curve(curve, _SMOOTHED_SESSIONS))
        ]
        if not points:
            continue
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" stroke="{colour}"/>')
        y = points[-1][1]
        while any(abs(y - other) < 14 for other in ends):
            y += 14
        ends.append(y)
        parts.append(
            f'<text x="{points[-1][0] + 8:.1f}" y="{y + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'
        )
    return _svg(_WIDTH, _HEIGHT, parts)


def draw_bars(title: str, measures: Sequence[tuple[str, Mapping[str, float], str]]) -> str:
    """Draw a group of bars for each measure: (measure, value of each engine, the format of a value)."""
    parts = [f'<text x="10" y="22" class="t">{escape(title)}</text>']
    top = 40
    names = list(dict.fromkeys(name for _, values, _ in measures for name in values))
    for measure, values, value_format in measures:
        parts.append(f'<text x="10" y="{top + 12}" class="m">{escape(measure)}</text>')
        top += 20
        largest = max([*values.values(), 1e-9])
        for name, value in values.items():
            width = max(1.0, value / largest * _BAR)
            colour = _BAR_COLOURS[names.index(name) % len(_BAR_COLOURS)]
            parts.append(f'<text x="{_LABEL - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="{_LABEL}" y="{top + 1}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>'
            )
            label = escape(value_format.format(value))
            parts.append(f'<text x="{_LABEL + width + 6:.1f}" y="{top + 12}">{label}</text>')
            top += 18
        top += 10
    return _svg(_BARS_WIDTH, top, parts)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{_STYLE}{"".join(parts)}</svg>\n'


def _smooth_curve(curve: Sequence[float], width: int) -> list[float]:
    half = width // 2
    return [fmean(curve[max(0, i - half) : i + half + 1]) for i in range(len(curve))]
