"""A benchmark's result, the Markdown page that all of them make, and a bar chart in SVG.

The page is rewritten whole for the rows that ran; rows that did not run keep their last figures, which
live in `benchmarks/results.json`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE / "results.json"


@dataclass
class Row:
    """One line of the table: what was measured, the goal, ours, theirs, and whether the goal is met (None:
    too little was run to say)."""

    name: str
    measure: str
    goal: str
    whet: str
    peers: str
    met: bool | None
    command: str
    bars: dict[str, float] = field(default_factory=dict)
    unit: str = ""
    details: list[str] = field(default_factory=list)


def save(rows: list[Row], machine: str, when: str) -> None:
    """Merge `rows` into the stored figures and write RESULTS.md and results.svg."""
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    for row in rows:
        known[row.name] = {**asdict(row), "machine": machine, "when": when}
    FIGURES.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
    everything = [
        Row(**{k: v for k, v in row.items() if k not in ("machine", "when")}) for row in known.values()
    ]
    (HERE / "RESULTS.md").write_text(_page(everything, machine, when), "utf-8")
    (HERE / "results.svg").write_text(_chart(everything), "utf-8")


def _page(rows: list[Row], machine: str, when: str) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` ({when}; {machine}).",
        "Machines are noisy: read ratios and CPU time, not wall time. Every model here is the practice",
        "model, a scripted stand-in: what is measured is the harness.",
        "",
        "![overhead per model call](results.svg)",
        "",
        "| measure | goal | Whet | peers, same run | met | command |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        met = {True: "yes", False: "**no**", None: "not judged"}[row.met]
        lines.append(f"| {row.measure} | {row.goal} | {row.whet} | {row.peers} | {met} | `{row.command}` |")
    for row in rows:
        if row.details:
            lines += ["", f"## {row.measure}", "", *row.details]
    return "\n".join(lines) + "\n"


def _chart(rows: list[Row]) -> str:
    charts = [row for row in rows if row.bars]
    parts: list[str] = []
    top = 10
    for row in charts:
        parts.append(
            f'<text x="10" y="{top + 14}" class="t">{escape(row.measure)} ({escape(row.unit)})</text>'
        )
        top += 24
        largest = max(row.bars.values()) or 1
        for name, value in row.bars.items():
            width = max(1.0, value / largest * 420)
            kind = "w" if name == "Whet" else "p"
            parts.append(f'<text x="150" y="{top + 13}" class="n" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="160" y="{top + 2}" width="{width:.1f}" height="14" rx="2" class="{kind}"/>'
            )
            parts.append(f'<text x="{166 + width:.1f}" y="{top + 13}" class="n">{value:.3g}</text>')
            top += 20
        top += 14
    style = (
        "<style>text{font-family:system-ui,sans-serif;fill:#333}.t{font-size:13px;font-weight:600}"
        ".n{font-size:12px}.w{fill:#0a7d5a}.p{fill:#b9c2cc}"
        "@media (prefers-color-scheme:dark){text{fill:#ddd}.p{fill:#59636e}.w{fill:#2fc08f}}</style>"
    )
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{top}" role="img">{style}{body}</svg>\n'
    )
