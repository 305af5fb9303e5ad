"""A line chart in SVG: learning curves over sessions, one line per arm. No library, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT = 760, 360, 50, 40, 130
_COLOURS = ("#8a94a0", "#c27c0e", "#0a7d5a", "#7a5cc0", "#b0476b", "#2f6fb0", "#5b7a1e", "#444")
_STYLE = (
    "<style>text{font-family:system-ui,sans-serif;fill:#333;font-size:12px}.t{font-size:14px;font-weight:600}"
    ".g{stroke:#8884;stroke-width:1}polyline{fill:none;stroke-width:2}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>"
)


def learning_chart(title: str, curves: Mapping[str, Sequence[float]], *, smooth: int = 5) -> str:
    """Draw shares between 0 and 1 by session; each point is the mean of `smooth` sessions around it."""
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
            for i, value in enumerate(_smoothed(curve, smooth))
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
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{_STYLE}{"".join(parts)}</svg>\n'


def _smoothed(curve: Sequence[float], width: int) -> list[float]:
    half = width // 2
    return [fmean(curve[max(0, i - half) : i + half + 1]) for i in range(len(curve))]
