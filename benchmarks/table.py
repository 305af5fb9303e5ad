"""A benchmark's result, the Markdown page that all of them make, and a bar chart in SVG.

The page is rewritten whole for the rows that ran; rows that did not run keep their last figures, which
live in `benchmarks/results.json`. Each row carries what it ran with instead of the shipped settings, and the
day, the commit and the machine that it was measured on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE / "results.json"
PAGE = HERE / "RESULTS.md"
MARK = "; **older than its code**"


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


@dataclass
class Stored:
    """A row as it is kept: the row, and what it ran with and where."""

    row: Row
    differs: str
    machine: str
    when: str
    commit: str


def save(rows: list[Row], differs: Callable[[Row], str], machine: str, when: str, commit: str) -> None:
    """Merge the rows into the stored figures; `differs` returns what a row ran with instead of what ships."""
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    for row in rows:
        known[row.name] = {
            **asdict(row),
            "differs": differs(row),
            "machine": machine,
            "when": when,
            "commit": commit,
        }
    new = FIGURES.with_suffix(".new")
    new.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
    new.replace(FIGURES)  # a run that is killed leaves the file whole


def read_stored(figures: Path = FIGURES) -> list[Stored]:
    """Return the rows that are kept, in their order."""
    kept: list[Stored] = []
    for values in json.loads(figures.read_text("utf-8")).values():
        origin = {name: str(values.pop(name, "")) for name in ("differs", "machine", "when", "commit")}
        kept.append(Stored(Row(**values), **origin))
    return kept


def write_pages(kept: list[Stored], is_old: Callable[[Stored], bool]) -> None:
    """Write RESULTS.md and results.svg. `is_old` tells whether a row's code has changed since."""
    PAGE.write_text(format_page(kept, is_old), "utf-8")
    (HERE / "results.svg").write_text(_chart([stored.row for stored in kept]), "utf-8")


def format_page(kept: list[Stored], is_old: Callable[[Stored], bool]) -> str:
    """Return RESULTS.md."""
    machines = {name: chr(ord("A") + n) for n, name in enumerate(dict.fromkeys(one.machine for one in kept))}
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; `python -m benchmarks --page` writes it again without measuring. Machines",
        "are noisy: read ratios and CPU time, not wall time. Every model here is the practice model, a",
        'scripted stand-in: what is measured is the harness. "Runs with" names each setting that is not the',
        "shipped one. **Older than its code**: a commit since has changed what the row measures.",
        "",
        *(f"- Machine {letter}: {name}" for name, letter in machines.items()),
        "",
        "![overhead per model call](results.svg)",
        "",
        "| measure | goal | Whet | peers, same run | met | runs with | measured | command |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stored in kept:
        row = stored.row
        met = {True: "yes", False: "**no**", None: "not judged"}[row.met]
        measured = f"{stored.when}, {stored.commit or 'commit unknown'}, machine {machines[stored.machine]}"
        lines.append(
            f"| {row.measure} | {row.goal} | {row.whet} | {row.peers} | {met} | "
            f"{stored.differs or 'as shipped'} | {measured}{MARK * is_old(stored)} | `{row.command}` |"
        )
    for stored in kept:
        if stored.row.details:
            lines += ["", f"## {stored.row.measure}", "", *stored.row.details]
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
