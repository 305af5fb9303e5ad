"""Engines side by side as bars in SVG, one group for each measure. No library, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _LABEL, _BAR = 720, 190, 400
_COLOURS = ("#0a7d5a", "#c27c0e", "#7a5cc0", "#2f6fb0", "#b0476b", "#8a94a0")
_STYLE = (
    "<style>text{font-family:system-ui,sans-serif;fill:#333;font-size:12px}.t{font-size:14px;font-weight:600}"
    ".m{font-weight:600}@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>"
)


def bars(title: str, measures: Sequence[tuple[str, Mapping[str, float], str]]) -> str:
    """Draw the groups: (measure, value of each engine, the format of a value)."""
    parts = [f'<text x="10" y="22" class="t">{escape(title)}</text>']
    top = 40
    names = list(dict.fromkeys(name for _, values, _ in measures for name in values))
    for measure, values, shape in measures:
        parts.append(f'<text x="10" y="{top + 12}" class="m">{escape(measure)}</text>')
        top += 20
        largest = max([*values.values(), 1e-9])
        for name, value in values.items():
            width = max(1.0, value / largest * _BAR)
            colour = _COLOURS[names.index(name) % len(_COLOURS)]
            parts.append(f'<text x="{_LABEL - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="{_LABEL}" y="{top + 1}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>'
            )
            said = escape(shape.format(value))
            parts.append(f'<text x="{_LABEL + width + 6:.1f}" y="{top + 12}">{said}</text>')
            top += 18
        top += 10
    size = f'width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{_STYLE}{"".join(parts)}</svg>\n'
