"""A depot's records, as files: a small world whose conventions a newcomer gets wrong and then learns.

Where a week's count, an article's price and a day's log stand is drawn from the seed, so that what one depot
teaches is of no use in another. With `pitfalls` off, everything stands where a newcomer would look first.
Pure Python, no network.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

WEEKS, ARTICLES, DAYS = 40, 40, 60
_NOTES = 12


class RecordKind(msgspec.Struct, frozen=True):
    """One kind of record: what people call it, the pattern of its path, and how many there are."""

    name: str
    title: str
    pattern: str
    count: int

    def path(self, number: int) -> str:
        """Give the path of a record."""
        return self.pattern.format(n=number)


GUESSES: dict[str, str] = {
    "count": "counts/week-{n}.txt",
    "price": "prices/{n}.csv",
    "lost": "logs/day-{n}.log",
}
_TITLES = {
    "count": ("shelf count of week {n}", WEEKS),
    "price": ("price of article {n}", ARTICLES),
    "lost": ("parcels lost on day {n}", DAYS),
}
_PATTERNS: dict[str, tuple[str, ...]] = {
    "count": ("stock/{y}/w{{n:02d}}.{e}", "{e}/counts_{y}_{{n:02d}}.{e}", "{y}/shelves/kw{{n:03d}}.{e}"),
    "price": ("lists/{y}/price_{{n:03d}}.{e}", "{e}/a{{n:04d}}_{y}.{e}", "articles/{y}-{{n:02d}}/net.{e}"),
    "lost": ("journal/{y}/d{{n:03d}}.{e}", "{y}/{e}/day_{{n:02d}}.{e}", "gates/{y}/{{n:03d}}/losses.{e}"),
}
_ENDINGS = {"count": ("cnt", "tally", "dat"), "price": ("tsv", "net", "eur"), "lost": ("jnl", "rec", "trk")}


def kinds(seed: int, *, pitfalls: bool = True) -> tuple[RecordKind, ...]:
    """Give the kinds of records and where they stand in the depot of this seed."""
    rng = random.Random(f"depot {seed}")
    found: list[RecordKind] = []
    for name, (title, count) in _TITLES.items():
        pattern = rng.choice(_PATTERNS[name]).format(y=rng.randint(2019, 2026), e=rng.choice(_ENDINGS[name]))
        found.append(RecordKind(name, title, pattern if pitfalls else GUESSES[name], count))
    return tuple(found)


def make_depot(folder: Path, seed: int, *, pitfalls: bool = True) -> None:
    """Write the depot of this seed into `folder`."""
    rng = random.Random(f"records {seed}")
    for kind in kinds(seed, pitfalls=pitfalls):
        for number in range(1, kind.count + 1):
            path = folder / kind.path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_record(kind, number, rng), "utf-8")
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    for number in range(1, _NOTES + 1):
        (notes / f"note{number}.md").write_text(
            f"# Note {number}\n\nThe {number}. gate was painted.\n", "utf-8"
        )


def _record(kind: RecordKind, number: int, rng: random.Random) -> str:
    title = kind.title.format(n=number)
    if kind.name == "lost":
        lines = [
            f"{hour:02d}:10 parcel {rng.randint(1000, 9999)} {rng.choice(('SENT', 'LOST'))}"
            for hour in range(6)
        ]
        return "\n".join([f"journal: {title}", *lines]) + "\n"
    return f"record: {title}\nvalue: {rng.randint(10, 990)}\n"


def question(numbers: dict[str, int], notes: tuple[int, ...] = ()) -> str:
    """Give what a person asks: one thing after the other, as the stand-in reads it."""
    asked = [_TITLES[name][0].format(n=number) for name, number in numbers.items()]
    asked += [f"note {number}" for number in notes]
    return f"Depot: tell me the {'; the '.join(asked)}."
